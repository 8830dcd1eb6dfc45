"""Tokens a second that plmctl and others write, with a cache on all sides, from the same weights.

    python benchmarks/generation.py [--shape gpt2 marian] [--search greedy beam] [--batch 1 8 32]
        [--weights fp32 int8 int4 w8a8] [--rounds 5] [--new 32] [--prompt 16] [--clock cpu]

`gpt2`: GPT-2 small. `marian`: a translation model, 6 and 6 layers of 512, vocabulary 8,000.
`small`: a GPT-2 with 4 layers of 256, vocabulary 8192. All have random weights, and no text ends
before `--new` tokens. Writers alternate; the ratio is that of the medians. A first run of each
compares the texts: those of fp32 are the same as the peers'.

`--arrivals 16`: instead, so many prompts of unlike lengths come one after the other, as to a
server. One running batch (`Together`) writes them, or each is written alone after the one before.

Another library is a column: a function in `PEERS` that makes a `Write` of a folder in the form of
`transformers`, and the search.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers import need

import plmctl
from plmctl.core.batch import Batch, Seq
from plmctl.generation.beam import Beam
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.generation.together import TextOrder, Together
from plmctl.runs.contract.stand_in import TINY
from plmctl.runtime.ctranslate2 import CTranslate2Runtime

# (prompts [B, T], beams, new tokens) -> the tokens of each text
Write = Callable[[torch.Tensor, int, int], list[list[int]]]
BEAMS = {"greedy": 1, "beam": 4}


def make_gpt2(**numbers: int) -> Any:
    import transformers

    special = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**numbers, **special))


def make_marian(layers: int, width: int, heads: int, size: int) -> Any:
    import transformers

    stacks: dict[str, int] = {}
    for name in ("encoder", "decoder"):
        stacks |= {f"{name}_layers": layers, f"{name}_attention_heads": heads}
        stacks |= {f"{name}_ffn_dim": 4 * width}
    special = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": None}
    special |= {"forced_eos_token_id": None, "bos_token_id": None}
    config = transformers.MarianConfig(
        vocab_size=size, d_model=width, max_position_embeddings=512, **stacks, **special
    )
    return transformers.MarianMTModel(config)


SHAPES: dict[str, tuple[int, Callable[[], Any]]] = {  # vocabulary, model
    "gpt2": (50257, make_gpt2),
    "marian": (8000, partial(make_marian, 6, 512, 8, 8000)),
    "small": (
        8192,
        partial(make_gpt2, n_embd=256, n_layer=4, n_head=4, n_positions=512, vocab_size=8192),
    ),
    "tiny": (64, partial(make_gpt2, n_embd=16, n_layer=1, n_head=2, n_positions=64, vocab_size=64)),
    "tiny-marian": (64, partial(make_marian, 1, 16, 2, 64)),
}


def save_model(make: Callable[[], Any], folder: Path) -> None:
    torch.manual_seed(0)
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            # so that not all texts are one token again and again
            parameter.mul_(2.0 if parameter.dim() > 1 else 1.0)
    model.save_pretrained(folder)


def make_batch(model: Any, ids: torch.Tensor) -> Batch:
    seq = Seq(ids, torch.full((len(ids),), ids.shape[1]), full=True)
    name = "source" if model.backbone.writes == "target" else "text"
    return Batch(torch.arange(len(ids)), {name: seq})


def open_ours(folder: Path, size: int, weights: str) -> Write:
    model = plmctl.load(str(folder)).model
    vocab = replace(TINY, size=size, eos=None)

    def write(ids: torch.Tensor, beams: int, new: int) -> list[list[int]]:
        search: Any = Greedy()
        if beams > 1:
            search = Beam(width=beams, alpha=1.0, penalty="length", early=False)
        batch = make_batch(model, ids)
        found = generate(model, batch, vocab=vocab, search=search, max_new=new, weights=weights)
        return [texts[0].ids for texts in found]

    return write


def open_transformers(folder: Path, size: int) -> Write:
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0]).from_pretrained(folder).eval()
    source = 0 if config.is_encoder_decoder else None

    def write(ids: torch.Tensor, beams: int, new: int) -> list[list[int]]:
        mask = torch.ones_like(ids)
        how = {"num_beams": beams, "do_sample": False, "use_cache": True, "max_new_tokens": new}
        out = model.generate(ids, attention_mask=mask, **how)
        return out[:, ids.shape[1] if source is None else 1 :].tolist()

    return write


def open_ctranslate2(folder: Path, size: int, *, int8: bool) -> Write:
    """The library alone, of a model that plmctl has written; token 0, the end, is excluded."""
    writer = CTranslate2Runtime(int8=int8).open_writer(plmctl.load(str(folder)).model)

    def write(ids: torch.Tensor, beams: int, new: int) -> list[list[int]]:
        how: dict[str, Any] = {"beam_size": beams, "length_penalty": 1.0, "end_token": [0]}
        how |= {writer.words["least"]: new, writer.words["most"]: new, "return_scores": True}
        return [texts[0][0] for texts in writer.ask(ids.tolist(), how)]

    return write


PEERS: Mapping[str, Callable[[Path, int], Write]] = {
    "transformers": open_transformers,
    "ctranslate2 fp32": partial(open_ctranslate2, int8=False),
    "ctranslate2 int8": partial(open_ctranslate2, int8=True),
}


def measure(
    sides: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> list[float]:
    """The median seconds of each side, alternating."""
    times: list[list[float]] = []
    for _ in range(rounds):
        row = []
        for side in sides:
            began = clock()
            side()
            row.append(clock() - began)
        times.append(row)
    return [statistics.median(column) for column in zip(*times, strict=True)]


def measure_shape(shape: str, given: argparse.Namespace, clock: Callable[[], float]) -> None:
    size, make = SHAPES[shape]
    with tempfile.TemporaryDirectory() as place:
        save_model(make, Path(place))
        writers = {f"plmctl {kind}": open_ours(Path(place), size, kind) for kind in given.weights}
        writers |= {name: open_(Path(place), size) for name, open_ in PEERS.items()}
    for name in given.search:
        for rows in given.batch:
            numbers = np.random.default_rng(0).integers(1, size, (rows, given.prompt))
            task = torch.from_numpy(numbers), BEAMS[name], given.new
            texts = {who: write(*task) for who, write in writers.items()}  # warm-up too
            base = texts[next(iter(PEERS))]
            sides = [partial(write, *task) for write in writers.values()]
            seconds = dict(zip(writers, measure(sides, given.rounds, clock), strict=True))
            for who, taken in seconds.items():
                ratios = [f"{seconds[peer] / taken:.2f}" for peer in PEERS]
                same = sum(x == y for x, y in zip(texts[who], base, strict=True))
                cells = [shape, name, str(rows), who, f"{rows * given.new / taken:,.1f}", *ratios]
                print(f"| {' | '.join(cells)} | {same} of {rows} |", flush=True)


def write_arrivals(model: Any, prompts: Sequence[Any], size: int, pause: int) -> list[list[int]]:
    """The texts of prompts of which one comes every `pause` steps of the running batch."""
    vocab = replace(TINY, size=size, eos=None)
    together, found, coming = Together(model, vocab=vocab), {}, list(enumerate(prompts))
    step = 0
    while coming or len(together):
        if coming and step % pause == 0:
            number, (ids, new) = coming.pop(0)
            together.join(make_batch(model, ids), [TextOrder(number, Greedy(), max_new=new)])
        found |= {ticket: texts[0].ids for ticket, texts in together.step()}
        step += 1
    return [found[number] for number in range(len(prompts))]


def measure_arrivals(shape: str, given: argparse.Namespace, clock: Callable[[], float]) -> None:
    size, make = SHAPES[shape]
    with tempfile.TemporaryDirectory() as place:
        save_model(make, Path(place))
        model = plmctl.load(str(Path(place))).model
    draw = np.random.default_rng(0)
    prompts = [
        (
            torch.from_numpy(draw.integers(1, size, (1, int(draw.integers(1, 2 * given.prompt))))),
            int(draw.integers(1, 2 * given.new)),
        )
        for _ in range(given.arrivals)
    ]
    vocab = replace(TINY, size=size, eos=None)

    def write_each() -> list[list[int]]:
        texts = (
            generate(model, make_batch(model, ids), vocab=vocab, search=Greedy(), max_new=new)
            for ids, new in prompts
        )
        return [own[0][0].ids for own in texts]

    running = partial(write_arrivals, model, prompts, size, 2)
    same = sum(a == b for a, b in zip(running(), write_each(), strict=True))
    together, each = measure([running, write_each], given.rounds, clock)
    print(
        f"{shape}: {given.arrivals} prompts, one every 2 tokens: together {together:.2f} s, one"
        f" after another {each:.2f} s, {each / together:.2f} times as fast, {same} of"
        f" {given.arrivals} texts the same",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=["gpt2", "marian"])
    parser.add_argument("--search", nargs="+", choices=BEAMS, default=[*BEAMS])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--weights", nargs="+", default=["fp32", "int8", "int4", "w8a8"])
    parser.add_argument("--arrivals", type=int, default=0, help="prompts that come over time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: on a machine that others use too",
    )
    given = parser.parse_args()
    need("transformers", "ctranslate2")
    clock = time.perf_counter if given.clock == "wall" else time.process_time
    logging.disable(logging.WARNING)
    print(
        f"{torch.get_num_threads()} threads, {given.prompt} tokens and {given.new} new ones,"
        f" {given.rounds} rounds, {given.clock} time\n"
    )
    for shape in given.shape if given.arrivals else ():
        measure_arrivals(shape, given, clock)
    if given.arrivals:
        return
    names = ["shape", "search", "batch", "writer", "tokens/s", *(f"times {p}" for p in PEERS)]
    print(f"| {' | '.join(names)} | same texts |\n|{'---|' * (len(names) + 1)}")
    for shape in given.shape:
        measure_shape(shape, given, clock)


if __name__ == "__main__":
    main()
