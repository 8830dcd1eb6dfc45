"""The time of disentangled attention against plain attention, forward and backward, in turns:
`python benchmarks/disentangled.py`.

One cell each, with its maps, in training. The least processor time of `--rounds` counts, and the
ratio is the median of the ratios of single turns. `gather` computes the scores of distances as the
released code does, with an index for each query and key.

    python benchmarks/disentangled.py --length 512 --width 768 --heads 12 --batch 8 --rounds 9
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.batch import Seq
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.disentangled_attention import DisentangledAttention
from plmctl.nn.disentangled import Disentangled
from plmctl.nn.env import Env, Streams
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import NoPosition, Position
from plmctl.training.device.allocator import keep_freed_memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=512, help="tokens of a row")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8, help="rows")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    keep_freed_memory(torch.device("cpu"))
    sizes = {"width": given.width, "num_heads": given.heads, "dropout": given.dropout}
    norm = partial(layer_norm, eps=1e-7)
    places = Disentangled(width=given.width, buckets=256, norm=norm, dropout=given.dropout)
    arms = {
        "plain": Arm(Attention(**sizes), NoPosition(), given),
        "v1": Arm(
            DisentangledAttention(**sizes, key_bias=False),
            Disentangled(width=given.width, dropout=given.dropout),
            given,
        ),
        "v3": Arm(DisentangledAttention(**sizes, shared=True), places, given),
        "v3, gather": Arm(DisentangledAttention(**sizes, shared=True), places, given, tracked=True),
    }
    for arm in arms.values():
        arm.run()  # memory is allocated
    turns = [{name: arm.run() for name, arm in arms.items()} for _ in range(given.rounds)]
    print(f"{'':12}{'ms':>9}{'of plain':>10}")
    for name in arms:
        least = min(turn[name] for turn in turns)
        ratio = statistics.median(turn[name] / turn["plain"] for turn in turns)
        print(f"{name:12}{1e3 * least:9.1f}{ratio:10.2f}")


class Arm:
    """A cell with its input.

    Args:
        tracked: The positions stand in a track of their own, so that any may occur.
    """

    def __init__(
        self, cell: nn.Module, position: Position, given: argparse.Namespace, tracked: bool = False
    ) -> None:
        rows, length = given.batch, given.length
        self.cell, self.x = cell, torch.randn(rows, length, given.width, requires_grad=True)
        self.weights = [self.x, *(p for part in (cell, position) for p in part.parameters())]
        positions = torch.arange(length)[None]
        tracks: dict[str, Tensor] = {}
        if tracked:  # the last two change places
            positions = torch.cat([positions[:, :-2], positions[:, -2:].flip(1)], 1)
            tracks = {"position": positions.expand(rows, -1)}
        ids = torch.zeros(rows, length, dtype=torch.int64)
        seq = Seq(ids, torch.full((rows,), length), tracks, full=True)
        self.env = Env({"text": BoundOp(Mask(None), position, positions)}, seq=seq)

    def run(self) -> float:
        """The seconds of a forward and a backward pass."""
        started = time.process_time()
        loss = self.cell(Streams({"text": self.x}), self.env).sum()
        torch.autograd.grad(loss, self.weights, allow_unused=True)
        return time.process_time() - started


if __name__ == "__main__":
    main()
