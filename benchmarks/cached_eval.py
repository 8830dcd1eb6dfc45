"""Time per predicted token of Transformer-XL with its memory, and with a window that is read again
for every token.

    python benchmarks/cached_eval.py                              attention over 800 to 3,800 tokens
    python benchmarks/cached_eval.py --lengths 800 --layers 4 --width 256 --tokens 16

The same weights read the same text in three ways, one text at a time on one thread:
  memory   `plmctl eval task=lm task.window=W task.memory=A task.same_length=true`: every token
           attends to A tokens in each layer
  again    all tokens that those of the memory depend on, layers * (A - 1) + 1, are read for each
           predicted token, with the same attention: the same losses
  sliding  `plmctl eval task=lm task.window=A task.stride=1 task.memory=0`: the last A tokens are
           read for each predicted token, as language models without memory are evaluated. With more
           than one layer it sees less, so its losses differ
Both ratios are those of the median time per token, the memory being full. (Dai et al., 2019,
arXiv:1901.02860, table 9: 363 times for 800 tokens, 773 for 1,800, 1,874 for 3,800, on a GPU,
beside the sliding window of another model.)
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Iterable, Iterator

import numpy as np
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.attention.patterns.window import Window as Band
from plmctl.config.compose import compose
from plmctl.models.base import Model
from plmctl.probes.windows import Window, WindowReader, causal_windows, last_windows
from plmctl.runs.contract.stand_in import TINY

PUBLISHED = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[800, 1800, 3800])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=256, help="tokens read at once with memory")
    parser.add_argument("--tokens", type=int, default=8, help="predicted with windows")
    parser.add_argument("--windows", type=int, default=16, help="timed with a full memory")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = make_model(given.layers, given.width, given.heads)
    print(f"{'attention':>9} {'ms memory':>10} {'ms again':>10} {'ms sliding':>10}", end="")
    print(f" {'difference':>11} {'again':>8} {'sliding':>8} {'published':>9}")
    for length in given.lengths:
        reach = given.layers * (length - 1) + 1
        size = reach + given.windows * given.window
        ids = torch.randint(5, TINY.size, (size + 1,), generator=torch.Generator().manual_seed(0))
        text = ids.tolist()
        chosen = np.linspace(reach, size, given.tokens).astype(int).tolist()
        full = -(-reach // given.window)  # windows until the memory is full
        with torch.no_grad():
            losses, taken = remember(model, text, length, given.window)
            cached = statistics.median(taken[full:]) / given.window
            again, slow = read_again(limit(model, length), text, chosen, reach)
            _, sliding = read_again(model, text, chosen, length)
        apart = max(abs(losses[at - 1] - other) for at, other in zip(chosen, again, strict=True))
        times = f"{1e3 * cached:10.4f} {1e3 * slow:10.1f} {1e3 * sliding:10.1f}"
        ratios = f"{slow / cached:8.0f} {sliding / cached:8.0f}"
        print(
            f"{length:9} {times} {apart:11.1e} {ratios} {PUBLISHED.get(length, ''):>9}", flush=True
        )
    spread = float(np.std(losses))
    print(f"losses of tokens spread by {spread:.2f} around {float(np.mean(losses)):.2f} nats")


def make_model(layers: int, width: int, heads: int) -> Model:
    """A model of bytes with random weights, large enough that predictions differ."""
    words = [f"size.num_layers={layers}", f"size.width={width}", f"size.num_heads={heads}"]
    words += [f"size.inner_width={4 * width}", "data.path=x", "model.initializer.std=0.1"]
    spec = compose("pretrain", "transformer_xl_char", words)
    return build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).eval()


def limit(model: Model, length: int) -> Model:
    """The model with attention over `length` tokens, without memory."""
    limited = copy.deepcopy(model)
    limited.backbone.pattern &= Band(reach=length - 1)
    return limited


def remember(
    model: Model, ids: list[int], length: int, window: int
) -> tuple[np.ndarray, list[float]]:
    """The losses of all tokens but the first, and the seconds of each window."""
    begun: list[float] = []

    def watch(windows: Iterable[Window]) -> Iterator[Window]:
        for one in windows:
            begun.append(time.perf_counter())
            yield one

    model.backbone.same_length = True
    windows = watch(causal_windows(ids, window, window))
    losses = make_reader(model).token_losses_in_order(windows, length)
    model.backbone.same_length = False
    ends = [*begun[1:], time.perf_counter()]
    return losses, [end - begin for begin, end in zip(begun, ends, strict=True)]


def read_again(
    model: Model, ids: list[int], chosen: list[int], context: int
) -> tuple[list[float], float]:
    """The losses of the chosen tokens, and the seconds of one."""
    reader, losses, taken = make_reader(model), [], []
    for window in last_windows(ids, chosen, context):
        begin = time.perf_counter()
        losses.append(float(reader.token_losses([window])[0]))
        taken.append(time.perf_counter() - begin)
    return losses, statistics.median(taken)


def make_reader(model: Model) -> WindowReader:
    return WindowReader(model, "clm", TINY, 1, torch.device("cpu"))


if __name__ == "__main__":
    main()
