"""Dense and banded attention: the same answer, and time and memory against the length of a row.

    python benchmarks/attention_kernels.py                       window 128, 1k to 8k tokens
    python benchmarks/attention_kernels.py --reach 64 --lengths 512 1024 --dropout 0.1

Forward and backward, batch 1, 4 heads of 64, fp32, one thread. The kernels take turns, and the
ratio is the median of those of neighbouring runs, so that a busy machine slows both. Memory is what
is kept between forward and backward, counted by the numbers that autograd saves.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

from plmctl.attention.kernels.banded import BLOCK, Banded
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Seq

HEADS, WIDTH = 4, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--reach", type=int, default=128, help="tokens to either side")
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--causal", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    pattern: Pattern = Window(reach=given.reach)
    pattern = Causal() & pattern if given.causal else pattern
    kernels = {"dense": Dense(), "banded": Banded(block=given.block)}
    print(f"{'tokens':>7} {'dense s':>9} {'banded s':>9} {'faster':>7} {'difference':>11}", end="")
    print(f" {'dense MB':>9} {'banded MB':>9}")
    for length in given.lengths:
        inputs = [torch.randn(1, HEADS, length, WIDTH, requires_grad=True) for _ in range(3)]
        made = {name: answer(kernel, pattern, inputs, 0.0) for name, kernel in kernels.items()}
        pairs = zip(*made.values(), strict=True)
        apart = max(float((a - b).detach().abs().max()) for a, b in pairs)
        times: dict[str, list[float]] = {name: [] for name in kernels}
        for _ in range(given.rounds):
            for name, kernel in kernels.items():
                begin = time.perf_counter()
                answer(kernel, pattern, inputs, given.dropout)
                times[name].append(time.perf_counter() - begin)
        ratio = statistics.median(
            a / b for a, b in zip(times["dense"], times["banded"], strict=True)
        )
        seconds = {name: statistics.median(taken) for name, taken in times.items()}
        memory = {
            name: kept(kernel, pattern, inputs, given.dropout) for name, kernel in kernels.items()
        }
        print(
            f"{length:>7} {seconds['dense']:>9.3f} {seconds['banded']:>9.3f} {ratio:>6.1f}x"
            f" {apart:>11.1e} {memory['dense']:>9.1f} {memory['banded']:>9.1f}"
        )


def answer(kernel: Kernel, pattern: Pattern, inputs: list[Tensor], dropout: float) -> list[Tensor]:
    """The output and the gradients of its sum of squares."""
    out = run(kernel, pattern, inputs, dropout)
    return [out, *torch.autograd.grad(out.square().sum(), inputs)]


def run(kernel: Kernel, pattern: Pattern, inputs: list[Tensor], dropout: float) -> Tensor:
    length = inputs[0].shape[2]
    seq = Seq(torch.zeros(1, length, dtype=torch.long), torch.tensor([length]), full=True)
    place = torch.arange(length)[None]
    plan = kernel.plan(pattern, seq)
    return plan.attend(*inputs, q_positions=place, k_positions=place, dropout=dropout)


def kept(kernel: Kernel, pattern: Pattern, inputs: list[Tensor], dropout: float) -> float:
    """Megabytes that autograd saves, each piece of memory once."""
    pieces: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        pieces[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = run(kernel, pattern, inputs, dropout)
    del out
    return sum(pieces.values()) / 1e6


if __name__ == "__main__":
    main()
