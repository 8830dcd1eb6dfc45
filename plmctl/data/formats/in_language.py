"""The rows of another format, with the number of the language that their text is in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.wrapped import Wrapped

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class InLanguage(Wrapped):
    """Rows of `format` with `tracks.language = language` at every token, for text in several
    languages.

    Each language is one of `data.sources`. (Conneau and Lample, 2019, arXiv:1901.07291, sec. 3.1:
    language embeddings.)
    """

    def __init__(self, *, format: Format, language: int) -> None:
        if language < 0:
            raise ConfigError("format.language", language, "the number of a language, from 0 on")
        if "text" not in format.provides:
            provided = ", ".join(sorted(format.provides))
            raise ConfigError(
                "format.format",
                type(format).__name__,
                f"a format of plain text; this one gives {provided}",
            )
        super().__init__(format=format, provides=frozenset({"tracks.language"}), settings=language)
        self.language = language

    def rows(
        self, shards: Shards, plan: Plan, index: np.ndarray, wanted: frozenset[str] | None = None
    ) -> Rows:
        rows = self.format.rows(shards, plan, index, wanted)
        text = rows.seqs["text"]
        language = np.full(text.ids.shape, self.language, np.int16)
        return replace(rows, seqs={**rows.seqs, "text": text.with_tracks(language=language)})

    def languages(self, shards: Shards) -> int:
        return self.language + 1
