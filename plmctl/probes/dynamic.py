"""Dynamic evaluation: a language model goes on learning from the text that it is scored on (Krause
et al., 2018).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from plmctl.core.parts import base_of, part_of
from plmctl.core.values import Amount, Rate
from plmctl.models.base import Model


@base_of("dynamic")
class Adaptation:
    """`w <- w - lr g + decay (w_0 - w)` after each window has been scored; g is the gradient of the
    mean loss of its tokens, w_0 are the weights of the checkpoint, which itself stays as it is.
    """

    # a text whose gradients decide how far each weight may move; None: the rule needs none
    train_path: str | None = None

    def __init__(self, *, lr: Amount, decay: Rate = 0.0) -> None:
        self.lr, self.decay = lr, decay

    def step(self, gradient: Tensor, size: Tensor | None) -> Tensor:
        """The amount that is subtracted from a weight.

        Args:
            gradient: The gradient of the last window.
            size: the root of the mean square of the gradient over windows of `train_path`.
        """
        raise NotImplementedError(type(self).__name__)

    def pull(self, size: Tensor | None, mean: float) -> Tensor | float:
        """The share of the way back to the checkpoint that a weight goes.

        Args:
            size: The root of the mean square, as for `step`.
            mean: The mean of `size` over all weights.
        """
        return self.decay


@part_of("dynamic")
class SGDAdaptation(Adaptation):
    """Plain gradient descent (Krause et al., 2018, arXiv:1709.07432, sec. 3), with a decay towards
    the weights of the checkpoint.
    """

    def step(self, gradient: Tensor, size: Tensor | None) -> Tensor:
        return self.lr * gradient


@part_of("dynamic")
class RMSAdaptation(Adaptation):
    """`g / (sqrt(MS) + eps)` instead of g. MS is the mean square of the gradient over windows of
    the training text (Krause et al., 2018, arXiv:1709.07432, sec. 3; 2019, arXiv:1904.08378, sec.
    3).

    With `scaled_decay` (2018), decay counts `sqrt(MS) / mean(sqrt(MS))` times, at most 1 in all.

    Args:
        train_path: the training text, or a part of it.
    """

    def __init__(
        self,
        *,
        lr: Amount,
        train_path: str,
        decay: Rate = 0.0,
        eps: Amount = 1e-8,
        scaled_decay: bool = False,
    ) -> None:
        super().__init__(lr=lr, decay=decay)
        self.train_path, self.eps, self.scaled_decay = train_path, eps, scaled_decay

    def step(self, gradient: Tensor, size: Tensor | None) -> Tensor:
        assert size is not None
        return self.lr * gradient / (size + self.eps)

    def pull(self, size: Tensor | None, mean: float) -> Tensor | float:
        if not self.scaled_decay:
            return self.decay
        assert size is not None
        return (self.decay * size / mean).clamp(max=1)


class Learner:
    """A copy of a model, in evaluation mode, that learns by a rule."""

    def __init__(self, rule: Adaptation, model: Model) -> None:
        self.rule, self.model = rule, copy.deepcopy(model)
        self._weights = [weight.requires_grad_() for weight in self.model.parameters()]
        self._first = [weight.detach().clone() for weight in self._weights]
        self._squares = [torch.zeros_like(weight) for weight in self._first]
        self._measured = 0

    def measure(self, loss: Tensor) -> None:
        """Add a window of the training text, with this mean loss, to the sizes of gradients."""
        for square, gradient in zip(self._squares, self._differentiate(loss), strict=True):
            square += gradient.detach() ** 2
        self._measured += 1

    def learn(self, loss: Tensor) -> None:
        """Move the weights after a window with this mean loss."""
        sizes: list[Tensor | None] = [None] * len(self._weights)
        mean = 1.0
        if self._measured:
            sizes = [(square / self._measured).sqrt() for square in self._squares]
            total = sum(float(size.sum(dtype=torch.float64)) for size in sizes if size is not None)
            mean = total / sum(weight.numel() for weight in self._weights)
        gradients = self._differentiate(loss)
        with torch.no_grad():
            for weight, first, gradient, size in zip(
                self._weights, self._first, gradients, sizes, strict=True
            ):
                back = self.rule.pull(size, mean) * (first - weight)
                weight += back - self.rule.step(gradient, size)

    def _differentiate(self, loss: Tensor) -> tuple[Tensor, ...]:
        """The gradient of each weight; zeros where a window does not reach it."""
        return torch.autograd.grad(loss, self._weights, allow_unused=True, materialize_grads=True)
