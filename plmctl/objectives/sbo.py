"""The span boundary objective (Joshi et al., 2020): the tokens of a masked span are predicted from
the two tokens next to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Objective, Output, Term
from plmctl.text.vocab import Vocab


@part_of("objective")
class SBO(Objective):
    """`- sum over tokens i of spans s..e of log p(x_i | h_{s-1}, h_{e+1}, p_{i-s+1})`, h the last
    states, p learned position embeddings.

    The first `max_targets` tokens of each of spans.chosen are predicted if both neighbours are
    ordinary tokens of the same document; at an end of the text there is only one. Rows without
    spans have no targets. (Joshi et al., 2020, arXiv:1907.10529, sec. 3.2;
    facebookresearch/SpanBERT, pretraining/fairseq.) Differs: the mean over an update's targets; the
    released code divides by their number plus one.
    """

    facts = Facts(
        needs=frozenset({"text", "targets.mlm", "spans.chosen"}),
        heads=frozenset({"sbo"}),
        terms=frozenset({"sbo"}),
    )
    fields: Mapping[str, Field] = {
        "targets.sbo": Field(
            "[n, T]",
            "int",
            "id of a masked token that the neighbours of its span predict, IGNORE elsewhere",
            tokens=True,
        )
    }

    def __init__(self, *, vocab: Vocab, max_targets: int) -> None:
        super().__init__()
        self.special, self.max_targets = vocab.special, max_targets

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        """`targets.sbo`, those of `targets.mlm` that the neighbours of a span predict."""
        seq = rows.seqs["text"]
        labels = np.full(seq.ids.shape, IGNORE, np.int32)
        table = rows.spans.get("chosen", np.zeros((0, 3), np.int64))
        begin, end = table[:, 1] - 1, table[:, 1] + table[:, 2]
        table = table[(begin >= 0) & (end < seq.length[table[:, 0]])]
        row, begin, end = table[:, 0], table[:, 1] - 1, table[:, 1] + table[:, 2]
        kept = ~self.special[seq.ids[row, begin]] & ~self.special[seq.ids[row, end]]
        if "document" in seq.tracks:
            kept &= seq.tracks["document"][row, begin] == seq.tracks["document"][row, end]
        start, length = table[kept, 1], np.minimum(table[kept, 2], self.max_targets)
        if len(start):
            inside = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
            position = np.repeat(row[kept], length), np.repeat(start, length) + inside
            labels[position] = rows.targets["mlm"][position]
        return {"sbo": labels}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"sbo": batch.counts["sbo"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        targets, hidden = batch.require("targets.sbo"), model(batch, state)
        spans = batch.spans.get("chosen", targets.index.new_zeros(0, 3))
        # every one of them is in targets.mlm, too, so its slots are enough
        slots = len(batch.targets["mlm"].index) if len(spans) else 0
        index, ids = targets.index[:slots], targets.ids[:slots]
        before, after, offset = self._around(index, spans, batch.text.ids)
        loss, right = model.heads["sbo"].loss(
            hidden.gather(before), hidden.gather(after), offset, ids
        )  # type: ignore[operator]
        return Output({"sbo": Term(loss)}, {"acc/sbo": (right, batch.counts["sbo"])})

    def _around(self, index: Tensor, spans: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For each slot [P]: the flattened neighbours of its span, and its offset inside;
        anything valid in spare slots.
        """
        row, start, length = spans[:, :3].unbind(1)
        first = row * ids.shape[1] + start  # rising: spans come in the order of rows and positions
        span = (torch.searchsorted(first, index, right=True) - 1).clamp(min=0)
        before, after = first[span] - 1, first[span] + length[span]
        most = ids.numel() - 1
        return (
            before.clamp(0, most),
            after.clamp(0, most),
            (index - first[span]).clamp(0, self.max_targets - 1),
        )
