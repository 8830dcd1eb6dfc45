"""What Hydra leaves to us once a config is composed: one length, no leftovers of replaced parts,
types, signatures.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.core.locate import locate, parameters
from plmctl.core.values import takes_mapping
from plmctl.run import schema
from plmctl.run.build import check, plain
from plmctl.run.overrides import OverrideWord
from plmctl.run.recipes import conf_dir, load
from plmctl.run.run_name import wrong_name
from plmctl.run.saved import reference_in
from plmctl.run.spec import Part, Provenance, RunSpec

if TYPE_CHECKING:
    from omegaconf import DictConfig


def finish(
    cfg: DictConfig, words: Sequence[OverrideWord], provenance: Provenance
) -> tuple[RunSpec | None, list[UsageError]]:
    """The spec of what Hydra composed, and every problem in it: one length, no leftovers, types,
    signatures.

    Args:
        cfg: As Hydra made it; it is changed.
        words: The overrides as Hydra was told them.
        provenance: Its `recipe` names the run, where nothing else does.
    """
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    with open_dict(cfg):
        cfg.pop("hydra", None)
        errors: list[UsageError] = [*_misshapen(cfg), *_one_length(cfg, words)]
        plugins, recipe = provenance.plugins, provenance.recipe
        removed = _drop_leftovers(cfg, plugins) + _drop_foreign(cfg, words, plugins)
        try:
            content = {str(key): value for key, value in plain(cfg).items()}
        except OmegaConfBaseException as error:
            return None, [*errors, _unresolved(cfg, error, words)]
        for path in _paths_of(content):
            OmegaConf.update(cfg, path, _home(OmegaConf.select(cfg, path)))
        if "recipe" in cfg and recipe:
            cfg.recipe = recipe
        run = cfg.get("run")
        if run is not None and run.name is None and recipe:
            run.name = Path(recipe).stem
        if run is not None and run.name is not None:
            errors += wrong_name(run.name)
    errors += [
        ConfigError(path, text, "a text without ${...}: what a run saves is worked out already")
        for path, text in reference_in(content)
    ]
    written = Part(cast(Mapping[str, Any], OmegaConf.to_container(cfg)))
    known = replace(provenance, removed=tuple(removed), written=written)
    spec, misfits = schema.make(provenance.verb, plain(cfg), known)
    return spec, [*errors, *misfits, *_size_keys(content), *check_parts(content, plugins)]


def _unresolved(cfg: DictConfig, error: Exception, words: Sequence[OverrideWord]) -> ConfigError:
    """A setting that refers to another one, which the part chosen there does not have."""
    from omegaconf import OmegaConf

    where, reason = getattr(error, "full_key", None) or "config", str(error).splitlines()[0]
    missing = re.search(r"Interpolation key '(.+?)' not found", reason)
    if missing is None:
        return ConfigError(where, "${...}", reason)
    slot, _, name = missing[1].rpartition(".")
    chosen = next(
        (word.sample for word in words if word.group and word.key == slot),
        f"this {slot}" if slot else "the config",
    )
    raw = OmegaConf.to_container(cfg)
    for key in where.split("."):
        # the item of a list: not shown
        raw = raw.get(key, "${...}") if isinstance(raw, Mapping) else "${...}"
    fix = f"{where}=<a value>" + (f", or leave out {chosen}" if "=" in chosen else "")
    return ConfigError(where, raw, f"refers to {missing[1]}, and {chosen} has no {name}", fix=fix)


def check_parts(
    content: Mapping[str, Any], plugins: Sequence[str] = (), path: str = ""
) -> list[UsageError]:
    """The signatures of every part in a config, at any depth; what only building can know is not
    asked for.
    """
    errors: list[UsageError] = []
    for key, value in content.items():
        where = f"{path}{key}"
        if isinstance(value, Mapping) and "_target_" in value:
            # these belong to the mix, see build.entry
            mixed = ("weight", "on") if path == "objective." else ()
            errors += check(
                {name: item for name, item in value.items() if name not in mixed},
                None,
                plugins,
                path=where,
            )
        elif isinstance(value, Mapping):
            errors += check_parts(value, plugins, f"{where}.")
    return errors


def _misshapen(cfg: DictConfig) -> list[ConfigError]:
    """Slots with a list or a text where parts belong; they are emptied, so that everything else
    is still looked at.
    """
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    errors = []
    for slot in (*schema.MANY, *schema.ONE):
        try:
            found = OmegaConf.select(cfg, slot)
        # a reference to nothing, or a value where a group should be: said with its own reason
        except OmegaConfBaseException:
            continue
        if found and not isinstance(found, DictConfig):
            allowed = (
                "is a group of settings"
                if slot in schema.ONE
                else "is a group of parts, each under its name"
            )
            errors.append(ConfigError(slot, plain(found), allowed))
            OmegaConf.update(cfg, slot, None)
    return errors


def _one_length(cfg: DictConfig, words: Sequence[OverrideWord]) -> list[ConfigError]:
    """Exactly one of train.steps|tokens|epochs|minutes: one given on the command line clears the
    recipe's.
    """
    if not isinstance(cfg.get("train"), Mapping):
        return []
    given = [
        name
        for name in schema.LENGTHS
        if any(word.key == f"train.{name}" for word in words) and cfg.train[name] is not None
    ]
    for name in schema.LENGTHS:
        if given and name not in given:
            cfg.train[name] = None
    chosen = [name for name in schema.LENGTHS if cfg.train.get(name) is not None]
    if len(chosen) == 1:
        return []
    fix = "train.steps=1000" if not chosen else f"leave out train.{chosen[-1]}"
    found = (
        f"there are {' and '.join(f'train.{name}' for name in chosen)}"
        if chosen
        else "there is none"
    )
    return [
        ConfigError(
            "train", ..., f"exactly one of {', '.join(schema.LENGTHS)} is set; {found}", fix=fix
        )
    ]


def _drop_leftovers(cfg: DictConfig, plugins: Sequence[str] = ()) -> list[str]:
    """Settings of a part that nobody chose (its mapping has no `_target_`): a recipe's numbers
    for a slot that was replaced.
    """
    from omegaconf import DictConfig, OmegaConf

    removed = []
    for slot in schema.MANY:
        parts = OmegaConf.select(cfg, slot)
        for name in list(parts or ()):
            if not (isinstance(parts[name], DictConfig) and "_target_" in parts[name]):
                removed += _settings(f"{slot}.{name}", parts.pop(name))
    for slot in schema.ONE:
        if isinstance(cfg.get(slot), DictConfig) and "_target_" not in cfg[slot]:
            removed += _settings(slot, cfg[slot])
            cfg[slot] = None
        for path, value in _inner(
            OmegaConf.to_container(cfg[slot]) if cfg.get(slot) else None, plugins, slot
        ):
            removed += _settings(path, value)
            OmegaConf.update(cfg, path, None)
    return removed


def _inner(node: Any, plugins: Sequence[str], path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of the same inside of a part: `eps` for the norm of an embedding that has
    none.
    """
    if not (isinstance(node, Mapping) and "_target_" in node):
        return
    try:
        wanted = parameters(locate(node["_target_"], plugins))
    except ValueError:
        return  # check_parts reports it
    for key, child in node.items():
        if (
            not isinstance(child, Mapping)
            or "_target_" in child
            or key not in wanted
            or takes_mapping(wanted[key].annotation)
        ):
            yield from _inner(child, plugins, f"{path}.{key}")
        else:
            yield f"{path}.{key}", child


