"""The table of words that rare-word models read and write: `words.tsv`, a word and its count in a
line. By default the most frequent comes first; ids are numbers of its lines, from 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from plmctl.core.errors import DataError
from plmctl.storage.atomic import open_atomic
from plmctl.text.inputs import read_lines
from plmctl.text.letters import JOINTS, compose, word_pattern

FILE = "words.tsv"
# how the form of a word enters what a model reads of its contexts (BERTRAM)
Mode = Literal["form", "context", "shallow", "replace", "add", "add_quotes"]
MODES: tuple[Mode, ...] = get_args(Mode)
# where the vector of the form goes, in modes in which it is not the mask
SLOTS: Mapping[str, int] = {"add": 1, "add_quotes": 2}


@dataclass(frozen=True)
class WordCounts:
    """Words with their counts in the corpus of their contexts.

    Args:
        spellings: The spelling of each word, by its id.
        counts: The counts of the same words.
    """

    spellings: tuple[str, ...]
    counts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.spellings)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each word."""
        return {word: number for number, word in enumerate(self.spellings)}

    @classmethod
    def read(cls, place: Path | str) -> WordCounts:
        """Read a table, or that of a folder of `plmctl data contexts`.

        Raises:
            DataError: naming the first line that is no word with its count.
        """
        file = find_table(place)
        spellings, counts = [], []
        for number, line in read_lines(file, cut=False):
            word, tab, count = line.partition("\t")
            if not word or not tab or not count.isdecimal():
                problem = f"'{line[:60]}' is no word with its count"
                fix = "a word, a tab and a whole number in each line"
                raise DataError(problem, file=file, line=number, fix=fix)
            spellings.append(word)
            counts.append(int(count))
        return cls(tuple(spellings), tuple(counts))

    def write(self, folder: Path) -> None:
        """Write `words.tsv` in `folder`."""
        with open_atomic(folder / FILE) as stream:
            for word, count in zip(self.spellings, self.counts, strict=True):
                stream.write(f"{word}\t{count}\n")


def find_table(place: Path | str) -> Path:
    """The file of the table at `place`, which may be a file of its folder; DataError where none
    is.
    """
    path = Path(place).expanduser()
    folder = path if path.is_dir() else path.parent
    for file in (path, folder / FILE):
        if file.is_file() and file.suffix == ".tsv":
            return file
    raise DataError(
        f"there is no {FILE} here", file=path, fix="a folder that plmctl data contexts has written"
    )


def read_list(file: Path | str) -> list[str]:
    """The words of a list, one in a line (what follows a tab is passed over), lower-cased, each
    once.

    Raises:
        DataError: for a line that is not one word.
    """
    path = Path(file).expanduser()
    words = []
    for number, line in read_lines(path, cut=False):
        word = line.partition("\t")[0].strip().lower()
        word = compose(word)
        if not plain_words().fullmatch(word):
            fix = "one word of letters in each line, such as unicycle"
            raise DataError(f"'{word[:60]}' is not one word", file=path, line=number, fix=fix)
        words.append(word)
    return list(dict.fromkeys(words))


def plain_words() -> re.Pattern[str]:
    """Letters of any script, inside also apostrophes and hyphens: don't and well-made are one word
    each.
    """
    return word_pattern(JOINTS, r"\d_")


def find_words(texts: Iterable[str]) -> Iterator[tuple[str, list[re.Match[str]]]]:
    """Each text lower-cased and in one form, with its words."""
    for text in texts:
        lowered = compose(text.lower())
        yield lowered, list(plain_words().finditer(lowered))
