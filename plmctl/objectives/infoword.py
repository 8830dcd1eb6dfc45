"""InfoWord (Kong et al., 2020): which n-gram of the batch was removed from the
sentence?
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Contrast, Facts, Objective, Output, Term
from plmctl.objectives.contrast import find_equal, info_nce, multiply, restore_originals
from plmctl.text.template import find_wraps
from plmctl.text.vocab import Vocab


@part_of("objective")
class InfoWord(Objective):
    """`- sum_k log exp(g(x_k) . g(y_k) / t) / sum_l exp(g(x_k) . g(y_l) / t)`, x_k a row from which
    its n-gram y_k is hidden.

    g is the last state of the first token of the one encoder; an n-gram is a row of its own, cls y
    sep, with positions from 0. The n-grams are spans.chosen, their tokens targets.mlm. Others of
    the same row, and equal ones, are no negatives. Rows without spans do not count. (Kong et al.,
    2020, arXiv:1910.08350, sec. 4.2: Deep InfoMax of a sentence and its n-grams, with t = 1.)
    Differs: `temperature` may divide the products, which grow with the width; of spans of more than
    `max_tokens` the first ones are taken.
    """

    holds_cells = True
    facts = Facts(
        needs=frozenset({"text", "targets.mlm", "spans.chosen"}),
        terms=frozenset({"infoword"}),
        least_rows=2,
        contrasts=True,
        asks_row=True,
    )

    def __init__(self, *, vocab: Vocab, temperature: float, max_tokens: int) -> None:
        super().__init__()
        for name, value, least in (
            ("temperature", temperature, "above 0"),
            ("max_tokens", max_tokens, "at least 1"),
        ):
            if value <= 0:
                raise ConfigError(name, value, least)
        self.temperature, self.max_tokens = temperature, max_tokens
        self.pad, self.wrap = vocab.pad, find_wraps(vocab, vocab.single)[0]

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"infoword": len(batch.spans.get("chosen", ()))}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        if not self.counts(batch)["infoword"]:
            return Output({})
        ngrams, row = self.ngrams(batch), batch.spans["chosen"][:, 0]
        sentence, alone = model(batch, state).last[row, 0], model(ngrams).last[:, 0]
        vectors, beside = {"sentence": sentence, "alone": alone}, {"ids": ngrams.text.ids}
        return Contrast(self.compare, vectors, beside, {"row": row}).output("infoword")

    def compare(self, vectors: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Output:
        """The loss of all n-grams of an update."""
        row, count = beside["row"], len(beside["row"])
        scores = multiply(vectors["sentence"], vectors["alone"]) / self.temperature
        excluded = find_equal(beside["ids"]) | (row[:, None] == row)
        loss, right = info_nce(scores, excluded)
        return Output({"infoword": Term(loss, count=count)}, {"acc/infoword": (right, count)})

    def ngrams(self, batch: Batch) -> Batch:
        """spans.chosen of the original text as rows [m, max_tokens + specials], padded."""
        spans, ids = batch.spans["chosen"], restore_originals(batch).text.ids
        row, start, length = spans[:, 0], spans[:, 1], spans[:, 2].clamp(max=self.max_tokens)
        step = torch.arange(self.max_tokens, device=ids.device)
        position = (row * ids.shape[1] + start)[:, None] + step
        tokens = ids.flatten()[position.clamp(max=ids.numel() - 1)].masked_fill(
            step >= length[:, None], self.pad
        )
        before, after = len(self.wrap.before), len(self.wrap.after)
        tokens = F.pad(tokens, (before, after), value=self.pad)
        for column, token in enumerate(self.wrap.before):
            tokens[:, column] = token
        for number, token in enumerate(self.wrap.after):
            tokens.scatter_(1, (before + length + number)[:, None], token)
        return Batch(batch.key[row], {"text": Seq(tokens, length + before + after)})
