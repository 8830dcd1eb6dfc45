"""Dense and banded attention: the same answer, and time and memory against the length of a row.

    python benchmarks/attention_kernels.py                       window 128, 1k to 8k tokens
    python benchmarks/attention_kernels.py --reach 64 --lengths 512 1024 --dropout 0.1
    python benchmarks/attention_kernels.py --pattern strided fixed big_bird --lengths 4096 16384

Forward and backward, batch 1, 4 heads of 64, fp32, one thread; microseconds are those of a token.
The kernels take turns, and the
ratio is the median of those of neighbouring runs, so that a busy machine slows both. Memory is what
is kept between forward and backward, counted by the numbers that autograd saves.

    python benchmarks/attention_kernels.py --rates               windows and packed rows, on CUDA
    python benchmarks/attention_kernels.py --rates --lengths 256 --reach 16 --heads 2    on a CPU

The rate of every kernel that serves the device: a window of 512 tokens (256 to either side) and
packed documents of about 512, rows of 8,192 tokens, 12 heads of 64, in bf16 on CUDA. A rate counts
the pairs that see each other, 4 D operations each forward and 10 D backward. "bare" is torch's
`varlen_attn` with nothing before and after it: kernel=varlen should reach
80% of its rate. The plan, made once for all layers of a batch, has a column of its own.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.kernels.flex import Flex
from plmctl.attention.kernels.tiling import BLOCK
from plmctl.attention.kernels.varlen import Varlen, VarlenPlan
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.big_bird import BigBird
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.diet import diet
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
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
    parser.add_argument("--lengths", type=int, nargs="+", help="1024 2048 4096 8192; rates: 8192")
    parser.add_argument("--reach", type=int, help="tokens to either side; 128; rates: 256")
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--rates", action="store_true", help="the rates of all kernels")
    parser.add_argument("--rows", type=int, default=2, help="of a batch, for rates")
    parser.add_argument("--heads", type=int, default=12, help="of 64 columns, for rates")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.rates:
        compare_rates(given)
        return
    given.lengths, given.reach = given.lengths or [1024, 2048, 4096, 8192], given.reach or 128
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


@dataclass(frozen=True)
class Case:
    """A pattern and rows of a batch."""

    name: str
    pattern: Pattern
    seq: Seq


def compare_rates(given: argparse.Namespace) -> None:
    """Print a table for windows and one for packed rows."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU, one thread"
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    print(f"torch {torch.__version__}, {name}, {str(kind).removeprefix('torch.')}")
    for length in given.lengths or [8192]:
        for case in cases(given.reach or 256, given.rows, length, device):
            print(f"\n{case.name}, {given.rows} rows of {length:,} tokens, {given.heads} heads")
            print(f"{'kernel':>8} {'plan ms':>9} {'forward':>9} {'both ms':>9}", end="")
            print(f" {'TFLOP/s':>9} {'both':>9} {'of bare':>8} {'apart':>8}")
            compare_kernels(case, given, kind)


def cases(reach: int, rows: int, length: int, device: torch.device) -> Iterator[Case]:
    """A window, a causal one, and packed documents, as long as the window on average."""
    every = Padding() & Documents()
    ids = torch.zeros(rows, length, dtype=torch.long, device=device)
    plain = Seq(ids, torch.full((rows,), length, device=device), full=True)
    yield Case(f"window of {2 * reach + 1}", Window(reach=reach) & every, plain)
    yield Case(f"causal window of {reach + 1}", Causal() & Window(reach=reach) & every, plain)
    g = torch.Generator().manual_seed(0)
    begins = torch.rand(rows, length, generator=g) < 1 / (2 * reach + 1)
    begins[:, 0] = True
    tracks = {"document": (begins.cumsum(1) - 1).to(device)}
    packed = Seq(ids, plain.length, tracks, full=True)
    yield Case(f"documents of about {2 * reach + 1}", Full() & every, packed)


