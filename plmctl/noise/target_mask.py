"""Target-side masking for sequence-to-sequence fine-tuning (Dong et al., 2019): only the second
segment is hidden.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.mask_tokens import MaskSettings, MaskTokens
from plmctl.noise.masking import NoiseBudget, Select, Shuffled, Spans, exclude
from plmctl.noise.token_mask import take_first
from plmctl.text.vocab import Vocab


class TargetTokens(Select):
    """Exactly the budget of tokens of one segment; its end token may be chosen but is not
    counted.
    """

    reads = frozenset({"input", "tracks.segment"})

    def __init__(self, *, vocab: Vocab, budget: NoiseBudget, segment: int) -> None:
        self.vocab, self.budget, self.segment = vocab, budget, segment

    def __call__(self, rows: Rows, draws: Draws) -> Spans:
        seq = rows.seqs[rows.input]
        target = (seq.tracks["segment"] == self.segment) & seq.real & (seq.ids != self.vocab.pad)
        share = self.budget.of_documents(rows, draws, target & ~self.vocab.special.take(seq.ids))
        return take_first(Shuffled(rows, draws, exclude(~target)), *share)


@part_of("noise")
class TargetMask(MaskTokens):
    """`min(max_predictions, max(1, round(rate * target tokens)))` tokens of the target are
    predicted, 80/10/10 each.

    Dong et al., 2019, arXiv:1905.03197, sec. 2.5, and microsoft/unilm, unilm-v1, seq2seq_loader.py.
    The end token of the target may be chosen, so that the model learns to stop, but it does not
    count for the budget. Source tokens are never chosen. The target is the segment of number
    `segment`.
    """

    count_specials = False

    def __init__(self, *, vocab: Vocab, segment: int = 1, **masking: Unpack[MaskSettings]) -> None:
        super().__init__(
            select=partial(TargetTokens, vocab=vocab, segment=segment), vocab=vocab, **masking
        )
