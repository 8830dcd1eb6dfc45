"""`plmctl recipes`: the list of systems, one of them in detail, its file to be edited, and its
whole chain in one command.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from plmctl.chain import listing
from plmctl.core.errors import UsageError
from plmctl.core.terminal import remark, screen, tell
from plmctl.run.compose import Flags, composed
from plmctl.run.headers import Header, header
from plmctl.run.overrides import spelled
from plmctl.run.plugins import as_words
from plmctl.run.recipes import find_recipe, recipe_names, studies
from plmctl.run.resume import leaves
from plmctl.run.schema import LENGTHS

if TYPE_CHECKING:
    from omegaconf import DictConfig

OUT = "chains"  # where chains are, without out=


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """What `cfg.action` says: ls, show, cp or run."""
    return {"ls": _ls, "show": _show, "cp": _cp, "run": _run}[cfg.action](cfg, flags)


def _ls(cfg: DictConfig, flags: Flags) -> int:
    rows = (
        listing.study_rows(flags.config_dirs) if cfg.studies else listing.recipes(flags.config_dirs)
    )
    if flags.json:
        tell(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        shown = [{key: value for key, value in row.items() if key != "system"} for row in rows]
        _print(list(shown[0]), [list(row.values()) for row in shown])
    return 0


def _show(cfg: DictConfig, flags: Flags) -> int:
    """The header, what differs from the defaults, and the commands of the chain."""
    name, found = _found(cfg.name, flags)
    words, tasks, out = _told(cfg.words, name)
    differences = _differences(name, words, flags)
    chain = _plan(name, found, words, tasks, flags)
    lines = _lines(chain, out)
    if flags.json:
        record = {
            **listing.recipe(name, found.file),
            "file": str(found.file),
            "data": found.text("Data"),
        }
        tell(
            json.dumps(
                {**record, "differences": differences, "chain": lines}, indent=1, ensure_ascii=False
            )
        )
        return 0
    tell("\n".join([str(found.file), *found.lines]))
    tell("\nSettings that differ from the defaults of plmctl pretrain with the same parts:")
    _print(("setting", "here", "default"), [[key, *values] for key, values in differences.items()])
    tell(f"plmctl recipes run {shlex.join([cfg.name, *cfg.words])}:")
    tell("\n".join(f"  {line}" for line in lines))
    return 0


def _cp(cfg: DictConfig, flags: Flags) -> int:
    """The recipe's file, for editing; nothing is overwritten."""
    name, found = _found(cfg.name, flags)
    place = Path(cfg.dest or ".").expanduser()
    place = place / f"{Path(name).stem}.yaml" if place.is_dir() else place
    if place.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"{place}: a recipe is a .yaml file, or a folder that is there\n  fix: {place}.yaml"
        )
    if place.exists():
        other = next(
            free for n in count(2) if not (free := place.with_stem(f"{place.stem}-{n}")).exists()
        )
        fix = shlex.join(["plmctl", "recipes", "cp", cfg.name, str(other)])
        raise UsageError(
            f"{place}: is there already, and stays as it is\n  fix: another name: {fix}"
        )
    if not place.parent.is_dir():
        raise UsageError(
            f"{place}: there is no folder {place.parent}\n  fix: mkdir -p"
            f" {shlex.quote(str(place.parent))}"
        )
    shutil.copyfile(found.file, place)
    named = shlex.quote(str(place) if place.is_absolute() else f"./{place}")
    tell(f"{place}\nafter editing:\n  plmctl pretrain {named}\n  plmctl recipes run {named}")
    return 0


