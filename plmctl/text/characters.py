"""Words as rows of characters: what ELMo's convolutions read (Peters et al., 2018; their published code is bilm-tf)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from plmctl.text.backend import Span
from plmctl.text.tokenizer import Tokenizer

# ids: bytes of UTF-8 are 1..256, then these; 0 is padding that is no word, which a network masks
BOS, EOS, BEGIN, END, PAD = range(257, 262)
SIZE = 262


class Characters:
    """A character view of words, with the face of a `Tokenizer`: an id is a row [C] of begin-of-word, bytes, end-of-word, pad.

    Words are those of `words`, as they stand in the text: whatever its vocabulary knows. A word of more than C - 2 bytes
    keeps the first C - 2. Sentence ends are words of their own.
    Differs: ids are one more than in published training code, as they are in its inference, so that 0 is free for padding.
    """

    def __init__(self, *, words: Tokenizer, max_characters: int = 50) -> None:
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
        """The words of `ids` [T, C], with one space between two; sentence ends and padding are left out."""
        return " ".join(word for row in ids if row[1] not in (BOS, EOS) and (word := self._spelled(row)))

    def pieces(self, ids: np.ndarray) -> list[str]:
        """The words of `ids` [T, C]; of sentence ends and padding the spelling that the vocabulary of words has."""
        roles = self._words.roles
        names = {BOS: roles.bos, EOS: roles.eos}
        return [names.get(int(row[1])) or self._spelled(row) or roles.pad for row in ids]

    def rows(self, words: Iterable[str]) -> np.ndarray:
        """[T, C] int16: the row of each word."""
        spelled = [word.encode("utf-8", "surrogatepass")[: self.max_characters - 2] for word in words]
        found = np.full((len(spelled), self.max_characters), PAD, np.int16)
        found[:, 0] = BEGIN
        length = np.array([len(word) for word in spelled], np.int64)
        inside = np.arange(1, self.max_characters) <= length[:, None]
        found[:, 1:][inside] = np.frombuffer(b"".join(spelled), np.uint8).astype(np.int16) + 1
        found[np.arange(len(spelled)), length + 1] = END
        return found

    def table(self) -> np.ndarray:
        """[V, C] int16: the row of each id of `words`; sentence ends for its bos and eos, zeros for its padding.

        From shards of word ids this makes the characters of a batch by one look-up; an unknown word is spelled as [UNK] then.
        """
        vocab = self._words.vocab
        found = self.rows(self._words.pieces(range(vocab.size)))
        for place, mark in ((vocab.bos, BOS), (vocab.eos, EOS)):
            if place is not None:
                found[place] = PAD
                found[place, :3] = BEGIN, mark, END
        found[vocab.pad] = 0
        return found

    def _spelled(self, row: np.ndarray) -> str:
        return bytes((row[(row > 0) & (row < BOS)] - 1).astype(np.uint8)).decode("utf-8", "ignore")
