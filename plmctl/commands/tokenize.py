"""`plmctl tokenize`: text to a token directory, with a tokenizer trained on it or a given one."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.terminal import remark, screen, tell, visible
from plmctl.data import tokenizing
from plmctl.data.shards import is_tokens, read_manifest
from plmctl.data.survey import Say, Source, quiet
from plmctl.data.tokenizing import Job
from plmctl.run.build import build, plain
from plmctl.storage.journal import differences
from plmctl.text import segment
from plmctl.text.inputs import find_all
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import Recipe

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags
from plmctl.run.plugins import as_words


def run(cfg: DictConfig, *, flags: Flags) -> int:
    """Write `out` and say what is in it."""
    path = plain(cfg.data.path)
    if is_tokens(path):
        raise ConfigError(
            "data.path", path, "holds tokens already; give the text they were made from"
        )
    with progress(again(flags)) as say:
        made = job(cfg, path, say=say, processes=cfg.processes, plugins=flags.plugins)
        _refuse_others(made, Path(cfg.out).expanduser())
        manifest = tokenizing.tokenize(made, cfg.out)
    tell("\n".join(report(manifest, cfg.out)))
    return 0


def _refuse_others(made: Job, out: Path) -> None:
    """UsageError where `out` has sound tokens of another text, tokenizer or setting: like a run,
    they are not written over.
    """
    try:
        old = read_manifest(out)
    except DataError:
        return
    files = [entry for source in (made.source, made.valid) if source for entry in source.content()]
    given = Tokenizer.load(made.recipe.path).fingerprint if made.recipe.path else None
    known = old["tokenizer"]["fingerprint"] if given or "path" in old["tokenizer"] else None
    before = {"text": _hashes(old["files"]), "tokenizer": known, "settings": old["settings"]}
    now = {
        "text": _hashes(files),
        "tokenizer": given,
        "settings": json.loads(json.dumps(made.settings())),
    }
    if changed := differences(before, now):
        told = "; ".join(changed[:3])
        raise UsageError(
            f"out={out}: holds tokens already, and these would be others ({told})\n"
            "  fix: out=<new folder>"
        )


def _hashes(files: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each file holds, wherever it stands."""
    return [entry.get("sha256", entry["path"]) for entry in files]


def job(
    cfg: DictConfig,
    path: Any,
    *,
    say: Say = quiet,
    processes: int | None = None,
    plugins: tuple[str, ...] = (),
) -> Job:
    """The job that the `data` and `tokenizer` nodes describe."""
    data, path = plain(cfg.data), plain(path)
    recipe: Recipe = build(cfg.tokenizer, plugins=plugins, path="tokenizer")
    if data["segment"] is not None:
        segment.find(data["segment"], plugins)
    source, valid = sources(data, path)
    return Job(
        source,
        recipe,
        valid=valid,
        valid_share=data["valid_share"],
        segment=data["segment"],
        processes=processes,
        say=say,
        tell=remark,
    )


def sources(data: dict[str, Any], path: Any) -> tuple[Source, Source | None]:
    """The text at `path` and that of data.valid_path."""
    if data["target_path"] is not None and path != data["path"] and not is_tokens(path):
        fix = (
            f"plmctl tokenize data.path={path} data.target_path=... out=<dir>, and name that folder"
        )
        raise ConfigError(
            "data.target_path",
            data["target_path"],
            f"goes with data.path, not with {path}",
            fix=fix,
        )
    if data["valid_target_path"] is not None and data["valid_path"] is None:
        raise ConfigError(
            "data.valid_target_path",
            data["valid_target_path"],
            "goes with data.valid_path, which is not given",
        )
    # before work; the reader looks for data.path itself
    for name in ("target_path", "valid_path", "valid_target_path"):
        if data[name] is not None:
            find_all(data[name], f"data.{name}")
    marked = {name: tuple(map(str, data[name])) for name in ("spans", "tags", "fields")}
    source = Source(path, data["field"], data["lines"], target=data["target_path"], **marked)
    valid = None
    if data["valid_path"] is not None:
        valid = replace(source, path=data["valid_path"], target=data["valid_target_path"])
        if valid.pairs != source.pairs:
            if source.pairs:
                fix = "data.valid_target_path=<the translations of data.valid_path>"
                raise ConfigError(
                    "data.valid_target_path",
                    None,
                    "must be given too: data.path is parallel text",
                    fix=fix,
                )
            fix = "leave it out, or data.target_path=<the translations of data.path>"
            given = data["valid_target_path"]
            raise ConfigError(
                "data.valid_target_path", given, "data.path is not parallel text", fix=fix
            )
    return source, valid


