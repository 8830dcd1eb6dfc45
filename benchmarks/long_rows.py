"""What long rows cost: are time and memory per token flat, and are they those of others?

    python benchmarks/long_rows.py flat                    16k against 2k tokens, window and lsh
    python benchmarks/long_rows.py longformer              beside Longformer of transformers
    python benchmarks/long_rows.py reversible              48 reversible layers against 12
    python benchmarks/long_rows.py alternating             ModernBERT's windows against none

Forward and backward, batch 1, fp32, no dropout; on a CPU one thread. Runs that are compared take
turns, and a ratio is the median of those of neighbours, so that a busy machine slows both. Memory
is the greatest of a process beyond what it had before.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from layer_costs import CELLS, make_backbone, measure, pass_once

from plmctl.training.device.allocator import keep_freed_memory

Pass = Callable[[], float]  # runs once, gives its seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--cells", nargs="+", default=["window", "lsh"], choices=CELLS)
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    given.device, given.most = "cpu", float("inf")
    torch.set_num_threads(1)
    QUESTIONS[given.question](given)


def take_turns(passes: dict[str, Pass], rounds: int) -> dict[str, list[float]]:
    """The seconds of each, A B A B ..., after one pass of each that does not count."""
    keep_freed_memory(torch.device("cpu"))  # as in training
    for run in passes.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(rounds):
        for name, run in passes.items():
            taken[name].append(run())
    return taken


def median_ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def compare_lengths(given: argparse.Namespace) -> None:
    """Time and memory per token at the longest length against those at the shortest."""
    lengths = given.lengths or [2048, 16384]
    short, long = min(lengths), max(lengths)
    print(f"{'':10} {'us':>7} {'us':>7} {'ratio':>6} {'KiB':>7} {'KiB':>7} {'ratio':>6}")
    print(f"{'per token':10} {short:>7} {long:>7} {'':>6} {short:>7} {long:>7}")
    # memory first: what freed memory of this process serves would not count
    used = {
        name: {n: measure(CELLS[name], given.width, n, given).bytes for n in (short, long)}
        for name in given.cells
    }
    for name in given.cells:
        # as many tokens in both: many short passes, or one long one
        passes = {n: make_pass(CELLS[name], given.width, n, long) for n in (short, long)}
        taken = take_turns({str(length): run for length, run in passes.items()}, given.rounds)
        times = [1e6 * statistics.median(taken[str(length)]) / long for length in (short, long)]
        ratio = median_ratio(taken[str(long)], taken[str(short)])
        memory = [used[name][length] / 1024 / length for length in (short, long)]
        print(
            f"{name:10} {times[0]:>7.1f} {times[1]:>7.1f} {ratio:>5.2f}x"
            f" {memory[0]:>7.1f} {memory[1]:>7.1f} {memory[1] / memory[0]:>5.2f}x",
            flush=True,
        )


def make_pass(layers: list[str], width: int, length: int, tokens: int) -> Pass:
    """Passes over rows of `length` until `tokens` are read."""
    backbone = make_backbone(layers, width, length)
    return lambda: sum(pass_once(backbone, width, length, "cpu") for _ in range(tokens // length))


def compare_longformer(given: argparse.Namespace) -> None:
    """A layer of attention with one global token, and transformers' of the same shape."""
    from peers import need

    need("transformers")
    print(f"{'tokens':>7} {'theirs us':>10} {'ours us':>8} {'faster':>7}")
    for length in given.lengths or [512, 1024, 2048, 4096, 8192, 16384]:
        passes = {
            "theirs": make_their_pass(given.width, length),
            "ours": make_pass(CELLS["global"], given.width, length, length),
        }
        taken = take_turns(passes, given.rounds)
        micros = {name: 1e6 * statistics.median(times) / length for name, times in taken.items()}
        ratio = median_ratio(taken["theirs"], taken["ours"])
        print(f"{length:>7} {micros['theirs']:>10.1f} {micros['ours']:>8.1f} {ratio:>6.2f}x")


def make_their_pass(width: int, length: int) -> Pass:
    """transformers' block of attention: projections, the window of 64, residual and norm."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerAttention

    config = LongformerConfig(
        hidden_size=width,
        num_attention_heads=max(1, width // 64),
        num_hidden_layers=1,
        attention_window=[128],
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    block: Any = LongformerAttention(config, layer_id=0)
    mask = torch.zeros(1, length)
    mask[0, 0] = 10_000.0  # the first token is global
    found: dict[str, Any] = {
        "attention_mask": mask,
        "is_index_masked": mask < 0,
        "is_index_global_attn": mask > 0,
        "is_global_attn": True,
    }

    def run() -> float:
        x = torch.randn(1, length, width, requires_grad=True)
        begin = time.perf_counter()
        block(x, **found)[0].sum().backward()
        return time.perf_counter() - begin

    return run


def compare_depths(given: argparse.Namespace) -> None:
    """Memory of 48 reversible layers against 12, and the time of 12 against ordinary ones.

    The gradients of the weights are there before the pass that is measured, so activations count.
    """
    length = min(given.lengths or [2048])
    few, many, ordinary = layers(12, "true"), layers(48, "true"), layers(12, "false")
    kept = [measure(words, given.width, length, given).bytes for words in (few, many, ordinary)]
    print(f"{length} tokens, width {given.width}: MB beyond weights and gradients")
    for name, used in zip(("12 reversible", "48 reversible", "12 ordinary"), kept, strict=True):
        print(f"{name:14} {used / 1e6:>8.1f} {used / max(1, kept[0]):>6.2f}x")
    passes = {
        "reversible": make_pass(few, given.width, length, length),
        "ordinary": make_pass(ordinary, given.width, length, length),
    }
    taken = take_turns(passes, given.rounds)
    ratio = median_ratio(taken["reversible"], taken["ordinary"])
    print(f"time of 12 reversible layers: {ratio:.2f}x that of 12 ordinary ones")


def compare_windows(given: argparse.Namespace) -> None:
    """Layers of which every third sees all tokens and the others a window, and layers that all see
    all: ModernBERT's block, forward and backward.
    """
    print(f"{'tokens':>7} {'global us':>10} {'windows us':>11} {'faster':>7}")
    for length in given.lengths or [512, 1024, 2048, 4096]:
        block = ["model.stack.residual._target_=plmctl.nn.residual.PreNorm", "position=rotary"]
        block += [
            "model.stack.layout=af*3",
            "model.stack.cells.f._target_=plmctl.nn.cells.glu.GLU",
            f"size.inner_width={3 * given.width // 2}",
        ]
        passes = {
            name: make_pass([*block, *words], given.width, length, length)
            for name, words in {
                "global": ["pattern=full"],
                "windows": ["pattern=window", "pattern.reach=[null,64,64]"],
            }.items()
        }
        taken = take_turns(passes, given.rounds)
        micros = {name: 1e6 * statistics.median(times) / length for name, times in taken.items()}
        ratio = median_ratio(taken["global"], taken["windows"])
        found = f"{micros['global']:>10.1f} {micros['windows']:>11.1f} {ratio:>6.2f}x"
        print(f"{length:>7} {found}", flush=True)


def layers(number: int, reversible: str) -> list[str]:
    return [
        f"model.stack.layout=af*{number}",
        "model.stack.residual._target_=plmctl.nn.residual.PreNorm",
        f"model.stack.reversible={reversible}",
    ]


QUESTIONS: dict[str, Callable[[argparse.Namespace], None]] = {
    "flat": compare_lengths,
    "longformer": compare_longformer,
    "reversible": compare_depths,
    "alternating": compare_windows,
}


if __name__ == "__main__":
    main()
