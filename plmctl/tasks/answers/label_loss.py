"""Losses of labels besides plain cross-entropy: weights of classes, focal loss, smoothed labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, nearest
from plmctl.heads.base import cross_entropy, widen

BALANCED = "balanced"
ClassWeights = Mapping[str, float] | str | None


class LabelLoss:
    """`w_y (1 - p_y)^gamma [-(1 - e) log p_y - e / K sum_k log p_k]`, y the label of K.

    gamma: how much less the easy examples count (focal loss: Lin et al., 2017, arXiv:1708.02002,
    sec. 3.2). e: the share of the label that all labels have in equal parts (Szegedy et al., 2016,
    arXiv:1512.00567, sec. 7). The sum over examples is divided by their number, not by that of
    their weights.

    Args:
        weights: {label: w}, 1 of labels that are not in it; "balanced": N / (K n_y), n_y of the N
            training labels being y, whose mean over these is 1 (King and Zeng, 2001); None: 1.
        gamma: The gamma of the focal loss; 0: none.
        smoothing: e.
    """

    def __init__(self, weights: ClassWeights, gamma: float, smoothing: float) -> None:
        if isinstance(weights, str) and weights != BALANCED:
            allowed = f"{BALANCED}, {{<label>: <weight>}} or null{nearest(weights, [BALANCED])}"
            raise ConfigError(
                "task.class_weights", weights, allowed, fix=f"task.class_weights={BALANCED}"
            )
        for label, weight in weights.items() if isinstance(weights, Mapping) else ():
            if not (weight >= 0 and math.isfinite(weight)):
                raise ConfigError(
                    f"task.class_weights.{label}", weight, "0 or more", fix="a weight of 1"
                )
        if not gamma >= 0:
            fix = "task.focal_gamma=2.0"
            raise ConfigError("task.focal_gamma", gamma, "0 (off) or more", fix=fix)
        if not 0 <= smoothing < 1:
            allowed, fix = "0 (off) or more, and less than 1", "task.label_smoothing=0.1"
            raise ConfigError("task.label_smoothing", smoothing, allowed, fix=fix)
        self.weights, self.gamma, self.smoothing = weights, gamma, smoothing

    def fit(self, labels: Iterable[str], names: Sequence[str]) -> None:
        """Learn balanced weights from the labels of training; ConfigError for a weight of none."""
        if self.weights == BALANCED:
            counts = Counter(labels)
            each = counts.total() / len(counts)
            self.weights = {name: each / counts[name] for name in names if counts[name]}
        self._check_names(names)

    def _check_names(self, names: Sequence[str]) -> None:
        unknown = [name for name in self.weights or () if name not in names]
        if unknown:
            known = f"labels of training: {', '.join(names)}{nearest(unknown[0], names)}"
            raise ConfigError("task.class_weights", unknown[0], known, fix="correct the label")

    @property
    def decided(self) -> dict[str, Any]:
        """The setting of the weights, where there are some."""
        return {} if self.weights is None else {"class_weights": self.weights}

    def __call__(
        self, logits: Tensor, labels: Tensor, names: Sequence[str] | None
    ) -> tuple[Tensor, Tensor]:
        """logits [P, K], labels [P] -> (summed loss, number of right first guesses), both without
        IGNORE.
        """
        fitted = self.weights if isinstance(self.weights, Mapping) and names else None
        if not (fitted or self.gamma or self.smoothing):
            return cross_entropy(logits, labels)
        log_p = widen(logits).log_softmax(-1)
        known = labels != IGNORE
        label = labels.masked_fill(~known, 0)
        own = log_p.gather(-1, label[:, None])[:, 0]  # [P]
        loss = -(1 - self.smoothing) * own - self.smoothing * log_p.mean(-1)
        if self.gamma:
            loss = loss * (-own.expm1()).clamp(min=0) ** self.gamma
        if fitted and names:
            weights = torch.tensor([float(fitted.get(name, 1.0)) for name in names])
            loss = loss * weights.to(loss)[label]
        total = loss.masked_fill(~known, 0).sum()
        return total, (logits.argmax(-1) == labels).sum()

    def refuse_shares(self) -> None:
        """ConfigError where single labels are weighed or smoothed, which probabilities are not."""
        for name, value, off in (
            ("class_weights", self.weights, None),
            ("focal_gamma", self.gamma, 0.0),
            ("label_smoothing", self.smoothing, 0.0),
        ):
            if value != off:
                plain = "null" if off is None else "0"
                allowed = f"{plain} with task.columns.probabilities: no label is the right one"
                raise ConfigError(f"task.{name}", value, allowed, fix=f"task.{name}={plain}")

    @staticmethod
    def of_shares(logits: Tensor, shares: Tensor) -> Tensor:
        """`-sum_k y_k log p_k`, summed over the rows of [P, K]; a row of IGNORE counts nothing."""
        known = (shares != IGNORE).all(-1)
        loss = -(shares * widen(logits).log_softmax(-1)).sum(-1)  # [P]
        return loss.masked_fill(~known, 0).sum()


class EachLabelLoss(LabelLoss):
    """`1/K sum_k w_k^(y_k) (1 - q_k)^gamma [-(1 - e/2) log q_k - e/2 log(1 - q_k)]` over K labels
    that an example has or not. q_k is the probability of the truth about label k (y_k = 1 or 0).

    So each label is a choice among two: focal loss as published, and e shared by both of them. The
    weight w_k counts for examples that have the label. Balanced: w_k = the training examples
    without k by those with it, so that both sides of each label count the same.
    """

    def fit_sets(self, sets: Sequence[Iterable[str]], names: Sequence[str]) -> None:
        """As `fit`, of any number of labels an example."""
        if self.weights == BALANCED:
            counts = Counter(name for own in sets for name in {*own})
            self.weights = {
                name: (len(sets) - counts[name]) / counts[name] or 1.0
                for name in names
                if counts[name]
            }
        self._check_names(names)

    def add_up(self, logits: Tensor, labels: Tensor, names: Sequence[str] | None) -> Tensor:
        """logits [N, K], labels [N, K] of 0, 1 or IGNORE -> the summed loss; a row of IGNORE counts
        nothing.
        """
        known = (labels != IGNORE).all(-1)
        z = widen(logits)
        signed = torch.where(labels == 1, z, -z)
        own = F.logsigmoid(signed)  # log q
        loss = -own
        if self.smoothing:
            half = self.smoothing / 2
            loss = -(1 - half) * own - half * F.logsigmoid(-signed)
        if self.gamma:
            loss = loss * (-own.expm1()).clamp(min=0) ** self.gamma
        if isinstance(self.weights, Mapping) and names:
            weights = torch.tensor([float(self.weights.get(name, 1.0)) for name in names])
            loss = torch.where(labels == 1, loss * weights.to(loss), loss)
        return loss.mean(-1).masked_fill(~known, 0).sum()
