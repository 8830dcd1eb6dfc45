"""AdaLoRA: low-rank changes whose ranks follow from the importance of each direction (Zhang et al.,
2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, DropoutRate, Number, Rate
from plmctl.nn.cells.base import LinearRows
from plmctl.nn.peft.base import Added, Method
from plmctl.nn.peft.product import ProductChange, attach_products, make_matrices
from plmctl.nn.restrained import Noted, Restrained

DEVIATION = 0.02  # std of the first P and Q (released code)


class RankChange(ProductChange):
    """`y + s P (L * (Q dropout(x)))`: `down` has Q, `values` L [r, 1], `up` P; L = 0 at first."""

    def __init__(
        self,
        maps: Mapping[str, LinearRows],
        *,
        rank: int,
        scale: float,
        dropout: float,
        budget: RankBudget,
    ) -> None:
        super().__init__(maps, scale=scale, dropout=dropout)
        self.down, self.up = make_matrices(maps, rank)
        self.values = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(rank, 1)) for name in self.rows}
        )
        self.budget = budget
        budget.take(self)

    def start(self, generator: Generator) -> None:
        for name, values in self.values.items():
            nn.init.zeros_(values)
            for matrix in (self.down[name], self.up[name]):
                nn.init.normal_(matrix, std=DEVIATION, generator=generator)

    def factors(self, name: str) -> tuple[Tensor, Tensor]:
        return self.values[name] * self.down[name], self.up[name]


class TrackedImportance(nn.Module):
    """Averages over updates of the sensitivity `|w dL/dw|` of each weight, and of its uncertainty,
    how far it is from its average (Zhang et al., 2023, eq. 9 to 11). Only training needs them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fixed", torch.tensor(False))  # whether the ranks are final
        self.fixed: Tensor

    def cover(self, weights: Sequence[Tensor]) -> None:
        """Count further weights, in their order."""
        first = sum(1 for _ in self.buffers()) // 2
        for number, weight in enumerate(weights, first):
            for name in ("sensitivity", "uncertainty"):
                self.register_buffer(f"{name}_{number}", torch.zeros_like(weight))

    @torch.no_grad()
    def update(self, weights: Sequence[Tensor], smooth: float, uncertain: float) -> None:
        """Take up the gradients of an update; a weight without one keeps its averages."""
        for number, weight in enumerate(weights):
            if weight.grad is None:
                continue
            sensitivity, uncertainty = self._averages(number)
            now = (weight * weight.grad).abs().to(sensitivity)
            sensitivity.lerp_(now, 1 - smooth)
            uncertainty.lerp_((now - sensitivity).abs(), 1 - uncertain)

    def score(self, number: int) -> Tensor:
        """The importance of each element of a weight: sensitivity times uncertainty."""
        sensitivity, uncertainty = self._averages(number)
        return sensitivity * uncertainty

    def _averages(self, number: int) -> tuple[Tensor, Tensor]:
        return self.get_buffer(f"sensitivity_{number}"), self.get_buffer(f"uncertainty_{number}")


class RankBudget(Restrained):
    """The number of directions that all changes of a model have together, and which these are.

    After the share x of a run it is `b(x) = bT + (b0 - bT) (1 - (x - begin) / (end - begin))^3`,
    rounded down; b0 before `begin_at`, bT from `end_at` on (eq. 12). The lowest others are set to
    0. They may return until `end_at`; then the choice stays.

    Its penalty is `strength` times the mean of `|P^T P - I|` and `|Q Q^T - I|` over all matrices
    (eq. 4; released code: the norms are not squared).
    """

    term, always = "orthogonality", True
    measures = frozenset({"rank"})

    def __init__(
        self,
        *,
        final: int,
        begin_at: float,
        end_at: float,
        every: int,
        smooth: float,
        uncertain: float,
        strength: float,
    ) -> None:
        super().__init__()
        self.final, self.begin_at, self.end_at, self.every = final, begin_at, end_at, every
        self.smooth, self.uncertain, self.strength = smooth, uncertain, strength
        # in tuples: they are no parts of this module, which stands in each of the changes
        self._changes: tuple[RankChange, ...] = ()
        self._memory = (TrackedImportance(),)
        self._share, self._zeros = 0.0, [torch.empty(0)]

    def take(self, change: RankChange) -> None:
        """Have a further change share the budget."""
        self._changes = (*self._changes, change)
        self.memory.cover(list(_list_weights([change])))

    @property
    def memory(self) -> TrackedImportance:
        """The averages over updates."""
        return self._memory[0]

    def states(self) -> list[nn.Module]:
        return [self.memory]

    def penalty(self, noted: Sequence[Tensor] = ()) -> Tensor:
        norms = []
        for change in self._changes:
            for name in change.rows:
                for matrix in (change.down[name], change.up[name].T):
                    with torch.autocast(matrix.device.type, enabled=False):
                        gram = matrix @ matrix.T
                    norms.append((gram - torch.eye(len(gram)).to(gram)).norm())
        return self.strength * torch.stack(norms).mean()

    @staticmethod
    def measure(parts: Sequence[Restrained], noted: Noted) -> dict[str, Tensor]:
        """The mean rank of the changes."""
        budgets: Sequence[Any] = parts
        values = [values for budget in budgets for values in budget.list_values()]
        ranks = torch.stack([(own.detach() != 0).sum() for own in values])
        return {"rank": ranks.float().mean()}

    def list_values(self) -> list[Tensor]:
        """L of each matrix."""
        return [values for change in self._changes for values in change.values.values()]

    def before_step(self, share: float) -> None:
        self._share = share
        weights = list(_list_weights(self._changes))
        self.memory.update(weights, self.smooth, self.uncertain)
        self._zeros = [values.detach() == 0 for values in self.list_values()]

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        last = self._share >= self.end_at
        if bool(self.memory.fixed):
            for values, zero in zip(self.list_values(), self._zeros, strict=True):
                values.masked_fill_(zero, 0)
        elif last or (self._share > self.begin_at and step % self.every == 0):
            self._choose()
            self.memory.fixed.fill_(last)

    def _choose(self) -> None:
        """Set the least important values to 0."""
        values = self.list_values()
        every, final = sum(map(len, values)), self.final * len(values)
        left = 1 - (self._share - self.begin_at) / max(self.end_at - self.begin_at, 1e-9)
        kept = int((every - final) * max(left, 0.0) ** 3 + final)
        scores = torch.cat(list(self._score()))
        lowest = scores.argsort(stable=True)[: every - kept]
        mask = torch.zeros_like(scores, dtype=torch.bool).index_fill_(0, lowest, True)
        for own, part in zip(values, mask.split([len(own) for own in values]), strict=True):
            own.masked_fill_(part[:, None], 0)

    def _score(self) -> Iterator[Tensor]:
        """[r] of each matrix, the importance of its directions: of L, and the means over the column
        of P and the row of Q (eq. 8).
        """
        count = sum(1 for _ in _list_weights(self._changes))
        for first in range(0, count, 3):
            down, values, up = (self.memory.score(first + n) for n in range(3))
            yield values[:, 0] + down.mean(1) + up.mean(0)


