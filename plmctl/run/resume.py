"""`--resume`: the saved config of a run is what counts; what is given again is compared with it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import ConfigError, UsageError, raise_all
from plmctl.run.compose import Composed, Flags, composed
from plmctl.run.plugins import confirm, recorded
from plmctl.run.saved import read_saved
from plmctl.run.schema import LENGTHS, is_path
from plmctl.storage.reading import read_text

if TYPE_CHECKING:
    from omegaconf import DictConfig

LENGTH_KEYS = frozenset(f"train.{name}" for name in LENGTHS)
MAY_CHANGE = LENGTH_KEYS | {
    *(
        f"train.{name}"
        for name in (
            "eval_every",
            "save_every",
            "log_every",
            "device",
            "processes",
            "micro_batch_size",
            "checkpoint_activations",
        )
    ),
    *("run.dir", "run.name", "run.resume"),
}

# sums are added up in another order, so their last bits are others
ROUNDING = ("train.micro_batch_size", "train.device")


def resumed(flags: Flags) -> tuple[DictConfig, Flags]:
    """The config to go on with, and the flags with every allowed change noted as "key: old ->
    new".
    """
    from omegaconf import OmegaConf, open_dict

    folder = run_dir(flags)
    saved_file = folder / "config.yaml"
    settings = read_saved(saved_file) if saved_file.is_file() else None
    only_where = all(text.startswith("run.") for text in flags.overrides)
    if not settings:  # nothing was saved yet: the run starts at 0
        if only_where and not flags.recipe:
            raise UsageError(
                f"--resume: {folder} holds no config; its run was stopped before anything was"
                " saved\n  fix: the command that started it, without --resume"
            )
        cfg = _given(flags, flags.recipe, flags.overrides).cfg
        cfg.run.resume = True
        return cfg, dataclasses.replace(flags, resume=False)
    maker = "finetune" if "task" in settings else "pretrain"
    if maker != flags.verb:
        fix = f"plmctl {maker} --resume run.dir={shlex.quote(str(folder))}"
        raise UsageError(
            f"--resume: {folder} is a run of plmctl {maker}, not of plmctl {flags.command}\n"
            f"  fix: {fix}"
        )
    confirm(recorded(settings), flags.plugins, of=f"run.dir={folder}")
    saved = OmegaConf.create(settings)
    changes = [] if only_where else list(_differences(saved, flags, folder))
    raise_all(
        [
            ConfigError(
                key,
                new,
                f"the run was started with {old!r}; --resume keeps it",
                fix=f"leave out {key}, or start a new run.dir",
            )
            for key, old, new in changes
            if key not in MAY_CHANGE
        ]
    )
    with open_dict(saved):
        for key, _, new in changes:
            OmegaConf.update(saved, key, new)
        saved.run.dir, saved.run.resume = str(folder), True
    noted = tuple(
        f"{key}: {old} -> {new}" for key, old, new in changes if not key.startswith("run.")
    )
    return saved, dataclasses.replace(flags, changes=noted)


def unlike(checkpoint: Path, cfg: DictConfig) -> list[str]:
    """What of `cfg`, edited by hand since, makes other last bits than the config in the checkpoint:
    "key old -> new".

    UsageError for all that would make another run. Where the data lie may change: they are known by
    their content.
    """
    old, new = dict(leaves(read_saved(checkpoint / "config.yaml"))), _values(cfg)
    changed = {
        key: (old.get(key), new.get(key))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    }
    raise_all(
        [
            ConfigError(
                key,
                after,
                f"{checkpoint} was trained with {before!r}; --resume keeps it",
                fix=f"{key}: {before} in config.yaml of the run, or a new run.dir",
            )
            for key, (before, after) in changed.items()
            if key not in MAY_CHANGE
            and not key.startswith("run.")
            and not (key.startswith(("data.", "task.")) and is_path(key))
        ]
    )
    return [
        f"{key} {old.get(key)} -> {new.get(key)}"
        for key in ROUNDING
        if _rows(old, key) != _rows(new, key)
    ]


def _rows(values: Mapping[str, Any], key: str) -> Any:
    """The value of a setting; of micro-batches, the rows that null means."""
    if key != "train.micro_batch_size" or values.get(key) is not None:
        return values.get(key)
    return values["train.batch_size"] // values["train.processes"]


def run_dir(flags: Flags) -> Path:
    """The folder that --resume names; UsageError where there is none."""
    given = [text.partition("=")[2] for text in flags.overrides if text.startswith("run.dir=")]
    if not given:
        raise UsageError(
            f"--resume needs the run\n  fix: plmctl {flags.command} --resume"
            " run.dir=runs/<name>/<id>"
        )
    if not Path(given[-1]).expanduser().is_dir():
        raise UsageError(f"--resume: there is no folder {given[-1]}")
    return Path(given[-1]).expanduser()


def _differences(saved: Any, flags: Flags, folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """(key, old, new) for every setting that the words of this command line change, and that is not
    as saved.

    What they change shows by composing the words that started the run, with and without these after
    them.
    """
    recipe = flags.recipe or saved.get("recipe")
    first = _first_words(folder)
    keys = {_key(text) for text in flags.overrides}
    replaced = keys | (LENGTH_KEYS if keys & LENGTH_KEYS else set())  # one length clears the others
    kept = [text for text in first if _key(text) not in replaced]
    try:
        before = _values(_given(flags, recipe, first).cfg)
    except UsageError as error:
        fix = (
            "give run.dir alone; or go to the folder where the run was started, with the same"
            " --config-dir and --plugin"
        )
        raise UsageError(
            f"--resume reads the first words of the run again: {error}\n  fix: {fix}"
        ) from error
    after, old = _values(_given(flags, recipe, [*kept, *flags.overrides]).cfg), _values(saved)
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key) != old.get(key):
            yield key, old.get(key), after.get(key)


def _first_words(folder: Path) -> list[str]:
    """The settings on the command line that started the run; its recipe is in the config."""
    file = folder / "overrides.txt"
    words = read_text(file).splitlines() if file.is_file() else []
    return [word for word in words if "=" in word or word.startswith("~")]


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _given(flags: Flags, recipe: str | None, words: Sequence[str]) -> Composed:
    return composed(flags.verb, recipe, words, config_dirs=flags.config_dirs, plugins=flags.plugins)


def _values(cfg: DictConfig) -> dict[str, Any]:
    from omegaconf import OmegaConf

    return dict(leaves(OmegaConf.to_container(cfg, resolve=True)))


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in nested mappings that is no mapping, or an empty one."""
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node
