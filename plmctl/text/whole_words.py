"""RoFormer's pieces of Chinese text: words of the vocabulary stay whole, others become characters
(Su et al., 2021, arXiv:2104.09864).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from plmctl.core.extras import require_library
from plmctl.text.backend import Span
from plmctl.text.rust import Rust
from plmctl.text.segmented import SpacedBackend

NAME = "rjieba"  # in a tokenizer's folder, the name of its segmenter
# by which transformers knows it
CLASSES = ("RoFormerTokenizer", "RoFormerTokenizerFast")


class WholeWordBackend(SpacedBackend):
    """A `Backend`: words by rjieba, without its hidden Markov model, and their pieces by WordPiece.
    A word outside of the vocabulary is split at white space and around Chinese characters first.

    Args:
        inner: WordPiece of words between spaces, after BERT's changes of letters.
    """

    def __init__(self, inner: Rust) -> None:
        _find_words("")  # a missing library is reported now, not after an hour
        super().__init__(inner)
        self._known = frozenset(inner.tokens)
        self._rules: Any = inner.tokenizer.normalizer
        self._apart = normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
        )

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, as `inner` joins it."""
        return self.inner.decode(ids)

    def normalize(self, text: str) -> str:
        """`text` after BERT's changes of letters."""
        return str(self._rules.normalize_str(text))

    def files(self) -> dict[str, bytes]:
        """The files of `inner` and the name of the segmenter."""
        return {**self.inner.files(), "segmenter.txt": NAME.encode()}

    def space(self, text: str) -> tuple[str, list[int]]:
        """The words with spaces between them, and for each character its offset in `text`; of a
        space that of the word before it.
        """
        changed, origin = self._change(text)
        parts: list[str] = []
        offsets: list[int] = []
        for start, end in self._cut(changed):
            if parts:
                parts.append(" ")
                offsets.append(offsets[-1])
            parts.append(changed[start:end])
            offsets += origin[start:end]
        return "".join(parts), [*offsets, len(text)]

    def _change(self, text: str) -> tuple[str, list[int]]:
        """The text after its changes, and for each character its offset in `text`: letters change
        one by one, with the marks behind them.
        """
        changed: list[str] = []
        origin: list[int] = []
        for place, letter in enumerate(text):
            new = self._rules.normalize_str(letter)
            changed.append(new)
            origin += [place] * len(new)
        joined, whole = "".join(changed), self.normalize(text)
        if joined != whole:  # marks in another order
            origin = [min(place, len(text) - 1) for place in range(len(whole))]
        return whole, origin

    def _cut(self, text: str) -> Iterator[Span]:
        """The (start, end) of the words, and of the parts of unknown ones."""
        for word, start, end in _find_words(text):
            if word in self._known:
                yield start, end
                continue
            for part in self._apart.normalize_str(word).split():
                yield start, start + len(part)
                start += len(part)


def read(vocab: dict[str, int], config: dict[str, Any], unknown: str) -> Rust:
    """The `inner` of a backend, of the vocabulary and the settings of a published folder."""
    tokenizer = tokenizers.Tokenizer(
        models.WordPiece(vocab, unk_token=unknown, max_input_chars_per_word=100)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=False,
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return Rust(tokenizer)


def _find_words(text: str) -> list[tuple[str, int, int]]:
    """(word, start, end) of every stretch of `text`."""
    words: list[tuple[str, int, int]] = _rjieba().tokenize(text, hmm=False)
    return words


@cache
def _rjieba() -> Any:
    return require_library("rjieba", "roformer", "the tokenizer of RoFormer")
