"""The glossary of the repository: the fields of every part that conf/ and the user's own config
folders name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.config.part_help import targets
from plmctl.config.recipes import conf_dir
from plmctl.config.walks import targets_in
from plmctl.core.errors import UsageError
from plmctl.core.fields import COMMON, Field, fields_of, glossary
from plmctl.core.locate import locate


def known_fields(
    config_dirs: Sequence[str] = (), plugins: Sequence[str] = ()
) -> dict[str, tuple[Field, list[str]]]:
    """{name: (field, the parts that introduce it)}, first the fields of all parts.

    A field that a part introduces is stated by its class, so that no part is built for this.
    """
    known: dict[str, tuple[Field, list[str]]] = {
        name: (field, []) for name, field in COMMON.items()
    }
    for setting, part in _parts(config_dirs, plugins):
        for name, field in fields_of(part).items():
            settings = known.setdefault(name, (field, []))[1]
            settings += [setting] if name not in COMMON and setting not in settings else []
    return known


def fields_in(known: Mapping[str, tuple[Field, Sequence[str]]]) -> dict[str, Field]:
    """The fields alone."""
    return {name: field for name, (field, _) in known.items()}


def token_targets(config: Mapping[str, Any], plugins: Sequence[str] = ()) -> frozenset[str]:
    """The names of the targets whose labels are ids of tokens, by the parts of a run.

    Args:
        config: plain values.
    """
    nodes = [config.get(name) for name in ("format", "noise", "objective", "data", "eval")]
    known = glossary(locate(target, plugins) for target in targets_in(nodes))
    return frozenset(
        name.removeprefix("targets.")
        for name, field in known.items()
        if field.tokens and name.startswith("targets.")
    )


def _parts(config_dirs: Sequence[str], plugins: Sequence[str]) -> Iterator[tuple[str, object]]:
    """(setting, class) of every part of every slot; parts of plug-ins that are not named, or cannot
    be imported, are passed over.
    """
    for folder in [conf_dir(), *map(Path, config_dirs)]:
        for file in sorted(folder.glob("*/**/*.yaml")):
            slot = file.relative_to(folder).parts[0]
            for target in targets(file):
                try:
                    part = locate(target, plugins)
                except (UsageError, ValueError):
                    continue
                yield f"{slot}={file.stem}", part