def again(flags: Flags) -> str:
    """The command line that `flags` come from."""
    recipe = [flags.recipe] if flags.recipe else []
    folders = [word for folder in flags.config_dirs for word in ("--config-dir", folder)]
    return shlex.join(
        ["plmctl", flags.verb, *recipe, *flags.overrides, *folders, *as_words(flags.plugins)]
    )


def report(manifest: dict[str, Any], out: object) -> list[str]:
    """What was made, a line each."""
    kind = manifest["tokenizer"]
    lines = [
        f"{out}: {kind['kind']} tokenizer with {kind['size']:,} tokens ({kind['fingerprint'][:8]})"
    ]
    if sample := kind.get("trained_on"):
        lines.append(
            f"  the tokenizer has seen {sample['sentences']:,} sentences,"
            f" {sample['bytes'] / 1e6:,.1f} MB"
        )
    for name, split in manifest["splits"].items():
        if not split["tokens"]:
            lines.append(
                f"  {name}: nothing, too few documents to hold one out (data.valid_path=..."
                " gives some)"
            )
            continue
        ratio = split["bytes"] / max(1, split["tokens"])
        lines.append(
            f"  {name}: {split['documents']:,} documents, {split['sentences']:,} sentences,"
            f" {split['tokens']:,} tokens, {ratio:.2f} bytes a token"
        )
    lines += too_much_held_out(manifest)
    readings = sorted({entry["lines"] for entry in manifest["files"] if entry.get("found")})
    if readings:
        lines.append(f"  lines are read as: {', '.join(readings)} (data.lines=auto)")
    for name in manifest["spans"]:
        count = sum(
            split["arrays"][f"{name}.start"]["length"] for split in manifest["splits"].values()
        )
        lines.append(f"  spans of '{name}': {count:,}")
    lines += [
        f"  left out: {count:,} {what}" for what, count in manifest["left_out"].items() if count
    ]
    if manifest["dropped_from_train"]:
        lines.append(
            f"  {manifest['dropped_from_train']:,} documents are in data.valid_path too and were"
            " left out of train"
        )
    return lines


def too_much_held_out(manifest: Mapping[str, Any]) -> list[str]:
    """A line where whole documents are held out of so few that validation takes far more than
    the share asked for.
    """
    tokens = {name: split["tokens"] for name, split in manifest["splits"].items()}
    share, wanted = (
        tokens["valid"] / max(1, sum(tokens.values())),
        manifest["settings"]["valid_share"],
    )
    if not wanted or share < max(0.2, 2 * wanted):
        return []
    few = manifest["splits"]["train"]["documents"] + manifest["splits"]["valid"]["documents"]
    return [
        f"  {share:.0%} of the text is held out, for there are only {few:,} documents: put blank"
        " lines between documents, or give data.valid_path=..."
    ]


@contextmanager
def progress(command: str = "the same command") -> Iterator[Say]:
    """How far tokenizing is, and, where it is stopped, the command that goes on."""
    try:
        with shown() as say:
            yield say
    except KeyboardInterrupt:
        remark(f"tokenizing was stopped, its finished parts are kept. To go on:\n  {command}")
        raise


@contextmanager
def shown() -> Iterator[Say]:
    """A progress bar on a terminal; elsewhere a line now and then, and none for what takes a few
    seconds.
    """
    start, last = time.monotonic(), time.monotonic()
    began: dict[str, float] = {}

    def line(doing: str, done: int, total: int) -> str:
        seconds = time.monotonic() - began.setdefault(doing, time.monotonic())
        share = f" of {total / 1e6:,.1f}" if total else ""
        speed = f", {done / 1e6 / seconds:.1f} MB/s" if seconds > 0.5 else ""
        return f"{doing}: {done / 1e6:,.1f}{share} MB{speed}" if done else doing

    if not sys.stderr.isatty():

        def plainly(doing: str, done: int, total: int) -> None:
            nonlocal last
            text = line(doing, done, total)
            if time.monotonic() - last > 10:
                last = time.monotonic()
                remark(text)

        yield plainly
        return
    from rich.text import Text

    with screen(stderr=True).status("") as status:

        def shown(doing: str, done: int, total: int) -> None:
            status.update(
                Text(visible(f"{line(doing, done, total)}  {time.monotonic() - start:.0f} s"))
            )

        yield shown
