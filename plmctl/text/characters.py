"""Words as rows of characters: what ELMo's convolutions read (Peters et al., 2018; their
published code is bilm-tf).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from plmctl.core.batch import Rows, Seq

if TYPE_CHECKING:
    from plmctl.text.backend import Span
    from plmctl.text.tokenizer import Tokenizer
    from plmctl.text.vocab import Vocab

# ids: bytes of UTF-8 are 1..256, then these; 0 is padding that is no word, which a network masks
BOS, EOS, BEGIN, END, PAD = range(257, 262)
SIZE = 262
WIDTH = 50  # characters of a word, in the published models


class Characters:
    """A character view of words, with the face of a `Tokenizer`: an id is a row [C] of
    begin-of-word, bytes, end-of-word, pad.

    Words are those of `words`, as they stand in the text: whatever its vocabulary knows. A word of
    more than C - 2 bytes keeps the first C - 2. Sentence ends are words of their own.
    Differs: ids are one more than in published training code, as they are in its inference, so that
    0 is free for padding.
    """

    def __init__(self, *, words: Tokenizer, max_characters: int = WIDTH) -> None:
        if max_characters < 3:
            raise ValueError("a word needs at least 3 places: its begin, one byte, its end")
        self._words, self.max_characters = words, max_characters

    def encode(self, text: str) -> np.ndarray:
        """[T, C] int16, without sentence ends."""
        return self.encode_offsets(text)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [self.encode(text) for text in texts]

    def encode_offsets(self, text: str) -> tuple[np.ndarray, list[Span]]:
        """Rows and, for each, the span of characters of `text` it stands for."""
        spans = self._words.encode_offsets(text)[1]
        return self.rows(text[start:end] for start, end in spans), spans

    def decode(self, ids: np.ndarray) -> str:
        """The words of `ids` [T, C], with one space between two; sentence ends and padding are
        left out.
        """
        return " ".join(
            word for row in ids if row[1] not in (BOS, EOS) and (word := self._spelled(row))
        )

    def pieces(self, ids: np.ndarray) -> list[str]:
        """The words of `ids` [T, C]; of sentence ends and padding the spelling that the
        vocabulary of words has.
        """
        roles = self._words.roles
        names = {BOS: roles.bos, EOS: roles.eos}
        return [names.get(int(row[1])) or self._spelled(row) or roles.pad for row in ids]

    def rows(self, words: Iterable[str]) -> np.ndarray:
        """[T, C] int16: the row of each word."""
        return spell_words(words, self.max_characters)

    def table(self) -> np.ndarray:
        """[V, C] int16: the row of each id of `words`; sentence ends for its bos and eos, zeros for
        its padding.

        From shards of word ids this makes the characters of a batch by one look-up; an unknown word
        is spelled as [UNK] then.
        """
        return spell_vocabulary(self._words.vocab, self.max_characters)

    def _spelled(self, row: np.ndarray) -> str:
        return bytes((row[(row > 0) & (row < BOS)] - 1).astype(np.uint8)).decode("utf-8", "ignore")


class Spelling:
    """A `Tokenizer` of words for new text: words it does not know get numbers from V on, until
    `rows` spells them.

    So a task lays out ids as always, and a network that reads characters sees how every word of its
    text is written.
    """

    def __init__(self, words: Tokenizer) -> None:
        self._words, self.vocab = words, words.vocab
        self._new: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return self.encode_offsets(text)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        ids, spans = self._words.encode_offsets(text)
        return [
            self._number(text[a:b]) if i == self.vocab.unk else i
            for i, (a, b) in zip(ids, spans, strict=True)
        ], spans

    def rows(self, rows: Rows) -> Rows:
        """`rows` with the sequence "characters" of their text; ids beyond the vocabulary become
        the unknown word's.
        """
        text = rows.seqs["text"]
        looked = Looked(np.concatenate([self._table, spell_words(self._new)]), text.ids)
        words = replace(text, ids=self.known(text.ids))
        spelled_out = Seq(looked, text.length, view=True)
        return replace(rows, seqs={**rows.seqs, "text": words, "characters": spelled_out})

    def known(self, ids: Any) -> np.ndarray:
        """`ids` with the unknown word's in place of all that lie beyond the vocabulary."""
        ids = np.asarray(ids)
        found: np.ndarray = np.where(ids < self.vocab.size, ids, self.vocab.id("unk"))
        return found.astype(ids.dtype)

    @cached_property
    def _table(self) -> np.ndarray:
        return spell_vocabulary(self.vocab)

    def _number(self, word: str) -> int:
        return self._new.setdefault(word, self.vocab.size + len(self._new))


class Looked:
    """`rows[numbers]`, [n, T, C], looked up piece by piece: a split of a task has too many
    characters to hold them all.
    """

    def __init__(self, rows: np.ndarray, numbers: np.ndarray) -> None:
        self._rows, self._numbers = rows, numbers
        self.shape = (*numbers.shape, rows.shape[1])

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows and their numbers: what decides all of it."""
        return self._rows, self._numbers

    def __getitem__(self, place: Any) -> np.ndarray:
        return self._rows[self._numbers[place]]


def spell_words(words: Iterable[str], width: int = WIDTH) -> np.ndarray:
    """[T, C] int16: the row of each word, of which `width - 2` bytes are kept."""
    content = [word.encode("utf-8", "surrogatepass")[: width - 2] for word in words]
    found = np.full((len(content), width), PAD, np.int16)
    found[:, 0] = BEGIN
    length = np.array([len(word) for word in content], np.int64)
    inside = np.arange(1, width) <= length[:, None]
    found[:, 1:][inside] = np.frombuffer(b"".join(content), np.uint8).astype(np.int16) + 1
    found[np.arange(len(content)), length + 1] = END
    return found


def spell_vocabulary(vocab: Vocab, width: int = WIDTH) -> np.ndarray:
    """[V, C] int16: the row of each id; sentence ends for bos and eos, zeros for padding, [UNK]
    as it is spelled.
    """
    found = spell_words(vocab.spellings, width)
    for place, mark in ((vocab.bos, BOS), (vocab.eos, EOS)):
        if place is not None:
            found[place] = PAD
            found[place, :3] = BEGIN, mark, END
    found[vocab.pad] = 0
    return found
