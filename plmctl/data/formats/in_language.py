"""The rows of another format, with the numbers of the languages that their text is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.data.formats.base import Format, Plan
from plmctl.data.formats.carried import Wanted
from plmctl.data.formats.wrapped import Wrapped

if TYPE_CHECKING:
    from plmctl.data.shards import Shards


@part_of("format")
class InLanguage(Wrapped):
    """Rows of `format` with `tracks.language = language` at every token, for text in several
    languages; of parallel text, `language[0]` in sources and `language[1]` in targets.

    (Conneau and Lample, 2019, arXiv:1901.07291, sec. 3.1: language embeddings.)
    """

    def __init__(self, *, format: Format, language: int | Sequence[int]) -> None:
        numbers = (language,) if isinstance(language, int) else tuple(language)
        if min(numbers, default=-1) < 0:
            raise ConfigError("format.language", language, "the number of a language, from 0 on")
        if "text" not in format.provides:
            provided = ", ".join(sorted(format.provides))
            allowed = f"a format of plain text; this one gives {provided}"
            raise ConfigError("format.format", type(format).__name__, allowed)
        sides = 2 if format.parallel else 1
        if len(numbers) != sides:
            allowed = "[0,1], those of source and target" if format.parallel else "one number"
            raise ConfigError("format.language", language, allowed)
        super().__init__(format=format, provides=frozenset({"tracks.language"}), settings=language)
        self.numbers = numbers

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        rows = self.format.rows(shards, plan, index, wanted)
        text, known = rows.seqs["text"], np.array(self.numbers, np.int16)
        side = text.tracks["language"] if self.parallel else np.zeros(text.ids.shape, np.int16)
        text = text.with_tracks(language=known[side])  # [n, T]
        return replace(rows, seqs={**rows.seqs, "text": text})

    def languages(self, shards: Shards) -> int:
        return max(self.numbers) + 1
