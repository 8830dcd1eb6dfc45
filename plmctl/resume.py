"""`--resume`: the saved config of a run is what counts; what is given again is compared with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plmctl.config import Composed, Flags, composed
from plmctl.errors import ConfigError, UsageError, raise_all
from plmctl.recipes import load
from plmctl.schema import LENGTHS

if TYPE_CHECKING:
    from omegaconf import DictConfig

LENGTH_KEYS = frozenset(f"train.{name}" for name in LENGTHS)
MAY_CHANGE = LENGTH_KEYS | {
    *(f"train.{name}" for name in ("eval_every", "save_every", "log_every", "device", "processes", "micro_batch_size")),
    *("run.dir", "run.name", "run.resume"),
}


def resumed(flags: Flags) -> tuple[DictConfig, Flags]:
    """The config to go on with, and the flags with every allowed change noted as "key: old -> new"."""
    from omegaconf import OmegaConf, open_dict

    folder = _run_dir(flags)
    saved_file = folder / "config.yaml"
    if not saved_file.is_file():  # nothing was saved yet: the run starts at 0
        cfg = _given(flags, flags.recipe).cfg
        cfg.run.resume = True
        return cfg, flags
    saved = load(saved_file)
    only_where = all(text.startswith("run.") for text in flags.overrides)
    changes = [] if only_where else list(_differences(saved, _again(flags, saved.get("recipe"))))
    raise_all(
        [
            ConfigError(
                key, new, f"the run was started with {old!r}; --resume keeps it", fix=f"leave out {key}, or start a new run.dir"
            )
            for key, old, new in changes
            if key not in MAY_CHANGE
        ]
    )
    with open_dict(saved):
        for key, _, new in changes:
            OmegaConf.update(saved, key, new)
        saved.run.dir, saved.run.resume = str(folder), True
    noted = tuple(f"{key}: {old} -> {new}" for key, old, new in changes if not key.startswith("run."))
    return saved, dataclasses.replace(flags, changes=noted)


def _run_dir(flags: Flags) -> Path:
    given = [text.partition("=")[2] for text in flags.overrides if text.startswith("run.dir=")]
    if not given:
        raise UsageError("--resume needs the run\n  fix: plmctl pretrain --resume run.dir=runs/<name>/<id>")
    if not Path(given[-1]).expanduser().is_dir():
        raise UsageError(f"--resume: there is no folder {given[-1]}")
    return Path(given[-1]).expanduser()


def _again(flags: Flags, recipe: str | None) -> Composed:
    """What the words of this command line mean in the recipe of the run, or without it where its file is gone."""
    try:
        return _given(flags, flags.recipe or recipe)
    except UsageError:
        return _given(flags, None)


def _given(flags: Flags, recipe: str | None) -> Composed:
    return composed(flags.verb, recipe, flags.overrides, config_dirs=flags.config_dirs, plugins=flags.plugins)


def _differences(saved: Any, given: Composed) -> Iterator[tuple[str, Any, Any]]:
    """(key, old, new) for every setting that a word on this command line touches and that is not as saved."""
    from omegaconf import OmegaConf

    old, new = (dict(_leaves(OmegaConf.to_container(cfg, resolve=True))) for cfg in (saved, given.cfg))
    touched = {word.key for word in given.words}
    if touched & LENGTH_KEYS:
        touched |= LENGTH_KEYS  # one length clears the others
    for key in dict.fromkeys([*old, *new]):
        if any(key == word or key.startswith(f"{word}.") for word in touched) and old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node
