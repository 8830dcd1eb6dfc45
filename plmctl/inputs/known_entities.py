"""Do the parts of a run read the entities that the ids of its tokens mean, and no more?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.config.build import slot_at
from plmctl.config.spec import all_parts_in
from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.spelling import spell_setting
from plmctl.data.shards import Shards, read_manifest
from plmctl.knowledge.directory import ENTITIES, take_fingerprint

SETTING = "knowledge"  # the key of a part for the directory whose entities it reads
MANY = 100_000  # entities of a table that is large
FURTHER = ".further."  # in the path of a base of knowledge that reads other marks than entities


def refuse_other_entities(knowing: Mapping[str, Any], folders: Iterable[Path]) -> None:
    """Raise ConfigError for each setting that names another knowledge directory than the tokens
    come from; tokens that come from none are of any.

    Args:
        knowing: {slot: nodes} of the parts that may read entities.
    """
    stated = [read_manifest(folder).get("knowledge") for folder in folders]
    known = {each["fingerprint"]: each["path"] for each in stated if each}
    if not known:
        return
    errors = []
    for slot, nodes in knowing.items():
        for setting, given in _find(nodes, slot):
            folder = Path(given).expanduser()
            if (folder / ENTITIES).is_file() and take_fingerprint(folder) not in known:
                path = next(iter(known.values()))
                allowed = f"the ids of these tokens mean entities of {path}, not of this directory"
                fix = f"{spell_setting(setting, path)}, or tokenize {folder}/text.jsonl"
                errors.append(ConfigError(setting, given, allowed, fix=fix))
    raise_all(errors)


def refuse_spare_entities(model: Any, corpora: Iterable[Shards]) -> None:
    """Raise ConfigError for a large table of more entities than there are.

    Args:
        model: its node.
        corpora: its tokens.
    """
    shards = [each for each in corpora if "entity" in each.spans]
    nodes = [
        (path, node)
        for path, node in all_parts_in(model, "model")
        if slot_at(path) == "entities" and FURTHER not in path
        if node.get("count", 0) > MANY and not node.get("path")
    ]
    if not (shards and nodes):
        return
    there = max(_count_entities(each) for each in shards)
    raise_all(
        ConfigError(
            f"{path}.count",
            node["count"],
            f"at most {there:,}, the entities that the marks of the text may mean",
            fix=f"{path}.count={there}",
        )
        for path, node in nodes
        if node["count"] > there
    )


def _count_entities(shards: Shards) -> int:
    """The entities of the knowledge directory of tokens, or up to the last one that is marked."""
    file = Path((shards.manifest.get("knowledge") or {}).get("path", "")) / ENTITIES
    if file.is_file():
        with file.open("rb") as lines:
            return sum(1 for _ in lines)
    return 1 + int(np.max(shards.spans["entity"].id, initial=-1))


def _find(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """(config path, value) of every `knowledge` that names a directory."""
    for key, value in node.items() if isinstance(node, Mapping) else ():
        if key == SETTING and isinstance(value, str):
            yield f"{path}.{key}", value
        elif FURTHER not in f"{path}.{key}.":
            yield from _find(value, f"{path}.{key}")
