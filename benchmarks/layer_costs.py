"""What a layer of attention, recurrence or convolution costs, against the length of a row and the
width: time and memory per token.

    python benchmarks/layer_costs.py                                   512 to 16k tokens
    python benchmarks/layer_costs.py --cells dense,lstm --widths 64 --lengths 512 1024
    python benchmarks/layer_costs.py --out costs                       also costs.csv and pictures

One block (cell, residual connection, norm) in fp32, batch 1, forward and backward, without dropout,
both directions, heads of 64. On a CPU one thread; each measurement has a process of its own, whose
greatest memory beyond that before it counts. Times are medians of `--rounds`. A length is left out
where a pass would take more than `--most` seconds, were it linear. Cells that see neighbours see
64 tokens to either side, or the own chunk of 64 and the one before; convolutions have kernels of 7.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import math
import multiprocessing
import resource
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Seq
from plmctl.models.encoder import Encoder
from plmctl.report.charts import draw_lines
from plmctl.runs.contract.stand_in import TINY
from plmctl.training.device.allocator import keep_freed_memory

CELLS = {
    "dense": ["model.stack.layout=a", "kernel=dense"],
    "window": ["model.stack.layout=a", "pattern=window", "pattern.reach=64"],
    "global": ["model.stack.layout=g", "pattern=longformer", "pattern.parts.0.reach=64"],
    "local": ["model.stack.layout=b"],
    "lsh": ["model.stack.layout=h"],
    "lstm": ["model.stack.layout=l"],
    "gru": ["model.stack.layout=r"],
    "convolution": ["model.stack.layout=k", "model.stack.cells.k.kernel=7"],
    "depthwise": ["model.stack.layout=s", "model.stack.cells.s.kernel=7"],
    "lightweight": ["model.stack.layout=w", "model.stack.cells.w.kernel=7"],
    "dynamic": ["model.stack.layout=d", "model.stack.cells.d.kernel=7"],
    "feed-forward": ["model.stack.layout=f"],
}
HEAD = 64
COLUMNS = ("cell", "width", "tokens", "microseconds_per_token", "kibibytes_per_token")


class Cost(NamedTuple):
    """Of one forward and backward pass."""

    seconds: float
    bytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384]
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=20.0, help="seconds of one pass")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", help="OUT.csv, OUT-time.svg and OUT-memory.svg are written")
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen = given.cells.split(",")
    if unknown := [name for name in chosen if name not in CELLS]:
        parser.error(f"--cells {unknown[0]}: one of {', '.join(CELLS)}")
    rows: list[tuple[str, int, int, float, float]] = []
    for width in given.widths:
        for unit, index in (("microseconds", 3), ("KiB", 4)):
            print(f"\n{unit} per token, width {width}" if index == 3 else f"\n{unit}", end="")
            print(f"\n{'':14}" + "".join(f"{length:>9,}" for length in given.lengths))
            for name in chosen:
                if index == 3:
                    rows += measure_lengths(name, width, given)
                of = {row[2]: row[index] for row in rows if row[:2] == (name, width)}
                cells = [f"{of[n]:9.2f}" if n in of else f"{'':>9}" for n in given.lengths]
                print(f"{name:14}{''.join(cells)}", flush=True)
    if given.out:
        write(Path(given.out), rows)


def measure_lengths(
    name: str, width: int, given: argparse.Namespace
) -> list[tuple[str, int, int, float, float]]:
    """The rows of the table for one cell and width."""
    rows: list[tuple[str, int, int, float, float]] = []
    seconds, before = 0.0, 0
    for length in sorted(given.lengths):
        if before and seconds * length / before > given.most:
            break
        cost = measure(CELLS[name], width, length, given)
        seconds, before = cost.seconds, length
        rows.append((name, width, length, 1e6 * seconds / length, cost.bytes / 1024 / length))
    return rows


def measure(words: list[str], width: int, length: int, given: argparse.Namespace) -> Cost:
    """The cost of the layers of `words`; on a CPU in a new process, whose memory is known."""
    if given.device == "cuda":
        return run_layers(words, width, length, given.rounds, given.device)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=answer, args=(theirs, words, width, length, given.rounds))
    child.start()
    theirs.close()
    cost = Cost(*ours.recv())
    child.join()
    return cost


def answer(pipe: Connection, words: list[str], width: int, length: int, rounds: int) -> None:
    pipe.send(tuple(run_layers(words, width, length, rounds, "cpu")))


def give_back_memory() -> None:
    """Let glibc return large pieces as soon as they are free. What it keeps between pieces in use
    is memory of the process, too, but nobody needs it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(-4, 2**16)  # M_MMAP_MAX, the usual one
        mallopt(-3, 2**16)  # M_MMAP_THRESHOLD


def run_layers(words: list[str], width: int, length: int, rounds: int, device: str) -> Cost:
    """Peak memory of the first pass, and the median time of the next ones."""
    backbone = make_backbone(words, width, length).to(device)
    pass_once(backbone, width, min(length, 128), device)  # libraries are loaded, gradients there
    gc.collect()
    give_back_memory()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = read_peak(device)
    pass_once(backbone, width, length, device)
    used = max(0.0, read_peak(device) - before)
    keep_freed_memory(torch.device(device))  # as in training
    times = [pass_once(backbone, width, length, device) for _ in range(rounds)]
    return Cost(statistics.median(times), used)


def make_backbone(layers: list[str], width: int, length: int) -> Encoder:
    """An encoder without vectors of positions, whose layers the words `layers` state."""
    size = [f"size.width={width}", f"size.num_heads={max(1, width // HEAD)}", "size.num_layers=1"]
    words = [*size, f"size.inner_width={4 * width}", "position=none", "data.path=x"]
    words += [f"format.max_length={length}", "model.embedding.dropout=0", *layers]
    spec: Any = compose("pretrain", "roberta", words)
    model = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0)
    return cast(Encoder, model.backbone)


def pass_once(backbone: Encoder, width: int, length: int, device: str) -> float:
    """The seconds of a forward and a backward pass."""
    seq = Seq(torch.zeros(1, length, dtype=torch.int64), torch.tensor([length]), full=True)
    seq = Seq(seq.ids.to(device), seq.length.to(device), full=True)
    x = torch.randn(1, length, width, device=device, requires_grad=True)
    begin = time.perf_counter()
    backbone.read(seq, x).last.sum().backward()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def read_peak(device: str) -> float:
    """The most bytes in use so far."""
    if device == "cuda":
        return float(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return float(unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def write(out: Path, rows: list[tuple[str, int, int, float, float]]) -> None:
    with out.with_suffix(".csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        table.writerows((*row[:3], round(row[3], 3), round(row[4], 3)) for row in rows)
    widest = max(row[1] for row in rows)
    for index, name, unit in ((3, "time", "microseconds"), (4, "memory", "KiB")):
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row[1] == widest and float(row[index]) > 0:
                point = math.log2(row[2]), math.log2(float(row[index]))
                curves.setdefault(row[0], []).append(point)
        title = f"{name.capitalize()} per token of a layer, width {widest}"
        svg = draw_lines(curves, title=title, x="log2 of tokens", y=f"log2 of {unit} per token")
        out.with_name(f"{out.name}-{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
