"""Dense and banded attention: the same answer, and time and memory against the length of a row.

    python benchmarks/attention_kernels.py                       window 128, 1k to 8k tokens
    python benchmarks/attention_kernels.py --reach 64 --lengths 512 1024 --dropout 0.1
    python benchmarks/attention_kernels.py --pattern strided fixed big_bird --lengths 4096 16384

Forward and backward, batch 1, 4 heads of 64, fp32, one thread; microseconds are those of a token.
The kernels take turns, and the
ratio is the median of those of neighbouring runs, so that a busy machine slows both. Memory is what
is kept between forward and backward, counted by the numbers that autograd saves.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.kernels.tiling import BLOCK
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.big_bird import BigBird
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.diet import diet
from plmctl.attention.patterns.sparse_transformer import sparse_transformer
from plmctl.attention.patterns.window import Window
from plmctl.attention.patterns.windows import windows
from plmctl.core.batch import Seq

HEADS, WIDTH = 4, 64


def root(length: int) -> int:
    """About the root of the length, a power of 2."""
    return int(2 ** round(math.log2(length) / 2))


def sparse(variant: str, factors: str, length: int) -> Pattern:
    """The Sparse Transformer's pattern; a quarter of each fixed block are summaries."""
    stride = root(length)
    columns = stride // 4 if variant == "fixed" else None
    return sparse_transformer(
        variant=variant,
        stride=stride,
        columns=columns,
        factors=factors,
        num_heads=HEADS,
        num_layers=1,
    )


# name -> (reach, length) -> pattern
PATTERNS: dict[str, Callable[[int, int], Pattern]] = {
    "window": lambda reach, length: Window(reach=reach),
    "by_head": lambda reach, length: windows(reach=reach, dilation=[[1, 1, 2, 4]], num_heads=HEADS),
    "strided": lambda reach, length: sparse("strided", "heads", length),
    "strided_merged": lambda reach, length: sparse("strided", "merged", length),
    "fixed": lambda reach, length: sparse("fixed", "heads", length),
    "fixed_merged": lambda reach, length: sparse("fixed", "merged", length),
    "big_bird": lambda reach, length: BigBird(
        block=64, window=3, first=1, last=1, random=3, seed=0, num_layers=1
    ),
    "diet": lambda reach, length: diet(variant="dilated", first=3, base=2, num_layers=6).at_layer(
        5
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pattern", nargs="+", default=["window"], choices=PATTERNS)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--reach", type=int, default=128, help="tokens to either side")
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--causal", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.pattern:
        print(name)
        compare(PATTERNS[name], given)


def compare(make: Callable[[int, int], Pattern], given: argparse.Namespace) -> None:
    """Print a row for each length."""
    kernels = {"dense": Dense(), "banded": Banded(block=given.block)}
    print(f"{'tokens':>7} {'dense us':>9} {'banded us':>9} {'faster':>7} {'scores':>7}", end="")
    print(f" {'difference':>11} {'dense MB':>9} {'banded MB':>9}")
    for length in given.lengths:
        pattern = make(given.reach, length)
        pattern = Causal() & pattern if given.causal else pattern
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
        micros = {name: 1e6 * statistics.median(taken) / length for name, taken in times.items()}
        share = kernels["banded"].share(pattern, length)
        memory = {
            name: kept(kernel, pattern, inputs, given.dropout) for name, kernel in kernels.items()
        }
        print(
            f"{length:>7} {micros['dense']:>9.1f} {micros['banded']:>9.1f} {ratio:>6.1f}x"
            f" {share:>7.1%} {apart:>11.1e} {memory['dense']:>9.1f} {memory['banded']:>9.1f}"
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
