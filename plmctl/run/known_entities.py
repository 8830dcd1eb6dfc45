"""Do the parts of a run read the entities that the ids of its tokens mean?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, raise_all
from plmctl.data.shards import read_manifest
from plmctl.knowledge.directory import ENTITIES, take_fingerprint
from plmctl.run.build import plain

SETTING = "knowledge"  # what a part calls the directory whose entities it reads
_SLOTS = ("model", "noise", "objective", "heads")


def refuse_other_entities(spec: Any, folders: Iterable[Path]) -> None:
    """Raise ConfigError for each setting that names another knowledge directory than the tokens
    come from; tokens that come from none are of any.

    Args:
        spec: of a pretraining.
        folders: token directories.
    """
    stated = [read_manifest(folder).get("knowledge") for folder in folders]
    known = {each["fingerprint"]: each["path"] for each in stated if each}
    if not known:
        return
    errors = []
    for slot in _SLOTS:
        for setting, given in _find(plain(spec.get(slot)), slot):
            folder = Path(given).expanduser()
            if (folder / ENTITIES).is_file() and take_fingerprint(folder) not in known:
                path = next(iter(known.values()))
                allowed = f"the ids of these tokens mean entities of {path}, not of this directory"
                fix = f"{setting}={path}, or tokenize {folder}/text.jsonl"
                errors.append(ConfigError(setting, given, allowed, fix=fix))
    raise_all(errors)


def _find(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """(config path, value) of every `knowledge` that names a directory."""
    for key, value in node.items() if isinstance(node, Mapping) else ():
        if key == SETTING and isinstance(value, str):
            yield f"{path}.{key}", value
        else:
            yield from _find(value, f"{path}.{key}")