def _run(cfg: DictConfig, flags: Flags) -> int:
    """The whole chain, or with --dry-run its commands; goes on where an earlier start was
    stopped.
    """
    name, found = _found(cfg.name, flags)
    words, tasks, out = _told(cfg.words, name)
    chain = _plan(name, found, words, tasks, flags)
    if flags.dry_run:
        tell("\n".join(_lines(chain, out)))
        return 0
    from plmctl.chain import page
    from plmctl.chain.run import run_chain

    code, done = run_chain(chain, out, quiet=flags.json)
    steps = page.records(chain, done, out)
    written = page.write(chain, steps, out)
    if flags.json:
        tell(json.dumps({"recipe": chain.recipe, "code": code, "steps": steps}))
    else:
        _print(page.HEAD, page.rows(steps))
    remark(f"page: {written}")
    if code:
        options = [word for each in flags.config_dirs for word in ("--config-dir", each)]
        options += as_words(flags.plugins)
        line = shlex.join(["plmctl", "recipes", "run", cfg.name, *cfg.words, *options])
        ended = next(job for job in chain.jobs.values() if job not in done)
        what = f"{ended.label} {'was stopped' if code > 128 else 'failed'}"
        remark(f"{what}; what is finished stays so. To go on:\n  {line}")
    return code


def _lines(chain: Any, out: Path) -> list[str]:
    from plmctl.jobs.job import run_folders

    runs = run_folders(chain.jobs, out)
    return [job.line(runs) for job in chain.jobs.values()]


def _found(name: str, flags: Flags) -> tuple[str, Header]:
    """The recipe, as one names it, and what its file says of it."""
    if name in studies(flags.config_dirs) and name not in recipe_names(flags.config_dirs):
        raise UsageError(f"'{name}' is a study\n  fix: plmctl ablate {name} --dry-run")
    return name, header(find_recipe(name, flags.config_dirs))


def _plan(
    name: str, found: Header, words: Sequence[str], tasks: Mapping[str, str] | None, flags: Flags
) -> Any:
    from plmctl.chain.plan import plan

    return plan(name, found, words, tasks, flags)


def _told(words: Sequence[str], recipe: str) -> tuple[list[str], dict[str, str] | None, Path]:
    """(settings of steps, tasks by name or None, the folder) that the words of the command line
    say.
    """
    kept: list[str] = []
    tasks: dict[str, str] | None = None
    out = Path(OUT, Path(recipe).stem)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("~"):
            raise UsageError(f"'{word}': settings are key=value; one recipe at a time")
        if key == "out":
            out = Path(value).expanduser()
        elif key == "tasks":
            if value != "none":
                raise UsageError(
                    f"{word}: tasks.<name>=<folder>, as often as you like, or tasks=none"
                )
            tasks = {}
        elif key.startswith("tasks."):
            tasks = {**(tasks or {}), key.removeprefix("tasks."): value}
        else:
            kept.append(word)
    return kept, tasks, out


def _differences(name: str, words: Sequence[str], flags: Flags) -> dict[str, tuple[str, str]]:
    """{setting: (here, by default)}: the parts that a recipe chooses, then the values that it
    gives them.
    """
    from omegaconf import OmegaConf

    chosen = {
        slot: part
        for slot, part in listing.choices(
            listing.plain(find_recipe(name, flags.config_dirs))
        ).items()
        if "@" not in slot
    }
    chooses = [f"{slot}={spelled(part)}" for slot, part in chosen.items()]
    config, plugins = flags.config_dirs, flags.plugins
    here = composed("pretrain", name, config_dirs=config, plugins=plugins).cfg
    bare = composed(
        "pretrain", None, [*chooses, "train.steps=1"], config_dirs=config, plugins=plugins
    ).cfg
    ours, theirs = (dict(leaves(OmegaConf.to_container(cfg, resolve=True))) for cfg in (here, bare))
    theirs |= {f"train.{length}": None for length in LENGTHS}
    values = {
        key: (spelled(value), spelled(theirs[key]) if key in theirs else "")
        for key, value in ours.items()
        if value != theirs.get(key) and not key.startswith(("run.", "recipe"))
    }
    return {slot: (spelled(part), "") for slot, part in chosen.items()} | values


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(name, overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row)
    screen().print(table)
