"""Layers of marks other than mentions: tags of the words of a lexicon, and the columns of a CoNLL-U
file for each word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.terminal import counted
from plmctl.knowledge.dictionary import Dictionary, Mention
from plmctl.knowledge.tables import read_table
from plmctl.knowledge.wordnet import PARTS, SUPERSENSES, WordNet
from plmctl.text.inputs import read_lines

# replaces the path of a table: the supersense of the first meaning of each lemma
WORDNET = "wordnet"
# columns of CoNLL-U, and the columns that .conllulex adds
COLUMNS = {"lemma": 2, "upos": 3, "xpos": 4, "feats": 5, "head": 6, "deprel": 7}
COLUMNS |= {"lexcat": 11, "ss": 13}
HEAD = "head"  # whose ids are numbers of words
# how words are found: in any case, and with their most frequent meaning, however frequent it is
OF_WORDS: dict[str, Any] = {"fold": True, "least_prior": 0, "least_length": 1, "lowercase": True}
_SHOWN = "1<tab>Dogs<tab>dog<tab>NOUN<tab>NNS<tab>_<tab>2<tab>nsubj<tab>_<tab>_"


class Lexicon:
    """Finds the words of a table in texts, whatever their case, each with its tag.

    `tags`: their names; the id of the first is 1.
    """

    def __init__(self, place: Path | str) -> None:
        numbers: dict[str, int] = {}
        entries = (
            _read_wordnet()
            if place == WORDNET
            else ((word, tag) for _, (word, tag, *_) in read_table(Path(place), ("word", "tag")))
        )
        words = [(word, numbers.setdefault(tag, len(numbers) + 1), 1) for word, tag in entries]
        self.tags = list(numbers)
        self._dictionary = Dictionary(words, **OF_WORDS)

    def __call__(self, text: str) -> list[Mention]:
        """The longest words from the left, each with the number of its tag."""
        return self._dictionary.link(text)


def _read_wordnet() -> Iterator[tuple[str, str]]:
    """Each lemma with the supersense of its first synset, of its first part of speech."""
    wordnet, seen = WordNet.open(), set[str]()
    for part in PARTS:
        for lemma in wordnet.lemmas(part):
            if lemma not in seen:
                seen.add(lemma)
                first = wordnet.synsets(lemma, part)[:1]
                yield from ((lemma.replace("_", " "), SUPERSENSES[s.supersense]) for s in first)


class BankWord(NamedTuple):
    """A word of a sentence: its characters, and its columns."""

    start: int
    end: int
    columns: list[str]


class Treebank:
    """The documents of a CoNLL-U file, a sentence a line, with marks for the values of columns.

    `tags`: {column: names of its values}, as far as it was read; the id of the first is 1. The ids
    of "head" are the numbers of words in their sentence, from 1; that of the root is its own.

    Args:
        file: the file.
        layers: names of `COLUMNS`.
    """

    def __init__(self, file: Path, layers: Sequence[str]) -> None:
        for name in layers:
            if name not in COLUMNS:
                allowed = f"columns of CoNLL-U: {', '.join(COLUMNS)}{nearest(name, COLUMNS)}"
                raise ConfigError("layers", name, allowed)
        self.file, self.layers = file, tuple(layers)
        self._numbers: dict[str, dict[str, int]] = {name: {} for name in layers if name != HEAD}

    @property
    def tags(self) -> dict[str, list[str]]:
        """The names of the values of each column but "head"."""
        return {name: list(numbers) for name, numbers in self._numbers.items()}

    def documents(self) -> Iterator[dict[str, Any]]:
        """Rows with a text and a field for each layer."""
        row = self._blank("")
        for new, text, words in self._sentences():
            if new and row["text"]:
                yield row
                row = self._blank("")
            begin = len(row["text"]) + bool(row["text"])
            row["title"] = row["title"] or new
            row["text"] += ("\n" if row["text"] else "") + text
            for name in self.layers:
                row[name] += self._mark(name, words, begin)
        if row["text"]:
            yield row

    def _blank(self, title: str) -> dict[str, Any]:
        return {"title": title, "text": "", **{name: [] for name in self.layers}}

    def _mark(self, name: str, words: Sequence[BankWord], begin: int) -> list[Mention]:
        """The marks of one layer of a sentence."""
        marks = []
        for word in words:
            value = word.columns[COLUMNS[name]] if len(word.columns) > COLUMNS[name] else "_"
            if name == HEAD:
                number = int(value) or int(word.columns[0]) if value.isdigit() else 0
            else:
                numbers = self._numbers[name]
                number = 0 if value == "_" else numbers.setdefault(value, len(numbers) + 1)
            if number:
                marks.append(Mention(begin + word.start, begin + word.end, number))
        return marks

    def _sentences(self) -> Iterator[tuple[str, str, list[BankWord]]]:
        """(the document's name where a new one begins, text, words) of each sentence."""
        new, text = "document", ""
        lines: list[tuple[int, list[str]]] = []
        for number, line in read_lines(self.file, cut=False):
            if line.startswith("#"):
                key, _, value = line[1:].partition("=")
                new = value.strip() or "document" if key.strip().startswith("newdoc") else new
                text = value.strip() if key.strip() == "text" else text
            elif line.strip():
                columns = line.split("\t")
                if len(columns) < 10:
                    what = f"{counted(len(columns), 'column')} of a word, not 10 or more"
                    raise DataError(what, file=self.file, line=number, fix=_SHOWN)
                lines.append((number, columns))
            elif lines:
                yield new, *self._place(text, lines)
                new, text, lines = "", "", []
        if lines:
            yield new, *self._place(text, lines)

    def _place(
        self, text: str, lines: Sequence[tuple[int, list[str]]]
    ) -> tuple[str, list[BankWord]]:
        """The text of a sentence, and where its words stand in it."""
        words: list[BankWord] = []
        spelled, inside, at = "", 0, 0  # inside: the last word of a token of several
        for number, columns in lines:
            name, form = columns[0], columns[1]
            if "." in name or (name.isdigit() and int(name) <= inside):
                continue  # an empty node, or a word whose letters were placed with its token
            if "-" in name:
                inside = int(name.partition("-")[2])
            if not text:
                at = len(spelled)
                spelled += form + (" " if "SpaceAfter=No" not in columns[9] else "")
                found = at
            else:
                found = text.find(form, at)
                if found < 0:
                    what = f"the word {form!r} is not in the text behind the word before it"
                    raise DataError(what, file=self.file, line=number)
            at = found + len(form)
            first = columns if "-" not in name else self._first(lines, name)
            words.append(BankWord(found, at, first))
        return text or spelled.rstrip(), words

    def _first(self, lines: Sequence[tuple[int, list[str]]], name: str) -> list[str]:
        """The columns of the first word of a token of several (2-3): they speak for it."""
        wanted = name.partition("-")[0]
        return next((columns for _, columns in lines if columns[0] == wanted), lines[0][1])
