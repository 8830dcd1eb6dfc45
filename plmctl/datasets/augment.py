"""A larger training set, with words replaced as TinyBERT does (Jiao et al., 2020, algorithm 1), as
a folder of files.

It has the files of the task unchanged, except for the training file. In this file, changed copies
with the same label or tags follow each example: `task.path=<folder>` trains on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.distill.augmentation import Augmenter, make_copies
from plmctl.storage.resumable import hash_file, write_folder
from plmctl.tasks.readers import files
from plmctl.tasks.sheet import Sheet
from plmctl.tasks.tagged_sheet import TaggedSheet
from plmctl.tasks.task import Task, as_task


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The training file of a task, and how its copies are made.

    Args:
        copies: The most copies of an example.
        rate: The share of the words of a copy that are replaced.
        tagged_words: Whether words with a tag other than O are replaced, too.
        how: Further facts that decide the copies (the model's identity, its candidates).
    """

    task: Task
    sheet: Sheet | TaggedSheet
    augmenter: Augmenter
    copies: int
    rate: float
    seed: int
    tagged_words: bool
    how: Mapping[str, Any]

    @property
    def examples(self) -> int:
        """The number of examples of the training file."""
        return sum(bool(self.sheet.texts(row)) for row in self.sheet.rows)

    @property
    def counted(self) -> dict[str, int]:
        """The numbers of words and examples written so far."""
        return self.augmenter.seen

    def write(self, out: Path) -> None:
        """Write the folder `out`, which appears when it is complete."""
        named, sheet = split_files(self.task), self.sheet
        name, file = named.pop("train")
        job = {
            "made by": "plmctl data augment",
            "train": hash_file(file),
            "copies": self.copies,
            "rate": self.rate,
            "seed": self.seed,
            "tagged_words": self.tagged_words,
            **self.how,
        }
        self.counted["examples"] = 0
        with write_folder(out, job, self.counted) as made:
            made.write_rows(name.removesuffix(".gz"), sheet.rows, self._copy, begin=sheet.head)
            for other, content in named.values():
                made.write(other, content)

    def _copy(self, rows: Sequence[Any], first: int) -> Iterator[str]:
        """Each of the rows, and its copies."""
        sheet = self.sheet
        texts = [
            (n, role, text) for n, row in enumerate(rows) for role, text in sheet.texts(row).items()
        ]
        stay = [
            [] if self.tagged_words else sheet.find_tagged(rows[n]).get(role, [])
            for n, role, _ in texts
        ]
        slots = self.augmenter([text for _, _, text in texts], stay)
        slots_of_rows: list[dict[str, Any]] = [{} for _ in rows]
        for (n, role, _), slots_of_text in zip(texts, slots, strict=True):
            slots_of_rows[n][role] = slots_of_text
        for n, row in enumerate(rows):
            draws = np.random.default_rng([self.seed, first + n])
            others = make_copies(
                sheet.texts(row), slots_of_rows[n], count=self.copies, rate=self.rate, draws=draws
            )
            self.counted["examples"] += bool(slots_of_rows[n]) + len(others)
            yield from (sheet.line(row), *(sheet.line(row, other) for other in others))


def choose_sheet(task: Any, name: object, *, tagged_words: bool) -> Sheet | TaggedSheet:
    """The training file of a task; ConfigError for a task without a table of texts or of tagged
    words.
    """
    sheet: Sheet | TaggedSheet | None = None
    if known := as_task(task):
        sheet = Sheet.of(known, "train") or TaggedSheet.of(known, "train")
    if tagged_words and isinstance(sheet, Sheet):
        raise ConfigError("tagged_words", True, "false: the words of this task have no tags")
    if sheet is None:
        allowed = (
            "only tasks of this kind are augmented: a class or a score for texts in columns of a"
            " table (classification, regression, GLUE's), or tags of words"
        )
        raise ConfigError("task", name, allowed)
    return sheet


def split_files(task: Task) -> dict[str, tuple[str, Path]]:
    """{split: (name of its file in the new folder, the file)}; the task finds these names."""
    single = files.is_single(task.splits.path)  # then the one file is every split
    by_split = {}
    for split, patterns in task.splits.reader.splits.items():
        if split == "train" or (not single and task.splits.has(split)):
            file = files.need(
                task.splits.path, split, patterns, folder=getattr(task.splits.reader, "folder", "")
            )
            own = isinstance(task.splits.path, str) and not single
            end = (
                "".join(Path(file.name).suffixes[-2:]) if file.name.endswith(".gz") else file.suffix
            )
            by_split[split] = (file.name if own else f"{split}{end}", file)
    return by_split
