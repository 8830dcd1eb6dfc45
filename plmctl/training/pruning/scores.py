"""Learned scores of weights or blocks of weights, which decide what a model reads of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.training.pruning.dense import DenseWeights, add_gradient
from plmctl.training.stabilisers.base import to_key

Block = Sequence[int]  # rows and columns that have one score
BLOCK = "two whole numbers, rows and columns, that divide those of all matrices"


class WeightScores(DenseWeights):
    """A score S of each block of r x c weights W, which decides about the mask M of the block.

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
        super().__init__(weights)
        self.block = check_block(weights, block)
        self.values = nn.ParameterDict()
        self.shapes: dict[str, tuple[int, int]] = {}  # blocks of a matrix
        for name, weight in weights.items():
            rows, columns = (n // size for n, size in zip(weight.shape, self.block, strict=True))
            # a vector, which no optimizer takes for a matrix of the model
            flat = weight.new_full((rows * columns,), start).detach()
            self.values[to_key(name)] = nn.Parameter(flat)
            self.shapes[name] = (rows, columns)

    def of(self, name: str) -> Tensor:
        """[rows / r, columns / c] the scores of a matrix."""
        values: Tensor = self.values[to_key(name)]
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
        add_gradient(self.values[to_key(name)], change.flatten())

    def write_blocks(self, weights: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> None:
        """Put `W M` into the model.

        Args:
            masks: {name: M, one value for each block}.
        """
        self.write(weights, {name: self.spread(mask) for name, mask in masks.items()})


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
