"""The rows to which a part of a decision was fitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plmctl.core.errors import list_some
from plmctl.core.terminal import counted
from plmctl.tasks.record import Examples
from plmctl.tasks.trained_texts import hash_texts

SAMPLE = 64  # hashes of texts that are kept: enough to know the rows again


@dataclass(frozen=True)
class FittedRows:
    """Labelled rows.

    Args:
        split: The name of the split.
        rows: The number of rows; 0: an earlier version has not kept it.
        files: The names of their files.
        sample: The least hashes of their texts, which are a sample of the texts: hexadecimal, with
            spaces between them.
    """

    split: str
    rows: int = 0
    files: tuple[str, ...] = ()
    sample: str = ""

    @classmethod
    def of(cls, split: str, examples: Examples) -> FittedRows:
        """The origin of a split."""
        files = {Path(example.place.rpartition(":")[0]).name for example in examples} - {""}
        least = np.unique(hash_texts(examples))[:SAMPLE]
        sample = " ".join(f"{each:016x}" for each in least.tolist())
        return cls(split, len(examples), tuple(sorted(files)), sample)

    def describe(self) -> str:
        """`dev (130 rows of dev.csv)`."""
        if not self.rows:
            return self.split
        of = f" of {list_some(self.files, 3)}" if self.files else ""
        return f"{self.split} ({counted(self.rows, 'row')}{of})"

    def has_name(self, split: str, rows: int) -> bool:
        """Whether a split has its name, and as many rows."""
        return self.split == split and self.rows in (0, rows)

    def covers(self, split: str, examples: Examples) -> bool:
        """Whether at least half of these rows, or of its own, are in both; without a sample:
        whether the splits have one name.

        The share of the sample that is in `examples` estimates the share of all its rows.
        """
        if not self.sample:
            return self.has_name(split, len(examples))
        known = np.array([int(each, 16) for each in self.sample.split()], dtype=np.uint64)
        common = self.rows * float(np.isin(known, hash_texts(examples)).mean())
        return 2 * common >= min(self.rows, len(examples))


def join_origins(origins: Iterable[FittedRows]) -> str:
    """Their descriptions, each once: `dev and test`."""
    return " and ".join(dict.fromkeys(each.describe() for each in origins))