def _list_weights(changes: Sequence[RankChange]) -> Iterator[Tensor]:
    """Q, L, P of each matrix."""
    for change in changes:
        for name in change.rows:
            yield from (change.down[name], change.values[name], change.up[name])


@part_of("peft")
class AdaptiveRank(Method):
    """`W x + s P L Q x` instead of `W x`, L diagonal, P and Q near orthogonal by a penalty; the
    ranks of all maps shrink to `final_rank` in the mean, where directions matter least (Zhang et
    al., 2023, arXiv:2303.10512, sec. 3).

    s = alpha / (rank + 1e-5) (released code). Importance uses the weights before an update
    (algorithm 1). Differs: the library `peft` uses those after it.

    Args:
        maps: The outputs of the chosen maps: query, key, value, output, up, gate, down.
        rank: The first rank of each map.
        final_rank: The mean rank in the end.
        alpha: The numerator of the factor.
        begin_at: The share of the run before which all directions stay.
        end_at: The share of the run after which the choice stays.
        every: Updates from one choice to the next.
        smooth: beta_1, the rate of the average of sensitivities.
        uncertain: beta_2, the rate of the average of uncertainties.
        penalty: The strength of the penalty on P and Q.
        dropout: The rate of dropout on the input of Q.
    """

    mark = "adalora"

    def __init__(
        self,
        *,
        maps: Sequence[str],
        rank: Count,
        final_rank: Count,
        alpha: Amount,
        begin_at: Rate,
        end_at: Rate,
        every: Count = 1,
        smooth: DropoutRate = 0.85,
        uncertain: DropoutRate = 0.85,
        penalty: Number = 0.5,
        dropout: DropoutRate = 0.0,
    ) -> None:
        if final_rank > rank:
            allowed = f"at most rank={rank}, where the ranks begin"
            raise ConfigError("final_rank", final_rank, allowed, fix=f"final_rank={rank}")
        if begin_at > end_at:
            allowed = f"at most end_at={end_at:g}, where the choice ends"
            raise ConfigError("begin_at", begin_at, allowed, fix=f"begin_at={end_at:g}")
        self.maps, self.rank, self.final_rank, self.alpha = tuple(maps), rank, final_rank, alpha
        self.begin_at, self.end_at, self.every = begin_at, end_at, every
        self.smooth, self.uncertain, self.penalty = smooth, uncertain, penalty
        self.dropout, self.scale = dropout, alpha / (rank + 1e-5)

    def add_to(self, model: nn.Module) -> None:
        budget = RankBudget(
            final=self.final_rank,
            begin_at=self.begin_at,
            end_at=self.end_at,
            every=self.every,
            smooth=self.smooth,
            uncertain=self.uncertain,
            strength=self.penalty,
        )

        def make(maps: Mapping[str, LinearRows]) -> Added:
            settings = {"rank": self.rank, "scale": self.scale, "dropout": self.dropout}
            return RankChange(maps, **settings, budget=budget)  # type: ignore[arg-type]

        attach_products(model, self.maps, self.mark, rank=self.rank, make=make)
