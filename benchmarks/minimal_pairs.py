"""Log-likelihoods of sentences by plmctl beside those of minicons, on the same weights.

    python benchmarks/minimal_pairs.py --run runs/bert --pairs blimp/ --limit 500 \\
        --ways masks words --threads 2 --peer venv/bin/python

Both sides score the sentences of the first `--most` pairs of each paradigm of `--pairs`, and of
these at most `--limit`, evenly drawn; all without the two. minicons runs in the Python of `--peer`,
which needs `minicons` (peer_minimal_pairs.py), on the Hugging Face export of the run; without it
plmctl runs alone. Printed are seconds, pairs a second, the minutes of 44,622 pairs of BLiMP
at that speed, and the largest difference of a sentence in nats. `--tokens` is the size of a batch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from plmctl.artifacts.loading import load
from plmctl.probes.minimal_pairs import MinimalPairs
from plmctl.training.device.precision import choose
from plmctl.use.likelihood import Likelihood, Way, choose_way, find_ways, make_scoring
from plmctl.use.pairs import list_sentences

PEER = Path(__file__).with_name("peer_minimal_pairs.py")
PAIRS = 44_622  # of the part of BLiMP that may be read here


def score(given: argparse.Namespace, way: Way, texts: list[str]) -> tuple[np.ndarray, float]:
    """(the log-likelihood of each sentence, seconds)."""
    loaded, precision = load(given.run), choose(given.precision, torch.device("cpu"))
    way, head = choose_way(find_ways(loaded.model, loaded.vocab), way)
    scoring = make_scoring(way, loaded.model, head, loaded.tokenizer)
    scorer = Likelihood(loaded.model, scoring, precision.device, tokens=given.tokens)
    ids = loaded.tokenizer.encode_batch(texts)
    started = time.perf_counter()
    with torch.no_grad(), precision.autocast():
        sums = scorer.score(ids)
    return sums, time.perf_counter() - started


def ask_peer(given: argparse.Namespace, way: str, texts: list[str]) -> tuple[np.ndarray, float]:
    """The same by minicons."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, "-m", "plmctl", "convert", given.run, "--to", "hf"]
        subprocess.run([*command, "--out", str(folder / "hf")], check=True, capture_output=True)
        (folder / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        words = [str(folder / "hf"), str(folder / "texts.json"), str(folder / "out.json")]
        threads = ["--threads", str(given.threads)]
        subprocess.run([given.peer, str(PEER), *words, "--way", way, *threads], check=True)
        found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    return np.array(found["scores"]), found["seconds"]


def show(side: str, seconds: float, pairs: int) -> None:
    """Print the speed of a side."""
    whole = seconds / pairs * PAIRS / 60
    print(f"{side}: {seconds:.1f} s, {pairs / seconds:,.1f} pairs/s; {PAIRS:,} in {whole:.1f} min")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True, help="a run of plmctl")
    parser.add_argument("--pairs", required=True, help="a file or a folder of pairs")
    parser.add_argument("--most", type=int, help="pairs of a paradigm")
    parser.add_argument("--limit", type=int, help="pairs in all, evenly drawn")
    parser.add_argument("--ways", nargs="+", default=["masks", "words"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=Likelihood.tokens)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--peer", help="a Python that has minicons; none: plmctl alone")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    pairs, _ = MinimalPairs(path=given.pairs, pairs=given.most).read()
    if given.limit:
        pairs = pairs[:: -(-len(pairs) // given.limit)]
    texts = list_sentences(pairs)
    print(f"{len(pairs):,} pairs, {sum(map(len, texts)):,} characters")
    for way in given.ways:
        ours, seconds = score(given, way, texts)
        show(f"{way}, plmctl", seconds, len(pairs))
        if given.peer:
            theirs, taken = ask_peer(given, way, texts)
            show(f"{way}, minicons", taken, len(pairs))
            apart = np.abs(ours - theirs)
            print(f"{way}: largest difference {apart.max():.1e} nats, speed {taken / seconds:.1f}")


if __name__ == "__main__":
    main()