def compare_kernels(case: Case, given: argparse.Namespace, kind: torch.dtype) -> None:
    """Print a line for each kernel that serves this device; what fails is named."""
    rows, length = case.seq.ids.shape
    device, g = case.seq.ids.device, torch.Generator().manual_seed(0)
    allowed = case.pattern.dense(case.seq)
    assert allowed is not None
    pairs = int(allowed.expand(rows, -1, -1, -1).sum()) * given.heads
    shape = (rows, length, given.heads, WIDTH)  # as a linear map gives them
    inputs = [
        torch.randn(shape, generator=g).to(device, kind).transpose(1, 2).requires_grad_()
        for _ in range(3)
    ]
    made: dict[str, tuple[float, Callable[[], Tensor]]] = {}
    for name, prepare in prepared(case, inputs).items():
        try:
            begin = clock(device)
            call = prepare()
            made[name] = (clock(device) - begin, call)
            train(call, inputs)  # compiles
        except Exception as error:  # a kernel that this torch or GPU lacks
            made.pop(name, None)
            print(f"{name:>8} no: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    times = {name: measure(call, inputs, given.rounds) for name, (_, call) in made.items()}
    expected = made["dense"][1]().detach().float() if "dense" in made else None
    for name, (plan, call) in made.items():
        forward, both = times[name]
        rates = [4 * pairs * WIDTH / forward, 14 * pairs * WIDTH / both]
        best = times.get("bare", (None, None))[1]
        share = f"{best / both:>8.0%}" if best else f"{'':>8}"
        apart = (
            "" if expected is None else f"{(call().detach().float() - expected).abs().max():.1e}"
        )
        print(
            f"{name:>8} {1e3 * plan:>9.2f} {1e3 * forward:>9.2f} {1e3 * both:>9.2f}"
            f" {rates[0] / 1e12:>9.2f} {rates[1] / 1e12:>9.2f} {share} {apart:>8}"
        )


def prepared(case: Case, inputs: list[Tensor]) -> dict[str, Callable[[], Callable[[], Tensor]]]:
    """By name of a kernel: what makes its plan and gives the call to be timed."""
    place = torch.arange(case.seq.ids.shape[1], device=case.seq.ids.device)[None]

    def planned(kernel: Kernel) -> Callable[[], Callable[[], Tensor]]:
        def prepare() -> Callable[[], Tensor]:
            plan = kernel.plan(case.pattern, case.seq)
            return lambda: plan.attend(*inputs, q_positions=place, k_positions=place)

        return prepare

    kernels: dict[str, Kernel] = {"dense": Dense(), "banded": Banded()}
    here = case.seq.ids.device.type
    if here in Flex.devices:
        kernels["flex"] = Flex()
    if here in Varlen.devices:
        kernels["varlen"] = Varlen()
    found = {name: planned(kernel) for name, kernel in kernels.items()}
    return found | ({"bare": lambda: bare(case, inputs)} if "varlen" in kernels else {})


def bare(case: Case, inputs: list[Tensor]) -> Callable[[], Tensor]:
    """torch's function on [B T, H, D], with nothing before and after it but a view of it."""
    plan = Varlen().plan(case.pattern, case.seq)
    assert isinstance(plan, VarlenPlan)
    packing, window, rows = plan.packing, plan.band.window, len(case.seq.ids)
    given = [x.detach().transpose(1, 2).flatten(0, 1) for x in inputs]
    own = [x.requires_grad_() for x in given]
    begins, longest = packing.begins, packing.longest

    def call() -> Tensor:
        y = plan.function(*own, begins, begins, longest, longest, window_size=window)
        return y.unflatten(0, (rows, -1)).transpose(1, 2)

    call.inputs = own  # type: ignore[attr-defined]
    return call


def train(call: Callable[[], Tensor], inputs: list[Tensor]) -> None:
    y = call()
    torch.autograd.grad(y, getattr(call, "inputs", inputs), torch.ones_like(y))


def measure(call: Callable[[], Tensor], inputs: list[Tensor], rounds: int) -> tuple[float, float]:
    """Median seconds of the forward pass, and of both passes."""
    device, taken = inputs[0].device, (list[float](), list[float]())
    times = 10 if device.type == "cuda" else 1  # of one measurement
    for _ in range(rounds):
        for each, job in zip(taken, (call, lambda: train(call, inputs)), strict=True):
            begin = clock(device)
            for _ in range(times):
                job()
            each.append((clock(device) - begin) / times)
    forward, both = (statistics.median(each) for each in taken)
    return forward, both


def clock(device: torch.device) -> float:
    """Seconds, when all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


if __name__ == "__main__":
    main()
