"""Word vectors beside gensim, on the same words with the same settings: words a second, and how
well the vectors agree with people.

    python benchmarks/word_vectors.py --data wiki/ --peer venv/bin/python --rounds 2
    python benchmarks/word_vectors.py --data wiki/ --method cbow --similarity word-sim

plmctl counts the words of the text and writes its sentences, which gensim reads (by the Python of
`--peer`, which has it installed; without one plmctl runs alone). Both train with one thread, in
turns (plmctl, gensim, gensim, plmctl, ...). The time is that of training alone, without reading: of
the processor, and by the clock. A word counts once an epoch, whether it is left out by chance or
not. Both files of vectors are scored by plmctl.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.terminal import print_table
from plmctl.knowledge.vector_files import read_static, write_static
from plmctl.probes.word_similarity import WordSimilarity
from plmctl.text.reader import read_documents
from plmctl.vectors.corpus import WordCorpus, count_corpus

PEER = """
import json, sys, time
from gensim.models import Word2Vec
file, out, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
sentences = [line.split() for line in open(file, encoding="utf-8")]
model = Word2Vec(workers=1, min_count=1, **given)
model.build_vocab(sentences)
clock, work = time.perf_counter(), time.process_time()
model.train(sentences, total_examples=len(sentences), epochs=given["epochs"])
print(json.dumps([time.process_time() - work, time.perf_counter() - clock]))
model.wv.save_word2vec_format(out, binary=True)
"""


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="text")
    parser.add_argument("--peer", help="a Python that has gensim; none: plmctl alone")
    parser.add_argument("--similarity", help="a folder of lists of word pairs")
    parser.add_argument("--method", choices=["skipgram", "cbow"], default="skipgram")
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--negatives", type=int, default=5)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--least", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


def read_sentences(path: str) -> Iterator[str]:
    for document in read_documents(path):
        yield from document.sentences


def train_ours(args: argparse.Namespace, corpus: WordCorpus, seed: int, out: Path) -> list[float]:
    """[seconds of the processor, seconds]."""
    given = {"epochs": args.epochs, "negatives": args.negatives, "window": args.window}
    words = [f"method={args.method}", *(f"method.{key}={value}" for key, value in given.items())]
    method: Any = build(compose("vectors", None, [*words, "out=none.vec"]).method, path="method")
    clock, work = time.perf_counter(), time.process_time()
    made = method.learn(corpus, width=args.width, seed=seed, show=lambda done: None)
    seconds = [time.process_time() - work, time.perf_counter() - clock]
    write_static(made, out)
    return seconds


def train_peer(args: argparse.Namespace, sentences: Path, seed: int, out: Path) -> list[float]:
    """The same for gensim."""
    given = {
        "sg": int(args.method == "skipgram"),
        "alpha": 0.025 if args.method == "skipgram" else 0.05,
        "sample": 1e-3,
        "vector_size": args.width,
        "negative": args.negatives,
        "window": args.window,
        "epochs": args.epochs,
        "seed": seed + 1,
    }
    command = [args.peer, "-c", PEER, str(sentences), str(out), json.dumps(given)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def score(args: argparse.Namespace, file: Path) -> float | None:
    """The mean correlation over all lists."""
    if args.similarity is None:
        return None
    task = WordSimilarity(path=args.similarity)
    lists = task.read()
    words = {word for pairs in lists.values() for pair in pairs for word in pair[:2]}
    return task.score(lists, read_static(file).choose(words))["mean"]


def main() -> None:
    args = read_arguments()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = count_corpus(
            read_sentences(args.data), folder, least=args.least, split="words", lowercase=True
        )
        sentences = folder / "sentences.txt"
        with sentences.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{' '.join(words)}\n" for words in corpus.read_sentences())
        print(f"{corpus.total:,} words, {len(corpus.words):,} different ones")
        for seed in range(args.rounds):
            turns = ("plmctl", "gensim") if seed % 2 == 0 else ("gensim", "plmctl")
            for turn in turns if args.peer else ("plmctl",):
                out = folder / f"{turn}.bin"
                if turn == "plmctl":
                    work, clock = train_ours(args, corpus, seed, out)
                else:
                    work, clock = train_peer(args, sentences, seed, out)
                found = score(args, out)
                read = corpus.total * args.epochs
                rates = [f"{read / seconds:,.0f}" for seconds in (work, clock)]
                rows.append([turn, str(seed), *rates, "" if found is None else f"{found:.4f}"])
    head = ["library", "seed", "words a second of the processor", "by the clock", "similarity"]
    print_table(head, rows)


if __name__ == "__main__":
    main()
