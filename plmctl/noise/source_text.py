"""The changed text as the text that an encoder reads; the clean one stays as the target."""

from __future__ import annotations

from dataclasses import replace

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.base import Noise


@part_of("noise")
class SourceText(Noise):
    """The `source` of earlier noise becomes the `text`, and its clean `target` stays. A model of
    one stack reads the text, and a decoder of the objective writes the target (Wang et al., 2021,
    arXiv:2104.06979).
    """

    reads = frozenset({"source", "target"})
    writes = frozenset({"text"})
    removes = frozenset({"source"})

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seqs = {name: seq for name, seq in rows.seqs.items() if name != "source"}
        return replace(rows, seqs={**seqs, "text": rows.seqs["source"]})
