"""Every noise function of conf/noise: the share it asks for and the share it gives, and its speed
on one core.

    OMP_NUM_THREADS=1 python benchmarks/noise.py [--rows 10000] [--length 512] [--seconds 2] [--only
    text_infill]

Made-up rows `cls ... sep` of a 30,000-piece vocabulary, with the tracks and spans that a noise
reads: words of 1.4 tokens, sentences of 20, entities of 1 to 3. Rates are over 10,000 rows, in the
unit that the noise counts in, with the 99% interval of their mean; what the rows lack is said.
Speed is that of the fastest of many calls on 256 x 512 tokens, the noise alone, in CPU time of its
one thread, with memory kept as in training.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plmctl.config.build import build
from plmctl.config.recipes import conf_dir, load
from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.noise.base import Noise
from plmctl.text.vocab import Vocab
from plmctl.training.device.allocator import keep_freed_memory

SIZE, SPECIALS = 30_000, 110
# in made-up rows, and any spans
THERE = frozenset({"input", "text", "tracks.word_start", "tracks.sentence", "tracks.segment"})
SENTINELS = tuple(range(SPECIALS - 1, 9, -1))


def vocabulary() -> Vocab:
    special = np.arange(SIZE) < SPECIALS
    return Vocab(
        size=SIZE,
        pad=0,
        unk=None,
        cls=1,
        sep=2,
        mask=3,
        bos=None,
        eos=4,
        special=special,
        word_start=special,
        sentinels=SENTINELS,
    )


def made_up(rows: int, length: int, fields: frozenset[str]) -> Rows:
    """Rows with those `fields` that a noise reads, and "origin", the number of each token's
    slot, if it is among them.
    """
    rng = np.random.default_rng(0)
    ids = rng.integers(SPECIALS, SIZE, (rows, length), dtype=np.int32)
    ids[:, 0], ids[:, -1] = 1, 2
    starts = rng.random((rows, length)) < 0.7
    starts[:, [0, 1, -1]] = True
    sentence = np.cumsum(rng.random((rows, length)) < 0.05, axis=1).astype(np.int32)
    tracks = {
        "tracks.word_start": starts,
        "tracks.sentence": sentence,
        "tracks.segment": (np.arange(length) >= length // 2) & np.ones((rows, 1), np.int8),
        "tracks.origin": np.arange(rows * length, dtype=np.int32).reshape(rows, length),
    }
    size = rng.integers(1, 4, (rows, length // 16))
    begin = np.arange(length // 16) * 16 + rng.integers(1, 12, size.shape)
    row = np.repeat(np.arange(rows), size.shape[1])
    table = np.stack([row, begin.ravel(), size.ravel(), rng.integers(0, 1000, row.size)], 1)
    spans = {field.partition(".")[2]: table for field in fields if field.startswith("spans.")}
    full = np.full(rows, length)
    seq = Seq(
        ids,
        full,
        {name.partition(".")[2]: track for name, track in tracks.items() if name in fields},
        full=True,
    )
    return Rows(np.arange(rows), {"text": seq}, spans=spans)


def units(rows: Rows, of: np.ndarray) -> np.ndarray:
    """[n, T] bool: of the ordinary tokens, those where a unit begins."""
    return of & (rows.seqs[rows.input].ids >= SPECIALS)


def share(rows: Rows, noised: Rows, name: str) -> tuple[str, np.ndarray]:
    """(what is counted, its share in every row)."""
    before, after = rows.seqs[rows.input], noised.seqs[noised.input]
    ordinary = before.ids >= SPECIALS
    asked = [labels for key, labels in noised.targets.items() if labels.shape == before.ids.shape]
    if asked:
        chosen = (
            (asked[0] == 1)
            if "replaced" in noised.targets and len(asked) == 1
            else (asked[0] != IGNORE)
        )
        return "of all tokens asked", chosen.sum(1) / chosen.shape[1]
    if name == "sequence_span":
        return "of tokens in the target", noised.seqs["target"].length / ordinary.sum(1)
    if after.ids.shape == before.ids.shape and (after.length == before.length).all():
        if np.array_equal(np.sort(after.ids, axis=1), np.sort(before.ids, axis=1)):
            moved = (after.tracks["origin"] != before.tracks["origin"]) & ordinary
            return "of tokens not in their place", moved.sum(1) / ordinary.sum(1)
        changed = (after.ids != before.ids) & ordinary
        begins = units(rows, before.tracks["word_start"]) if name.startswith("word") else ordinary
        return f"of {'words' if name.startswith('word') else 'tokens'} changed", (
            changed & begins
        ).sum(1) / begins.sum(1)
    whole = (
        units(rows, before.tracks["word_start"])
        if name in ("text_infill", "word_drop")
        else ordinary
    )
    left = np.zeros(before.ids.size, bool)
    real = after.real & (after.ids >= SPECIALS)
    left[after.tracks["origin"][real]] = True
    gone = whole & ~left.reshape(before.ids.shape)
    return f"of {'words' if whole is not ordinary else 'tokens'} gone", gone.sum(1) / whole.sum(1)


def fastest(call: Callable[[], Any], seconds: float, tokens: int) -> float:
    """Million tokens a second of the fastest call."""
    best, stop = np.inf, time.perf_counter() + seconds
    while time.perf_counter() < stop:
        begun = time.process_time()
        call()
        best = min(best, time.process_time() - begun)
    return tokens / best / 1e6


def measure(name: str, noise: Noise, rate: object, chosen: argparse.Namespace) -> None:
    rows = made_up(chosen.rows, chosen.length, noise.reads | {"tracks.origin", "tracks.word_start"})
    noised = noise(rows, Draws(0, 0))
    counted, found = share(rows, noised, name)
    interval = 2.576 * found.std() / np.sqrt(len(found))
    spread = "every row the same" if found.std() < 1e-12 else f"+- {interval:.4%}"
    few = made_up(256, 512, noise.reads)
    speed = fastest(lambda: noise(few, Draws(0, 0)), chosen.seconds, 256 * 512)
    asked = "" if rate is None else f"{float(rate):.3f}"  # type: ignore[arg-type]
    print(
        f"{name:<22}{asked:>9}{found.mean():>11.4%} {spread:<20}{counted:<30}{speed:>9.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    keep_freed_memory(torch.device("cpu"))
    vocab = vocabulary()
    print(
        f"{'noise':<22}{'asked':>9}{'found':>11}"
        f" {'99% interval':<20}{'what is counted':<30}{'M tok/s':>9}"
    )
    for file in sorted(Path(conf_dir() / "noise").glob("*.yaml")):
        if chosen.only and file.stem != chosen.only:
            continue
        node = load(file)
        noise = build(node, {"vocab": vocab}, path="noise")
        lacking = sorted(field for field in noise.reads - THERE if not field.startswith("spans."))
        if lacking:
            print(f"{file.stem:<22}skipped: made-up rows have no {', '.join(lacking)}")
        else:
            measure(
                file.stem,
                noise,
                node.get("rate", 1 / node["context"] if "context" in node else None),
                chosen,
            )


if __name__ == "__main__":
    main()
