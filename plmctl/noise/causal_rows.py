"""Rows that are read from left to right among rows with masks (Charpentier and Samuel, 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.problems import PartContext
from plmctl.core.values import Count, Rate
from plmctl.noise.base import Noise


@part_of("noise")
class CausalRows(Noise):
    """A share of the rows loses its masks again, and is of the segment that sees no later token.

    One model learns both modes (Charpentier and Samuel, 2024, arXiv:2410.24159, sec. 2: GPT-BERT).
    The noise before this one hides tokens and keeps them in `targets.mlm`; a causal row gets them
    back. `values.causal` names these rows, and `pattern=two_modes` reads their segment.
    Differs: each row is drawn by itself; the released code divides the devices among the modes.

    Args:
        share: The share of causal rows, 0 to 1.
        segment: The segment of causal rows in the pattern.
    """

    reads = frozenset({"input", "targets.mlm"})
    writes = frozenset({"tracks.segment", "values.causal"})
    fields: Mapping[str, Field] = {
        "values.causal": Field("[n]", "bool", "the row is read from left to right, without masks")
    }

    def __init__(self, *, share: Rate, segment: Count = 2) -> None:
        self.share, self.segment = share, segment

    def problems(self, path: str, around: PartContext) -> Iterator[ConfigError]:
        """A pattern in which causal rows see later tokens, or vectors of too few segments."""
        pattern = getattr(around.backbone, "pattern", None)
        if pattern is None or pattern.looks_ahead(self.segment):
            allowed = f"a segment that sees no later token: {self.segment} does in this pattern"
            fix = "pattern=two_modes noise.causal_rows.segment=2"
            yield ConfigError(f"{path}.segment", self.segment, allowed, fix=fix)
        table = getattr(getattr(around.backbone, "embedding", None), "segment", None)
        if table is not None and table.num_embeddings <= self.segment:
            allowed = f"0, or more than segment {self.segment} of causal rows"
            setting, count = "model.embedding.segments", table.num_embeddings
            yield ConfigError(setting, count, allowed, fix=f"{setting}=0")

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq, hidden = rows.seqs[rows.input], rows.targets["mlm"]
        causal = draws.uniform(rows.key, "causal") < self.share
        back = causal[:, None] & (hidden != IGNORE)
        own = seq.tracks.get("segment", np.zeros(seq.ids.shape, np.int8))
        segment = np.where(causal[:, None], np.int8(self.segment), own)
        ids = np.where(back, hidden, seq.ids).astype(seq.ids.dtype)
        changed = rows.with_seq(rows.input, replace(seq, ids=ids).with_tracks(segment=segment))
        changed = changed.with_targets(mlm=np.where(causal[:, None], IGNORE, hidden))
        spans = dict(rows.spans)
        if "chosen" in spans:
            spans["chosen"] = spans["chosen"][~causal[spans["chosen"][:, 0]]]
        return replace(changed, spans=spans, values={**rows.values, "causal": causal})
