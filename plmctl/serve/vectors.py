"""Vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import ConfigError, DataError
from plmctl.runtime.base import Runtime
from plmctl.serve.errors import Refusal
from plmctl.serve.queue import TRUNCATED, UNKNOWN, QueuedItem
from plmctl.tasks.batches import OVERHEAD
from plmctl.text.unknown import MOST, find_full_width, measure_full_width
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine, find_longest, lay_out_text, measure_unknown
from plmctl.use.sentence_vectors import SentencePooling, check_prompt, embed_lines

Text = str | Sequence[int]  # or the numbers of its tokens


class VectorEngine:
    """Vectors of length 1, as the model was trained to make them, or by any other pooling."""

    name = "vectors"

    def __init__(
        self,
        loaded: Loaded,
        pooling: SentencePooling,
        *,
        precision: Precision,
        runtime: Runtime,
        rows: int,
    ) -> None:
        loaded.model.eval()
        self.loaded, self.pooling = loaded, pooling
        self.precision, self.runtime, self.rows = precision, runtime, rows

    @property
    def longest(self) -> int | None:
        """Tokens of a text at most, special ones included; None: any number."""
        return find_longest(self.loaded)

    def read(
        self, texts: Sequence[Text], *, cut: bool = True, prompt: str | None = None
    ) -> list[QueuedItem]:
        """The questions of texts.

        Args:
            texts: The texts, or the numbers of their tokens.
            cut: Whether a text that is too long is cut.
            prompt: The name of a prompt of the model, before each text; None: its usual one.

        Raises:
            DataError: A text has more tokens than the model reads and `cut` is false, or a number
                that is no token.
            Refusal: The model has no prompt of this name.
        """
        try:
            before = check_prompt(self.pooling, prompt)
        except ConfigError as error:
            raise Refusal(422, f"prompt_name={prompt}: {error.allowed}") from error
        return [self._lay_out(text, number, cut, before) for number, text in enumerate(texts, 1)]

    def _lay_out(self, text: Text, number: int, cut: bool, prompt: str) -> QueuedItem:
        if isinstance(text, str):
            line = lay_out_text(text, self.loaded, self.longest, prompt)
            unknown = 1.0 if line.blank else self._measure_unread(text, line)
        else:
            line, unknown = self._take_ids(text, number), 0.0
        if line.cut and not cut:
            what = f"the text has more tokens than the model reads, {self.longest}"
            raise DataError(what, file="input", line=number)
        marks: dict[str, Any] = {TRUNCATED: True} if line.cut else {}
        marks |= {UNKNOWN: round(unknown, 4)} if unknown > MOST else {}
        return QueuedItem(line, len(line.ids), marks)

    def _measure_unread(self, text: str, line: EmbeddingLine) -> float:
        """The share of unknown tokens, or of full-width letters where more are these."""
        unknown = measure_unknown([line], self.loaded)
        if not self.loaded.source.has_tokenizer:
            return unknown
        wide = find_full_width(self.loaded.tokenizer, [text])
        return max(unknown, *(measure_full_width(words, text) for words in wide.values()), 0.0)

    def _take_ids(self, ids: Sequence[int], number: int) -> EmbeddingLine:
        size = self.loaded.source.vocab_size
        if wrong := [each for each in ids if not 0 <= each < size]:
            what = f"token {wrong[0]}, but the model knows 0..{size - 1}"
            raise DataError(what, file="input", line=number)
        longest = len(ids) if self.longest is None else self.longest
        return EmbeddingLine(list(ids[:longest]), cut=len(ids) > longest)

    def answer(self, questions: Sequence[EmbeddingLine]) -> list[np.ndarray]:
        """The vector of each text; zeros for an empty one."""
        how: Any = {"batch_size": self.rows, "precision": self.precision, "normalize": True}
        how |= {"runtime": self.runtime, "overhead": OVERHEAD[self.precision.device.type]}
        return [*embed_lines(self.loaded, questions, self.pooling, **how)]


def shorten(vector: np.ndarray, dimensions: int | None) -> np.ndarray:
    """The first numbers of a vector, again of length 1; None: all."""
    if dimensions is None:
        return vector
    if dimensions > len(vector):
        raise DataError(f"dimensions={dimensions}, but vectors of this model have {len(vector)}")
    part = vector[:dimensions]
    return part / max(float(np.linalg.norm(part)), 1e-12)
