"""One labelled example, and the readers of files that give examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from plmctl.core.parts import base_of


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled (or unlabelled: label None) example as the files state it."""

    id: str
    # {"text": ..., "text2": ...} or {"words": [...]} or {"question": ..., "context": ...}
    fields: Mapping[str, Any]
    label: Any = None
    place: str = ""  # file:line, for error messages
    # examples with the same number stood in one document, in this order
    document: int | None = None
    slices: tuple[str, ...] = ()  # sets of examples that are also scored apart
    bundle: str = ""  # examples with the same one count together, as answers of one question
    shares: Mapping[str, float] | None = None  # the probability of each label, where it is stated

    @property
    def texts(self) -> list[str]:
        """The texts of its fields; words with spaces between them."""
        return [
            " ".join(_flatten(value)) if isinstance(value, list) else value
            for name, value in self.fields.items()
            if name != "answers"
        ]

    @property
    def is_labelled(self) -> bool:
        """Whether its file says what is right, or that no answer is."""
        return self.label is not None or "answers" in self.fields

    @property
    def unit(self) -> str:
        """Its bundle, or its texts: equal ones stay together where dev is held out of train."""
        return self.bundle or "\t".join(
            str(value) for name, value in self.fields.items() if name != "answers"
        )


Examples = Sequence[Example]
Arrays = Mapping[str, np.ndarray]  # the outputs of a model for a task, by name
Predictions = Sequence[Mapping[str, Any]]


@base_of("reader")
class Reader(Protocol):
    """A reader of the layout of a data set's files (`tables.Table`, `conll.Columns`,
    `squad.SquadFiles`).
    """

    splits: Mapping[str, Sequence[str]]  # split -> file name patterns, in order of preference
    skipped: dict[str, int]  # file -> examples left out

    def has(self, path: Any, split: str, columns: Mapping[str, Any] | None = None) -> bool:
        """Whether `task.path` has a file of that split."""
        ...

    def read(self, path: Any, split: str, columns: Mapping[str, Any]) -> list[Example]:
        """The examples of a split, labelled in train and dev; DataError if it has no file."""
        ...

    def read_file(
        self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True
    ) -> list[Example]:
        """The examples of one file; without `labelled`, labels may be absent."""
        ...


def cut(text: str, length: int) -> str:
    """`text`, or its beginning with dots behind it."""
    return text if len(text) <= length else f"{text[:length]}..."


def as_number(text: str) -> int | str:
    """A whole number where `text` is one."""
    return int(text) if text.isdecimal() else text


def _flatten(value: Any) -> list[str]:
    """The texts of nested lists, as of titles with their sentences, in their order."""
    if isinstance(value, list | tuple):
        return [text for each in value for text in _flatten(each)]
    return [value] if isinstance(value, str) else []
