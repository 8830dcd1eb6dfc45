"""Attention with learned spans: time and kept memory against the longest span, with the keys out of
reach left out and computed.

    python benchmarks/spans.py                      spans of at most 4,096, rows of 512 tokens
    python benchmarks/spans.py --limit 1024 --tokens 256 --spans 32 128 512

One cell, forward and backward, batch 1, 4 heads of 64, fp32, one thread; its memory holds as many
tokens as the limit. Both ways take turns, and the ratio is the median of neighbouring runs.
`memory` counts the numbers that autograd saves.
"""

from __future__ import annotations

import argparse
import statistics
import time
from unittest.mock import patch

import torch
from torch import Tensor

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.nn.cells.span_attention import SpanAttention
from plmctl.nn.distances import LearnedDistances
from plmctl.nn.env import Env, Streams
from plmctl.nn.spans import AdaptiveSpan

HEADS, WIDTH = 4, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=4096, help="the longest possible span")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--spans", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cell = SpanAttention(width=WIDTH, num_heads=HEADS, dropout=0.0, span=given.limit)
    position = LearnedDistances(width=WIDTH, num_heads=HEADS, longest=given.limit)
    env = Env({"text": BoundOp(Mask(None), position, torch.arange(given.tokens)[None])})
    x = torch.randn(1, given.tokens, WIDTH, requires_grad=True)
    memory = torch.randn(1, given.limit, WIDTH)
    streams = Streams({"text": x, "memory": memory})
    print(
        f"{'span':>6} {'left out s':>11} {'all s':>8} {'faster':>7} {'MB':>7} {'all MB':>7}", end=""
    )
    print(f" {'difference':>11}")
    for span in given.spans:
        cell.soft.share.data.zero_()
        cell.soft.share.data[0] = span / given.limit  # one head decides
        times: list[tuple[float, float]] = []
        for _ in range(given.rounds):
            short, y, saved = run(cell, streams, env)
            with patch.object(AdaptiveSpan, "reach", lambda soft, spans=None: soft.longest):
                long, whole, saved_whole = run(cell, streams, env)
            times.append((short, long))
        ratio = statistics.median(b / a for a, b in times)
        short, long = (statistics.median(column) for column in zip(*times, strict=True))
        apart = float((y - whole).abs().max())
        print(f"{span:6} {short:11.3f} {long:8.3f} {ratio:7.2f}", end="")
        print(f" {saved / 1e6:7.1f} {saved_whole / 1e6:7.1f} {apart:11.1e}")


def run(cell: SpanAttention, streams: Streams, env: Env) -> tuple[float, Tensor, float]:
    """(seconds, the result, bytes kept between forward and backward)."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    begin = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = cell(streams, env)
    y.sum().backward()
    return time.perf_counter() - begin, y.detach(), float(sum(kept.values()))


if __name__ == "__main__":
    main()
