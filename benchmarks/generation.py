"""Tokens a second that plmctl and `transformers` generate write, with a cache on both sides, from
the same GPT-2 weights.

    python benchmarks/generation.py [--rounds 5] [--new 48] [--prompt 16] [--only greedy,1]

4 layers of 256, vocabulary 8192, random weights; no text ends before `--new` tokens. Runs
alternate; the ratio is that of the medians. Both sides write the same tokens, which is checked
first.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from peers import need

import plmctl
from plmctl.core.batch import Batch, Seq
from plmctl.generation.beam import Beam
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.runs.contract.stand_in import TINY

if TYPE_CHECKING:
    import transformers

SIZE = 8192


def models() -> tuple[transformers.GPT2LMHeadModel, plmctl.Loaded]:
    import transformers

    torch.manual_seed(0)
    numbers = {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 512, "vocab_size": SIZE}
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**numbers, bos_token_id=0, eos_token_id=None, pad_token_id=0)
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            # so that not all texts are one token again and again
            parameter.mul_(2.0 if parameter.dim() > 1 else 1.0)
    with tempfile.TemporaryDirectory() as place:
        theirs.save_pretrained(place)
        return theirs.eval(), plmctl.load(place)


def ours(model: plmctl.Loaded, ids: torch.Tensor, beams: int, new: int) -> list[list[int]]:
    vocab = replace(TINY, size=SIZE, eos=None)
    search = Greedy() if beams == 1 else Beam(width=beams, alpha=1.0, penalty="length", early=False)
    seq = Seq(ids, torch.full((len(ids),), ids.shape[1]), full=True)
    found = generate(
        model.model,
        Batch(torch.arange(len(ids)), {"text": seq}),
        vocab=vocab,
        search=search,
        max_new=new,
    )
    return [texts[0].ids for texts in found]


def others(
    model: transformers.GPT2LMHeadModel, ids: torch.Tensor, beams: int, new: int
) -> list[list[int]]:
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        num_beams=beams,
        do_sample=False,
        use_cache=True,
    )
    return out[:, ids.shape[1] :].tolist()


def seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    run()
    return clock() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--only", default="", help="greedy,1 or beam,32: one of the four")
    parser.add_argument(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: on a machine that others use too",
    )
    given = parser.parse_args()
    need("transformers")
    clock = time.perf_counter if given.clock == "wall" else time.process_time
    logging.disable(logging.WARNING)
    theirs, mine = models()
    print(
        f"{torch.get_num_threads()} threads, {given.prompt} tokens and {given.new} new ones,"
        f" {given.rounds} rounds, ",
        end="",
    )
    print(f"{given.clock} time\n")
    print(
        "| search | batch | plmctl tokens/s | transformers tokens/s | ratio | same texts"
        " |\n|---|---|---|---|---|---|"
    )
    for name, beams in (("greedy", 1), ("beam 4", 4)):
        for rows in (1, 32):
            if given.only and given.only != f"{name.split()[0]},{rows}":
                continue
            ids = torch.from_numpy(np.random.default_rng(0).integers(1, SIZE, (rows, given.prompt)))
            # warm-up too
            a, b = (
                run(model, ids, beams, given.new) for run, model in ((ours, mine), (others, theirs))
            )
            same = sum(x == y for x, y in zip(a, b, strict=True))
            sides = (
                partial(ours, mine, ids, beams, given.new),
                partial(others, theirs, ids, beams, given.new),
            )
            times = [[seconds(side, clock) for side in sides] for _ in range(given.rounds)]
            fast, slow = (
                rows * given.new / statistics.median(column) for column in zip(*times, strict=True)
            )
            print(
                f"| {name} | {rows} | {fast:,.0f} | {slow:,.0f} | {fast / slow:.2f} | {same} of"
                f" {rows} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
