"""Words as tokens, by the vocabulary alone."""

from __future__ import annotations

from collections.abc import Sequence


class Speller:
    """Spells words with the longest tokens that fit, from left to right: a token that begins a
    word, then tokens that continue it (Wu et al., 2016, arXiv:1609.08144, sec. 4.1, WordPiece).

    For a tokenizer of another kind the pieces may be others than its own.
    """

    def __init__(self, texts: Sequence[str], starts: Sequence[bool]) -> None:
        """Take the tokens of a vocabulary.

        Args:
            texts: The text of each token, `Vocab.texts`.
            starts: whether it begins a word, `Vocab.word_start`.
        """
        self._begin: dict[str, int] = {}
        self._inside: dict[str, int] = {}
        for number, (text, begins) in enumerate(zip(texts, starts, strict=True)):
            if text:
                (self._begin if begins else self._inside).setdefault(text, number)
        self._longest = max(map(len, texts), default=0)

    def spell(self, text: str) -> list[int]:
        """The tokens of words with spaces between, as written or in lower case; [] where they
        cannot be spelled.
        """
        ids: list[int] = []
        for word in text.split():
            own = self._spell(word) or self._spell(word.lower())
            if not own:
                return []
            ids += own
        return ids

    def _spell(self, word: str) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(word):
            known = self._inside if at else self._begin
            ends = range(min(len(word), at + self._longest), at, -1)
            end = next((end for end in ends if word[at:end] in known), None)
            if end is None:
                return []
            ids.append(known[word[at:end]])
            at = end
        return ids
