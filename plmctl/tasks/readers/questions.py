"""Texts with questions that they answer, for models that write questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.parts import part_of
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.pairs import Pairs
from plmctl.tasks.readers.squad import MISPLACED, SquadFiles
from plmctl.tasks.record import Example
from plmctl.text import sentences
from plmctl.text.tabular import kind_of

CONTEXTS = ("sentence", "paragraph")


@part_of("reader")
class QuestionFiles(Pairs):
    """SQuAD's files, whose questions are the targets; `src-train.txt` with `tgt-train.txt` (Du et
    al., 2017, arXiv:1705.00106); or any other layout, as `Pairs` reads it.

    For SQuAD the source is the sentence with the answer, or the whole paragraph, where `mark`
    stands before and behind the answer ("" marks nothing). Questions without an answer, or whose
    answer does not stand where the file says, are left out and counted.
    """

    leaves = "no answer in the text"

    also: ClassVar[Sequence[tuple[str, str]]] = (("src", "tgt"),)

    def __init__(
        self, *, splits: Mapping[str, Sequence[str]], context: str, mark: str, lenient: bool = False
    ) -> None:
        super().__init__(splits=splits, lenient=lenient)
        if context not in CONTEXTS:
            allowed = f"one of {', '.join(CONTEXTS)}{nearest(context, CONTEXTS)}"
            raise ConfigError("context", context, allowed, fix=f"context={CONTEXTS[0]}")
        self.context, self.mark = context, mark.strip()

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        if kind_of(file) != ".json" or '"data"' not in files.read_text(file)[: 1 << 20]:
            return super().read_file(file, columns, header=header, labelled=labelled)
        asked = SquadFiles(splits=self.splits).read_file(file, {})
        usable = [each for each in asked if each.label not in (None, MISPLACED)]
        self.skipped[str(file)] = len(asked) - len(usable)
        if not usable:
            raise DataError("no question has an answer in its text", file=file)
        return [
            Example(
                each.id,
                {"source": self._mark(each.fields["context"], *each.label)},
                (" ".join(each.fields["question"].split()),),
                each.place,
            )
            for each in usable
        ]

    def _mark(self, context: str, start: int, end: int) -> str:
        """The part of `context` that is read, with its characters from `start` to `end` marked."""
        low, high = 0, len(context)
        if self.context == "sentence":
            low, high = _surround(context, start, end)
        around = f" {self.mark} " if self.mark else ""
        parts = (context[low:start], context[start:end], context[end:high])
        return " ".join(around.join(parts).split())

    def _locate(self, path: Any, split: str, columns: Columns) -> list[Path]:
        folder = Path(path).expanduser() if isinstance(path, str | Path) else None
        if folder is not None and folder.is_dir():
            for name in self.splits.get(split, []):
                pair = [_find(folder, f"{side}-{name}.txt") for side in ("src", "tgt")]
                if pair[0] and pair[1]:
                    return [pair[0], pair[1]]
        return super()._locate(path, split, columns)


def _surround(context: str, start: int, end: int) -> tuple[int, int]:
    """(first character, last character + 1) of the sentences in which `start` to `end` lies."""
    low, at = 0, 0
    for piece in sentences.pieces(context):
        if at <= start:
            low = at
        at += len(piece)
        if at >= end:
            return low, at
    return low, len(context)


def _find(folder: Path, name: str) -> Path | None:
    found = [folder / each for each in (name, f"{name}.gz") if (folder / each).is_file()]
    return found[0] if found else None
