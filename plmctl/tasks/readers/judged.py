"""Questions with candidates that people have judged: JSON lines of `query`, `candidates` and
`labels`, or of `query`, `positive` and `negative` (MTEB, Muennighoff et al., 2022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.values import fit
from plmctl.text.tabular import OBJECTS, kind_of, objects_of

SHOWN = '{"query": "...", "candidates": ["...", "..."], "labels": [1, 0]}'


class JudgedQuery(NamedTuple):
    """A question, its candidates and their grades; a grade above 0 is right."""

    id: str
    query: str
    texts: list[str]
    grades: list[int]
    place: str

    @property
    def mixed(self) -> bool:
        """Whether some candidates are right and some are not."""
        return len({grade > 0 for grade in self.grades}) == 2


class _Candidates(TypedDict):
    query: str
    candidates: list[str]
    labels: list[int]
    id: NotRequired[str | int]


class _Sides(TypedDict):
    query: str
    positive: list[str]
    negative: list[str]
    id: NotRequired[str | int]


def has_candidates(file: Path) -> bool:
    """Whether the first line has `candidates` with `labels`."""
    if kind_of(file) not in OBJECTS:
        return False
    _, first = next(iter(objects_of(file)), (0, {}))
    return {"candidates", "labels"} <= set(first)


def read_judged(file: Path) -> Iterator[JudgedQuery]:
    """The questions of a file; DataError naming the first line that is none."""
    for number, (line, value) in enumerate(objects_of(file)):
        try:
            query, texts, grades = _read(value)
        except ValueError as error:
            raise DataError(str(error), file=file, line=line, fix=SHOWN) from error
        yield JudgedQuery(str(value.get("id", number)), query, texts, grades, f"{file}:{line}")


def _read(value: Mapping[str, Any]) -> tuple[str, list[str], list[int]]:
    if "candidates" not in value:
        sides: _Sides = fit(value, _Sides)
        right, wrong = sides["positive"], sides["negative"]
        return sides["query"], [*right, *wrong], [1] * len(right) + [0] * len(wrong)
    row: _Candidates = fit(value, _Candidates)
    texts, grades = row["candidates"], row["labels"]
    if len(texts) != len(grades):
        raise ValueError(f"{len(texts)} candidates and {len(grades)} labels")
    return row["query"], texts, grades
