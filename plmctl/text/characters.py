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
    """A `Tokenizer`-like view of words as characters: an id is a row [C] of begin-of-word, bytes,
    end-of-word and padding.

    Words are split as `words` splits them and spelled as in the text, whether its vocabulary knows
    them or not. A word of more than C - 2 bytes keeps the first C - 2. Sentence ends are words of
    their own.
    Differs: ids are one more than in published training code, as they are in its inference, so that
    0 is free for padding.
    """

    def __init__(self, *, words: Tokenizer, max_characters: int = WIDTH) -> None:
        if max_characters < 3:
            raise ValueError("a word needs at least 3 positions: its begin, one byte, its end")
        self._words, self.max_characters = words, max_characters

    def encode(self, text: str) -> np.ndarray:
        """[T, C] int16, without sentence ends."""
        return self.encode_offsets(text)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The rows of characters of each text."""
        return [self.encode(text) for text in texts]

    def encode_offsets(self, text: str) -> tuple[np.ndarray, list[Span]]:
        """Rows [T, C], and for each the span of characters of `text` that it covers."""
        spans = self._words.encode_offsets(text)[1]
        return self.rows(text[start:end] for start, end in spans), spans

    def decode(self, ids: np.ndarray) -> str:
        """The words of `ids` [T, C], with one space between two; sentence ends and padding are
        left out.
        """
        return " ".join(
            word for row in ids if row[1] not in (BOS, EOS) and (word := self._spell(row))
        )

    def pieces(self, ids: np.ndarray) -> list[str]:
        """The words of `ids` [T, C]; sentence ends and padding are spelled as in the vocabulary of
        words.
        """
        roles = self._words.roles
        names = {BOS: roles.bos, EOS: roles.eos}
        return [names.get(int(row[1])) or self._spell(row) or roles.pad for row in ids]

    def rows(self, words: Iterable[str]) -> np.ndarray:
        """[T, C] int16: the row of each word."""
        return spell_words(words, self.max_characters)

    def table(self) -> np.ndarray:
        """[V, C] int16: the row of each id of `words`; bos and eos are sentence ends, padding is
        zeros.

        With it, the characters of a batch are one look-up by word id; an unknown word is then
        spelled as [UNK].
        """
        return spell_vocabulary(self._words.vocab, self.max_characters)

    def _spell(self, row: np.ndarray) -> str:
        return bytes((row[(row > 0) & (row < BOS)] - 1).astype(np.uint8)).decode("utf-8", "ignore")


class Spelling:
    """A `Tokenizer` of words for new text: an unknown word gets a number from V on, and `rows`
    spells it.

    So a task lays out ids as always, and a network that reads characters sees the spelling of every
    word of its text.
    """

    def __init__(self, words: Tokenizer) -> None:
        self._words, self.vocab = words, words.vocab
        self._new: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; an unknown word has a number of V or more."""
        return self.encode_offsets(text)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        return [self.encode(text) for text in texts]

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the span of characters of `text` that it covers."""
        ids, spans = self._words.encode_offsets(text)
        return [
            self._number(text[a:b]) if i == self.vocab.unk else i
            for i, (a, b) in zip(ids, spans, strict=True)
        ], spans

    def rows(self, rows: Rows) -> Rows:
        """`rows` with the sequence "characters" of their text; ids beyond the vocabulary become the
        id of the unknown word.
        """
        text = rows.seqs["text"]
        spelled = CharacterRows(np.concatenate([self._table, spell_words(self._new)]), text.ids)
        words = replace(text, ids=self.replace_unknown(text.ids))
        spelled_out = Seq(spelled, text.length, view=True)
        return replace(rows, seqs={**rows.seqs, "text": words, "characters": spelled_out})

    def replace_unknown(self, ids: Any) -> np.ndarray:
        """`ids`, in which the id of the unknown word replaces all ids beyond the vocabulary."""
        ids = np.asarray(ids)
        known: np.ndarray = np.where(ids < self.vocab.size, ids, self.vocab.id("unk"))
        return known.astype(ids.dtype)

    @cached_property
    def _table(self) -> np.ndarray:
        return spell_vocabulary(self.vocab)

    def _number(self, word: str) -> int:
        return self._new.setdefault(word, self.vocab.size + len(self._new))


class CharacterRows:
    """`rows[numbers]`, [n, T, C], gathered piece by piece: all characters of a task's split
    together would take too much memory.
    """

    def __init__(self, rows: np.ndarray, numbers: np.ndarray) -> None:
        self._rows, self._numbers = rows, numbers
        self.shape = (*numbers.shape, rows.shape[1])

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows and their numbers, which decide the whole array."""
        return self._rows, self._numbers

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._rows[self._numbers[index]]


def spell_words(words: Iterable[str], width: int = WIDTH) -> np.ndarray:
    """[T, C] int16: the row of each word, of which `width - 2` bytes are kept."""
    content = [word.encode("utf-8", "surrogatepass")[: width - 2] for word in words]
    rows = np.full((len(content), width), PAD, np.int16)
    rows[:, 0] = BEGIN
    length = np.array([len(word) for word in content], np.int64)
    inside = np.arange(1, width) <= length[:, None]
    rows[:, 1:][inside] = np.frombuffer(b"".join(content), np.uint8).astype(np.int16) + 1
    rows[np.arange(len(content)), length + 1] = END
    return rows


def spell_vocabulary(vocab: Vocab, width: int = WIDTH) -> np.ndarray:
    """[V, C] int16: the row of each id; bos and eos are sentence ends, padding is zeros, [UNK]
    stands as it is spelled.
    """
    rows = spell_words(vocab.spellings, width)
    for word, mark in ((vocab.bos, BOS), (vocab.eos, EOS)):
        if word is not None:
            rows[word] = PAD
            rows[word, :3] = BEGIN, mark, END
    rows[vocab.pad] = 0
    return rows
