"""Small tasks are trained more often than in proportion to their size."""

from __future__ import annotations

from collections.abc import Mapping

from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count
from plmctl.tasks.mixing.base import Mixing


@part_of("mixing")
class Temperature(Mixing):
    """The epoch has N = sum_i min(n_i, limit) updates. The share of task i is `r_i^(1/T) / sum_j
    r_j^(1/T)` with `r_i = min(n_i, limit) / N` (Raffel et al., 2020, arXiv:1910.10683, sec. 3.5.2;
    multilingual BERT's smoothing has the power 1/T = 0.7). T = 1 is proportional, a large T gives
    all tasks alike.

    Shares are rounded by the largest remainder, so that an epoch keeps its length; a task whose
    share is below one update has one.

    Args:
        temperature: T.
        limit: updates of a task that count at most; None: all.
    """

    def __init__(self, *, temperature: Amount, limit: Count | None = None) -> None:
        self.temperature, self.limit = temperature, limit

    def share_out(self, updates: Mapping[str, int]) -> dict[str, int]:
        sizes = {name: min(n, self.limit or n) for name, n in updates.items()}
        total = sum(sizes.values())
        weights = {name: (n / total) ** (1 / self.temperature) for name, n in sizes.items()}
        exact = {name: total * w / sum(weights.values()) for name, w in weights.items()}
        shares = {name: max(1, int(share)) for name, share in exact.items()}
        behind = sorted(exact, key=lambda name: shares[name] - exact[name])
        for name in behind[: max(0, total - sum(shares.values()))]:
            shares[name] += 1
        return shares
