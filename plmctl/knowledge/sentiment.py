"""Words with a polarity and a part of speech (Ke et al., 2020, SentiLARE), from a lexicon in a
file.

    SentiWordNet    a <tab> 00064787 <tab> 0.625 <tab> 0 <tab> good#3 honest#2 <tab> gloss
    scores          good <tab> 1.9           (VADER, AFINN: the first number behind the word)
    opinion lists   a folder with a file *positive* and a file *negative*, a word a line
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.core.parts import Opens, base_of, part_of
from plmctl.core.values import Whole
from plmctl.knowledge.known import TextSample, describe_known
from plmctl.text.letters import compose
from plmctl.text.vocab import Vocab

POLARITIES = ("neutral", "negative", "positive")
PARTS = ("other", "noun", "verb", "adjective", "adverb")
LETTERS = {"n": 1, "v": 2, "a": 3, "s": 3, "r": 4}
_SHOWN = "SentiWordNet's file, lines of `word <tab> score`, or a folder of opinion lists"


class WordPolarity(NamedTuple):
    """The lexicon's entry of a word: indices into `POLARITIES` and `PARTS`."""

    polarity: int
    part: int


_NONE = WordPolarity(0, 0)


@base_of("sentiment")
class Sentiment:
    """The polarity of words, whatever the file is.

    `path`: of the file, for messages.
    """

    path: str | None = None

    def of_word(self, word: str) -> WordPolarity:
        """The entry of a word; neutral and other for one that is not in the lexicon."""
        raise NotImplementedError(type(self).__name__)

    def of_vocab(self, vocab: Vocab) -> np.ndarray:
        """[V, 2] int64: polarity and part of speech of each token that may be a whole word."""
        words = zip(vocab.texts, vocab.word_start, strict=True)
        entries = [self.of_word(text) if text and begins else _NONE for text, begins in words]
        return np.array(entries, np.int64).reshape(-1, 2)

    def describe_known(self, text: TextSample) -> str:
        """A line on how many words of a text it knows; DataError where these are none."""
        known, total = text.count_words(lambda word: self.of_word(word) != _NONE)
        what, fix = "words of the text are in the lexicon", "a lexicon in the language of the text"
        return describe_known(known, total, what, file=self.path, fix=fix)


def confirm(path: str | None) -> Path:
    """The file or folder of a lexicon; AbsentData if it is missing."""
    if path is None:
        raise AbsentData(
            "no lexicon of polarities is named", fix=f"noise.sentiment_mask.lexicon.path=<{_SHOWN}>"
        )
    place = Path(path).expanduser()
    if not place.exists():
        raise AbsentData("there is no such lexicon", file=place, fix=_SHOWN)
    return place


@part_of("sentiment")
class SentimentLexicon(Sentiment):
    """A lexicon in a file or folder, as above.

    In SentiWordNet a word has several senses. Its score is `sum_k a_k (P_k - N_k)`, a_k
    proportional to 1 / rank of the sense; its part of speech is the one of most senses. (Ke et al.,
    2020, arXiv:1911.02493, sec. 3.1.) Its controls are `shuffled`: words exchange their entries, by
    this seed; and `random`: its words have entries drawn from all that there may be. Differs: the
    paper weights senses also by how near the gloss is to the sentence, so that a polarity depends
    on the context; here it is that of the word. `plmctl data polarity` marks a text as the paper
    does, and such marks go before the lexicon.

    Args:
        path: The path of the lexicon; None: no word has a polarity, for checks alone.
    """

    opens: ClassVar[Opens] = {"path": confirm}

    def __init__(
        self, *, path: str | None = None, shuffled: Whole | None = None, random: Whole | None = None
    ) -> None:
        if shuffled is not None and random is not None:
            raise ConfigError("random", random, "null, or shuffled=null: one control of the two")
        self.path, self.shuffled, self.random = path, shuffled, random

    @cached_property
    def entries(self) -> dict[str, WordPolarity]:
        """{word in lower case: its entry}, of words that are not neutral or have a part of speech.

        Raises:
            AbsentData: no lexicon is named, or it is missing. DataError: its lines have another
            form.
        """
        place = confirm(self.path)
        found = _read_lists(place) if place.is_dir() else _read_file(place)
        if not found:
            raise DataError("no words in it", file=place, fix=_SHOWN)
        if self.random is not None:
            drawn = np.random.default_rng(self.random).integers(
                (len(POLARITIES), len(PARTS)), size=(len(found), 2)
            )
            return {
                word: WordPolarity(*entry)
                for word, entry in zip(found, drawn.tolist(), strict=True)
            }
        if self.shuffled is None:
            return found
        order = np.random.default_rng(self.shuffled).permutation(len(found)).tolist()
        values = list(found.values())
        return {word: values[place] for word, place in zip(found, order, strict=True)}

    def of_word(self, word: str) -> WordPolarity:
        return self.entries.get(compose(word.lower()), _NONE)


def _read_file(file: Path) -> dict[str, WordPolarity]:
    scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
    parts: dict[str, list[int]] = defaultdict(list)
    for number, cells in lexicon_lines(file):
        try:
            if len(cells) >= 5 and cells[0] in LETTERS:
                value = float(cells[2]) - float(cells[3])
                for term in cells[4].split():
                    word, _, rank = term.rpartition("#")
                    scores[word.lower()].append((value, 1 / int(rank)))
                    parts[word.lower()].append(LETTERS[cells[0]])
            else:
                scores[cells[0].lower()].append((float(cells[1]), 1.0))
        except (ValueError, IndexError, ZeroDivisionError):
            raise DataError(
                "neither a synset nor a word with a score", file=file, line=number, fix=_SHOWN
            ) from None
    return {
        word: WordPolarity(
            sign(senses), max(parts[word], key=parts[word].count) if parts[word] else 0
        )
        for word, senses in scores.items()
    }


def sign(senses: Iterable[tuple[float, float]]) -> int:
    """The polarity of the sum of scores times their weights."""
    score = sum(value * weight for value, weight in senses)
    return 0 if abs(score) < 1e-9 else 2 if score > 0 else 1


def _read_lists(folder: Path) -> dict[str, WordPolarity]:
    found: dict[str, WordPolarity] = {}
    for polarity, name in enumerate(POLARITIES[1:], start=1):
        files = sorted(folder.glob(f"*{name}*"))
        if not files:
            raise DataError(f"no file *{name}* here", file=folder, fix=_SHOWN)
        for _, cells in lexicon_lines(files[0]):
            found.setdefault(compose(cells[0].strip().lower()), WordPolarity(polarity, 0))
    return found


def lexicon_lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(number, cells) of lines that are neither empty nor comments (# or ;)."""
    text = file.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith(("#", ";")):
            yield number, line.rstrip().split("\t")
