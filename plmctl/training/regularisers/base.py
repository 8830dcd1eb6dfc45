"""The interface of regularisers: they decide at which points around a micro-batch the loss is
computed, and which of the losses are learned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of
from plmctl.distill.base import Question
from plmctl.training.regularisers.around import Around

TINY = 1e-30  # least divisor of a gradient


@base_of("regulariser")
class Regulariser(ABC):
    """Makes the gradient of a micro-batch from passes in which its words have other vectors.

    Vectors of words alone are changed, neither positions nor padding. All passes of a micro-batch
    drop the same values (Zhu et al., 2020, arXiv:1909.11764, sec. 3.3). With `every` = n only each
    n-th update has more than one pass (lazy regularisation: Karras et al., 2020,
    arXiv:1912.04958, sec. 3.1).

    Published lengths are absolute, in the space of a large model whose vectors are long. With
    `relative` they are shares of the length of the row's own word vectors.
    """

    # kind of its predictions, if it compares some
    question: Question | None = None

    def __init__(self, *, every: int = 1, relative: bool = False) -> None:
        if every < 1:
            allowed = "1 (each update) or more"
            raise ConfigError("every", every, allowed, fix="regulariser.every=1")
        self.every, self.relative = every, relative

    def counts(self, batch: Batch) -> dict[str, int]:
        """{the name of a term of its own: how many summands its total has}."""
        return {}

    def unit(self, vectors: Tensor, real: Tensor) -> Tensor:
        """[B, T, W], [B, T] bool -> [B, 1, 1] the length in which the settings count: 1, or that of
        the row.
        """
        if not self.relative:
            return vectors.new_ones(len(real), 1, 1)
        return measure_rows(vectors.detach() * real[..., None])

    def units(self, around: Around) -> list[Tensor]:
        """[B, 1, 1] of each look-up of a micro-batch that has been read."""
        return [self.unit(vectors, real) for vectors, real in around.words()]

    @abstractmethod
    def run(self, around: Around) -> None:
        """Read, and learn what is read; the last `learn` says that it is the last."""


def check_steps(steps: int, rate: float) -> None:
    """ConfigError for no step uphill, or one of no length."""
    if steps < 1:
        raise ConfigError("steps", steps, "1 or more", fix="regulariser.steps=1")
    if not rate > 0:
        raise ConfigError("rate", rate, "more than 0", fix="regulariser.rate=0.3")


def to_unit(gradients: Sequence[Tensor]) -> list[Tensor]:
    """`g / ||g||_2` for each row of [B, T, W]; 0 stays 0."""
    return [g / measure_rows(g).clamp(min=TINY) for g in gradients]


def measure_rows(x: Tensor) -> Tensor:
    """[B, T, W] -> [B, 1, 1], the length of each row as one vector."""
    return x.flatten(1).norm(dim=1)[:, None, None]


def climb(
    shift: Sequence[Tensor],
    gradients: Sequence[Tensor],
    units: Sequence[Tensor],
    rate: float,
    radius: float,
) -> list[Tensor]:
    """`P(r + rate u g / ||g||_2)` for each r and g [B, T, W] and its unit u [B, 1, 1]; P shortens
    rows to `radius` units where they are longer, 0: none.
    """
    made = []
    for own, unit, direction in zip(shift, units, to_unit(gradients), strict=True):
        moved = own + rate * unit * direction
        if radius:
            moved = moved * (radius * unit / measure_rows(moved).clamp(min=TINY)).clamp(max=1.0)
        made.append(moved)
    return made


def draw_uniform(vectors: Tensor, real: Tensor, generator: Generator) -> Tensor:
    """U(-1, 1) divided by the root of the number of values of a row, 0 at padding.

    Args:
        vectors: [B, T, W].
        real: [B, T] bool.
        generator: The generator of the device of `vectors`.
    """
    drawn = torch.rand(vectors.shape, generator=generator, device=vectors.device) * 2 - 1
    size = real.sum(1) * vectors.shape[-1]  # [B]
    scale = real / size.clamp(min=1).sqrt()[:, None]  # [B, T]
    return drawn.to(vectors.dtype) * scale[..., None]
