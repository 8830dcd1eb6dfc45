"""Records of self-attention, for distillation and attention maps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plmctl.attention.kernels.base import KernelPlan, Weigh
from plmctl.attention.kernels.dense import score
from plmctl.attention.op import GlobalRows

ATTENTION = frozenset({"queries", "keys", "values", "scores", "attention"})
HASHES = frozenset({"buckets"})

Record = frozenset[str]  # the names of the tensors to record
NONE: Record = frozenset()


@dataclass(frozen=True)
class Recorder:
    """Lists by name, one tensor for each layer of self-attention that has run.

    "queries", "keys", "values" [B, H, T, D] as the linear maps give them; "scores" [B, H, Tq, Tk]:
    `q k^T / sqrt(D)` and the position bias, the lowest number for tokens that may not be seen;
    "attention": their softmax, or the function that replaces it, without dropout, 0 for the same
    tokens. "buckets" [B, H, R, T]: of each token in each round, where attention hashes; rows that
    are short enough to be seen as a whole have none.
    """

    recorded: dict[str, list[Tensor]]

    @classmethod
    def of(cls, record: Record) -> Recorder | None:
        """A recorder for these names; None if none of them belongs to attention."""
        names = sorted(record & (ATTENTION | HASHES))
        return cls({name: [] for name in names}) if names else None

    def vectors(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Record the outputs of the linear maps, before positions rotate them."""
        for name, vector in (("queries", q), ("keys", k), ("values", v)):
            if name in self.recorded:
                self.recorded[name].append(vector)

    def hashes(self, buckets: Tensor) -> None:
        """Record the buckets of the tokens, before documents are told apart."""
        if "buckets" in self.recorded:
            self.recorded["buckets"].append(buckets)

    def products(
        self,
        q: Tensor,
        k: Tensor,
        plan: KernelPlan,
        bias: Tensor | None,
        weigh: Weigh | None = None,
    ) -> None:
        """Record scores and attention, computed again in fp32 or wider, since kernels keep no
        scores.
        """
        if not {"scores", "attention"} & self.recorded.keys():
            return
        scores = score(q, k, plan=plan, bias=bias)
        hidden = plan.hidden(scores)
        if "scores" in self.recorded:
            self.recorded["scores"].append(scores)
        if "attention" in self.recorded:
            low = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
            shares = scores.softmax(-1) if weigh is None else weigh(low)
            self.recorded["attention"].append(
                shares if hidden is None else shares.masked_fill(hidden, 0)
            )

    def replace_rows(
        self,
        rows: GlobalRows,
        q: Tensor,
        k: Tensor,
        bias: Tensor | None,
        weigh: Weigh | None = None,
    ) -> None:
        """Record scores and attention of global tokens, q [B, H, G, D], instead of the rows that
        the last `products` gave for them.
        """
        new = Recorder({name: [] for name in self.recorded.keys() & ATTENTION})
        new.products(q, k, rows.plan, bias, weigh)
        for name, (maps,) in ((name, maps) for name, maps in new.recorded.items() if maps):
            self.recorded[name][-1] = rows.put(self.recorded[name][-1], maps)