def _drop_foreign(
    cfg: DictConfig, words: Sequence[OverrideWord], plugins: Sequence[str]
) -> list[str]:
    """A recipe's numbers for another part of a slot than the command line chose (`betas`, after
    `optim=muon`).
    """
    removed = []
    named = {word.key for word in words}
    for slot in (
        word.key for word in words if word.group and word.key in (*schema.ONE, "tokenizer")
    ):
        node = cfg.get(slot)
        try:
            known = (
                set(parameters(locate(node["_target_"], plugins)))
                if node and "_target_" in node
                else set()
            )
        except ValueError:
            continue  # check_parts reports it
        for key in [key for key in node or () if key not in known and not str(key).startswith("_")]:
            if f"{slot}.{key}" not in named:
                removed += _settings(f"{slot}.{key}", node.pop(key))
    return removed


def _settings(path: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, item in value.items() for line in _settings(f"{path}.{key}", item)]
    return [f"{path}={value}"]


def _size_keys(content: Mapping[str, Any]) -> list[ConfigError]:
    """`size` is numbers without a signature: the shipped sizes say which there are."""
    given = content.get("size")
    if not isinstance(given, Mapping):
        return []
    known = _shipped_sizes()
    return [
        ConfigError(f"size.{key}", value, f"no such number{nearest(key, known)}")
        for key, value in given.items()
        if known - {key} == known
    ]


@functools.cache
def _shipped_sizes() -> set[str]:
    return {str(key) for file in (conf_dir() / "size").glob("*.yaml") for key in load(file)}


def _paths_of(content: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _paths_of(value, f"{prefix}{key}.")
        elif isinstance(value, str) and value.startswith("~") and schema.is_path(f"{prefix}{key}"):
            yield f"{prefix}{key}"


def _home(path: str) -> str:
    """`~` as the home folder, unless a file of that very name is here."""
    return path if os.path.exists(path) else os.path.expanduser(path)
