"""Adafactor, with which T5 was trained: second moments in the memory of one row and one column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.shares import is_shared
from plmctl.training.optim.groups import Named, groups
from plmctl.training.optim.shards import settle
from plmctl.training.optim.uncompiled import Uncompiled


@part_of("optim")
class Adafactor(Uncompiled):
    """Steps in proportion to each tensor, by a second moment of which only the means of rows and
    columns are kept (Shazeer and Stern, 2018, arXiv:1804.04235, algorithms 4 and 5).

    At update t, with decay `b = 1 - t^-decay`: `r` and `c` are running means of `g^2 + eps` over
    columns and over rows; `u = g / sqrt(r c / mean(r))`; `u /= max(1, rms(u) / threshold)`;
    `theta -= lr max(smallest, rms(theta)) u`. A tensor with a last dimension below `factored_from`,
    or with one dimension, keeps its whole second moment.

    T5's rate, `1 / sqrt(max(t, 10000))`, is `lr` 0.01 with the schedule rsqrt.
    Differs: of more than two dimensions the last two are factored (paper and mesh-tensorflow: the
    two largest).

    Args:
        lr: The peak of the step, relative to the size of a tensor; without `relative`, absolute.
        relative: Steps are multiplied by `max(smallest, rms(theta))`.
        smallest: The smallest size of a tensor (the paper's epsilon 2).
        eps: Added to squares (epsilon 1).
        threshold: The largest root mean square of an update (d); null: any.
        decay: The power by which the decay of the second moment rises to 1.
        momentum: The momentum of the steps (beta 1); null: none, and no memory for it.
        weight_decay: Times the step's rate.
        factored_from: The least size of both last dimensions of a factored tensor (T5: 128).
    """

    def __init__(
        self,
        *,
        parameters: Named,
        lr: float,
        relative: bool = True,
        smallest: float = 1e-3,
        eps: float = 1e-30,
        threshold: float | None = 1.0,
        decay: float = 0.8,
        momentum: float | None = None,
        weight_decay: float = 0.0,
        factored_from: int = 128,
    ) -> None:
        for name, value in (
            *(("lr", lr), ("smallest", smallest), ("eps", eps)),
            *(("decay", decay), ("weight_decay", weight_decay)),
        ):
            if not value >= 0:
                raise ConfigError(f"optim.{name}", value, "0 or more")
        if threshold is not None and not threshold > 0:
            raise ConfigError("optim.threshold", threshold, "more than 0, or null")
        if momentum is not None and not 0 <= momentum < 1:
            raise ConfigError("optim.momentum", momentum, "0 <= momentum < 1, or null")
        if factored_from < 1:
            raise ConfigError("optim.factored_from", factored_from, "1 or more")
        super().__init__(groups(parameters, lr=lr, weight_decay=weight_decay), {"lr": lr})
        self.relative, self.smallest, self.eps = relative, smallest, eps
        self.threshold, self.decay, self.momentum = threshold, decay, momentum
        self.factored_from = factored_from

    def move(self, p: Tensor, grad: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state.update(self._start(p))
        state["step"] += 1
        kept = 1 - float(state["step"]) ** -self.decay
        move = self._divide(grad, state, kept)
        if self.threshold is not None:
            move /= (_rms(move) / self.threshold).clamp(min=1.0)
        rate = _rms(p).clamp(min=self.smallest) * group["lr"] if self.relative else group["lr"]
        move *= rate
        if self.momentum is not None:
            move = state["exp_avg"].lerp_(move, 1 - self.momentum)
        if group["weight_decay"]:
            p.sub_(p * (group["weight_decay"] * rate))
        p.sub_(move)

    def _start(self, p: Tensor) -> dict[str, Tensor]:
        """Zeros; `step` counts the updates of this tensor."""
        start = {"exp_avg_sq": torch.zeros_like(p)}
        if p.ndim >= 2 and min(p.shape[-2:]) >= self.factored_from:
            start = {"rows": _mean(p, -1).zero_(), "columns": _mean(p, -2).zero_()}
        if self.momentum is not None:
            start["exp_avg"] = torch.zeros_like(p)
        return {"step": torch.tensor(0.0), **start}

    def _divide(self, grad: Tensor, state: Mapping[str, Tensor], kept: float) -> Tensor:
        """The gradient over the root of its second moment, after one more square."""
        square = grad.square().add_(self.eps)
        if "exp_avg_sq" in state:
            return grad * state["exp_avg_sq"].mul_(kept).add_(square, alpha=1 - kept).rsqrt()
        rows, columns = state["rows"], state["columns"]
        rows.mul_(kept).add_(_mean(square, -1), alpha=1 - kept)
        columns.mul_(kept).add_(_mean(square, -2), alpha=1 - kept)
        share = (rows / _mean(rows, -1).unsqueeze(-1)).rsqrt_().unsqueeze(-1)
        return grad * share * columns.rsqrt().unsqueeze(-2)


def _rms(values: Tensor) -> Tensor:
    square = values.square()
    if not is_shared(values):
        return square.mean().sqrt()
    return (settle(square.sum()) / values.numel()).sqrt()


def _mean(values: Tensor, dim: int) -> Tensor:
    """The mean, also of a tensor that processes share unevenly."""
    return settle(values.sum(dim)) / values.shape[dim] if is_shared(values) else values.mean(dim)
