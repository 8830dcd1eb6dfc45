"""A vectors directory: what `plmctl graph` writes, and systems with knowledge read.

entities.txt, relations.txt   one name a line; line n (from 0) belongs to row n
vectors.safetensors           entity [E, d], relation [R, e], and inverse_relation [R, e] where
                              a relation that is asked for its head has a vector of its own
graph.json                    score, settings, metrics
valid.tsv                     head, relation and tail of the triples that were held out of the
                              training file, where it had no valid beside it
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from plmctl.core.errors import AbsentData, DataError
from plmctl.storage.atomic import open_folder, write_text
from plmctl.storage.durable import sync
from plmctl.storage.gate import admit
from plmctl.storage.reading import blame_file, read_json, read_text

TABLE, RECORD, HELD_OUT = "vectors.safetensors", "graph.json", "valid.tsv"
VECTORS = "vectors"  # folder in a run
AGAIN = "write it again: plmctl graph"
Control = Literal["none", "shuffled", "random"]


@dataclass(frozen=True)
class GraphVectors:
    """The vectors of a graph, with the names of their rows.

    Args:
        entity: float32 [E, d].
        relation: float32 [R, e]; e is d, or half of it (angles).
        inverse: The vectors of inverse relations, float32 [R, e], for questions about heads; None:
            `relation` serves both.
        record: The content of graph.json.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    entity: np.ndarray
    relation: np.ndarray
    inverse: np.ndarray | None = None
    record: Mapping[str, Any] = field(default_factory=dict)

    def controlled(self, control: Control, seed: int) -> GraphVectors:
        """These vectors, or the vectors that replace them in a control.

        Args:
            control: "shuffled" gives each entity the vector of another, by one permutation;
                "random" draws each number from a normal distribution with the mean and the spread
                of its column. Names and relations stay as they are.
            seed: The seed of the permutation, or of the draws.
        """
        generator = np.random.default_rng(seed)
        if control == "none":
            return self
        if control == "shuffled":
            return replace(self, entity=self.entity[generator.permutation(len(self.entity))])
        drawn = generator.standard_normal(self.entity.shape, np.float32)
        return replace(self, entity=drawn * self.entity.std(0) + self.entity.mean(0))

    def write(self, folder: Path, *, held_out: str = "") -> None:
        """Write the directory; an earlier one stays until this one is complete.

        Args:
            held_out: lines of valid.tsv; none: there is no such file.
        """
        from safetensors.numpy import save_file

        with open_folder(folder, overwrite=True) as partial:
            for name, lines in (("entities", self.entities), ("relations", self.relations)):
                text = "".join(f"{line}\n" for line in lines)
                write_text(partial / f"{name}.txt", text)
            tensors = {"entity": self.entity, "relation": self.relation}
            if self.inverse is not None:
                tensors["inverse_relation"] = self.inverse
            arrays = {k: np.ascontiguousarray(v) for k, v in tensors.items()}
            save_file(arrays, admit(partial / TABLE))
            text = json.dumps(dict(self.record), indent=1, ensure_ascii=False) + "\n"
            write_text(partial / RECORD, text)
            if held_out:
                write_text(partial / HELD_OUT, held_out)
            for file in partial.iterdir():
                sync(file)


def is_vectors(folder: Path) -> bool:
    """Whether a folder is a vectors directory."""
    return (folder / TABLE).is_file() and (folder / RECORD).is_file()


def find_vectors(path: str | Path) -> Path | None:
    """The vectors directory at the path, or in a run of plmctl graph; None: none."""
    folder = Path(path).expanduser()
    return next((place for place in (folder, folder / VECTORS) if is_vectors(place)), None)


def confirm_vectors(path: str | Path | None) -> None:
    """Raise AbsentData for a path without the vectors of a graph; None names none."""
    if path is not None and not find_vectors(path):
        what = f"no vectors of a graph here: there is no {TABLE} with {RECORD}"
        fix = "plmctl graph data.path=<a graph>, and its run, or vectors/ in it"
        raise AbsentData(what, file=path, fix=fix)


def read_vectors(folder: Path, control: Control = "none", seed: int = 0) -> GraphVectors:
    """Read a vectors directory, or that of a run of plmctl graph, or a control that replaces it
    (`GraphVectors.controlled`).

    Raises:
        DataError: It is missing, or its files do not belong together.
    """
    confirm_vectors(folder)
    folder = find_vectors(folder) or folder
    record = read_json(folder / RECORD, dict[str, Any], fix=AGAIN)
    entities, relations = (
        tuple(read_text(folder / f"{name}.txt", fix=AGAIN).removesuffix("\n").split("\n"))
        for name in ("entities", "relations")
    )
    tensors = _read_tables(folder / TABLE)
    inverse = tensors.get("inverse_relation")
    read = GraphVectors(
        entities, relations, tensors["entity"], tensors["relation"], inverse, record
    )
    for name, names, table in (
        ("entities", entities, read.entity),
        ("relations", relations, read.relation),
        ("relations", relations, read.relation if inverse is None else inverse),
    ):
        if len(table) != len(names):
            what = f"{len(names):,} names for {len(table):,} vectors"
            raise DataError(what, file=folder / f"{name}.txt", fix=AGAIN)
    return read.controlled(control, seed)


def _read_tables(file: Path) -> dict[str, np.ndarray]:
    """float32 tables by name, each finite and of two dimensions."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    with blame_file(file, "truncated or not a weight file", fix=AGAIN):
        try:
            tensors = load_file(file)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    missing = {"entity", "relation"} - tensors.keys()
    if missing:
        raise DataError(f"there is no tensor {sorted(missing)[0]!r}", file=file, fix=AGAIN)
    for name, table in tensors.items():
        if table.ndim != 2 or not np.isfinite(table).all():
            what = f"{name}: {list(table.shape)}, must be two dimensions of finite numbers"
            raise DataError(what, file=file, fix=AGAIN)
    return {name: table.astype(np.float32) for name, table in tensors.items()}


def match_names(wanted: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """int64 [len(wanted)] the row of each wanted name; -1 for a name without one."""
    place = {name: row for row, name in enumerate(names)}
    return np.array([place.get(name, -1) for name in wanted], np.int64)
