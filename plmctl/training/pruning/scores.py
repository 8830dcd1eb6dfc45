"""Learned scores of weights or blocks of weights, which decide what a model reads of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.training.stabilisers.base import KeptTensors

Block = Sequence[int]  # rows and columns that have one score
BLOCK = "two whole numbers, rows and columns, that divide those of all matrices"


class WeightScores(nn.Module):
    """A score S of each block of r x c weights, and the weights W themselves. The model holds `W' =
    W M` between two updates, W only while one is made.

    The gradients are straight-through, `dL/dS = sum over the block of dL/dW' W dM/dS` (Sanh et al.,
    2020, arXiv:2005.07683, sec. 4.1), and `dL/dW = dL/dW' M`.

    Args:
        weights: {name: matrix [out, in]}.
        block: r and c.
        start: The first score.
    """

    def __init__(
        self, weights: Mapping[str, nn.Parameter], block: Block = (1, 1), start: float = 0.0
    ) -> None:
        super().__init__()
        self.block = check_block(weights, block)
        self.dense = KeptTensors(weights)
        self.values = nn.ParameterDict()
        self.shapes: dict[str, tuple[int, int]] = {}  # blocks of a matrix
        for name, weight in weights.items():
            rows, columns = (n // size for n, size in zip(weight.shape, self.block, strict=True))
            # a vector, which no optimizer takes for a matrix of the model
            flat = weight.new_full((rows * columns,), start).detach()
            self.values[_spell(name)] = nn.Parameter(flat)
            self.shapes[name] = (rows, columns)

    def of(self, name: str) -> Tensor:
        """[rows / r, columns / c] the scores of a matrix."""
        values: Tensor = self.values[_spell(name)]
        return values.view(self.shapes[name])

    def all(self) -> dict[str, Tensor]:
        """{name: scores}."""
        return {name: self.of(name).detach() for name in self.shapes}

    def spread(self, blocks: Tensor) -> Tensor:
        """[out, in] one value for each weight, from one for each block."""
        rows, columns = self.block
        return blocks.repeat_interleave(rows, 0).repeat_interleave(columns, 1)

    def learn(self, name: str, gradient: Tensor, slope: Tensor | None = None) -> None:
        """Add the gradient of the scores.

        Args:
            name: The matrix.
            gradient: dL/dW'.
            slope: dM/dS of each block; None: 1.
        """
        rows, columns = self.shapes[name]
        own = (gradient * self.dense.of(name)).view(rows, self.block[0], columns, self.block[1])
        change = own.sum((1, 3)) if slope is None else own.sum((1, 3)) * slope
        values = self.values[_spell(name)]
        flat = change.flatten().to(values.dtype)
        values.grad = flat if values.grad is None else values.grad + flat

    def restore(self, weights: Mapping[str, Tensor]) -> None:
        """Put W into the model."""
        for name in self.shapes:
            weights[name].copy_(self.dense.of(name))

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Keep the W of the model."""
        for name in self.shapes:
            self.dense.of(name).copy_(weights[name])

    def write(self, weights: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> None:
        """Put `W M` into the model.

        Args:
            weights: The weights of the model.
            masks: {name: M, one value for each block}.
        """
        for name in self.shapes:
            mask = self.spread(masks[name]).to(self.dense.of(name).dtype)
            weights[name].copy_(self.dense.of(name) * mask)


def check_block(weights: Mapping[str, Tensor], block: Block) -> tuple[int, int]:
    """The two sizes of blocks; ConfigError where they do not divide a matrix."""
    sizes = [int(size) for size in block]
    if len(sizes) != 2 or min(sizes) < 1:
        raise ConfigError("block", list(block), BLOCK, fix="block=[1,1]")
    for name, weight in weights.items():
        if weight.shape[0] % sizes[0] or weight.shape[1] % sizes[1]:
            allowed = f"{BLOCK}: {name} has {weight.shape[0]} x {weight.shape[1]}"
            raise ConfigError("block", list(block), allowed, fix="block=[1,1]")
    return sizes[0], sizes[1]


def _spell(name: str) -> str:
    return name.replace(".", "/")
