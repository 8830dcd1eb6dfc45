"""A command whose results are fingerprinted, and the small numbers with which all cases train."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

TRAIN = (
    *("train.precision=fp32", "train.threads=1", "train.batch_size=8"),
    *("train.log_every=1", "train.save_every=0"),
)
SIZE = ("size=tiny", "size.width=32", "size.inner_width=64", "size.num_heads=2")
LENGTH = ("format.max_length=64",)
VOCABULARY = ("tokenizer.vocab_size=400",)


@dataclass(frozen=True)
class Case:
    """A command whose results are fingerprinted.

    Args:
        name: also the folder that it writes, in the folder where all cases run.
        words: behind `plmctl`; the name of another case stands for the folder of that one.
        outputs: globs of files that it writes beside checkpoints and metrics.jsonl.
        prints: the name of a file that keeps what it prints, if that counts.
    """

    name: str
    words: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    prints: str | None = None

    def needs(self, names: Collection[str]) -> set[str]:
        """Those of `names` whose folders it reads."""
        values = {each for word in self.words for each in re.split(r"[=,\[\]]", word)}
        return values & set(names) - {self.name}

    @property
    def writes_files(self) -> bool:
        """Whether it writes single files, for which its folder has to be there."""
        return self.prints is not None or any(f"={self.name}/" in word for word in self.words)
