"""The rows of another format with other segment numbers, from which UniLM knows the kind of
language model.
"""

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
class Renumbered(Wrapped):
    """Rows of `format` whose segment s becomes `segments[s]`; rows of one segment have number 0
    before.

    UniLM's segment embedding marks bidirectional pairs (0, 1), left to right (2), right to left
    (3), and source and target of sequence to sequence (4, 5) (Dong et al., 2019, arXiv:1905.03197,
    sec. 2.1; numbers as in microsoft/unilm, unilm-v1, new_segment_ids).
    """

    def __init__(self, *, format: Format, segments: Sequence[int]) -> None:
        if not segments or min(segments) < 0:
            raise ConfigError(
                "format.segments", list(segments), "a number from 0 on for every segment of a row"
            )
        super().__init__(
            format=format, provides=frozenset({"tracks.segment"}), settings=list(segments)
        )
        self.segments = np.array(segments, np.int8)

    @property
    def last_segment(self) -> int:
        return int(self.segments.max())

    def rows(self, shards: Shards, plan: Plan, index: np.ndarray, wanted: Wanted = None) -> Rows:
        rows = self.format.rows(shards, plan, index, wanted)
        text = rows.seqs["text"]
        segment = text.tracks.get("segment", np.zeros(text.ids.shape, np.int8))
        seqs = {**rows.seqs, "text": text.with_tracks(segment=self.segments[segment])}
        return replace(rows, seqs=seqs)
