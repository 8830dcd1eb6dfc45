"""Deduplication by plmctl beside datatrove's MinHash, on real text with exact and changed copies.

    python benchmarks/dedup.py --data wiki/ --megabytes 1000 --peer venv/bin/python --rounds 2

The corpus is made of the documents of `--data`, which are written again and again until it has
`--megabytes`: some as they are, some with another case and white space, some with a share of their
words replaced, and some in so different an order of words that they are other documents. Both sides
read the same JSON lines in `--files` files with `--processes` processes, use 14 buckets of 8 hashes
of word 5-grams, and write what stays as packed JSON lines. They take turns, `--rounds` times; the
best time counts. datatrove runs in the Python of `--peer`, which needs `datatrove`, `xxhash`,
`orjson` and `spacy` (peer_dedup.py); without it plmctl runs alone.

Of the sets of documents that stay the Jaccard similarity is printed, also with the first document
of each of datatrove's clusters instead of the one that it happens to keep.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from plmctl.text.reader import read_documents

PEER = Path(__file__).with_name("peer_dedup.py")
# further documents: (share of such documents, share of its words that are replaced);
# 1: its words are shuffled, and it is another document
ORIGINAL = 0.1  # share of the corpus, at most, that is written as it is
CHANGES = ((0.25, 0.0), (0.15, 0.002), (0.1, 0.005), (0.5, 1.0))
UNCLEAR = 0.02  # the same of documents about as often found as not
LEAST = 100  # words of a document: of a shorter one, a single word is many n-grams


def read_texts(paths: Sequence[str], size: int, least: int, draws: random.Random) -> list[str]:
    """Documents with at least `least` words, `size` characters of them, or all."""
    texts = ["\n".join(document.paragraphs) for document in read_documents(paths)]
    texts = [text for text in texts if text.count(" ") >= least]
    draws.shuffle(texts)
    ends = accumulate(map(len, texts))
    taken = [text for text, end in zip(texts, ends, strict=True) if end <= size]
    if not taken:
        raise SystemExit(f"no document has {least} words: give more text, or --least 1")
    return taken


def change(text: str, share: float, words: Sequence[str], draws: random.Random) -> str:
    """A copy of a text with a share of its words replaced."""
    if share == 0:
        return text if draws.random() < 0.5 else "  ".join(text.swapcase().split())
    lines = text.split("\n")
    if share == 1:
        mixed = text.split()
        draws.shuffle(mixed)
        return " ".join(mixed)
    return "\n".join(
        " ".join(
            draws.choice(words) if draws.random() < share else word for word in line.split(" ")
        )
        for line in lines
    )


def write_corpus(given: argparse.Namespace, folder: Path) -> int:
    """Write the corpus; the number of its documents."""
    draws, size, files = random.Random(given.seed), int(given.megabytes * 1e6), given.files
    paths: Sequence[str] = given.data
    texts = read_texts(paths, int(ORIGINAL * size), given.least, draws)
    words = sorted({word for text in texts[:2000] for word in text.split() if word.isalpha()})
    shares, rates = zip(*CHANGES, (given.unclear, UNCLEAR), strict=True)
    folder.mkdir(parents=True)
    streams = [(folder / f"{n:05}.jsonl").open("w", encoding="utf-8") for n in range(files)]
    count = written = 0
    while written < size:
        text = texts[count] if count < len(texts) else draws.choice(texts)
        if count >= len(texts):
            text = change(text, draws.choices(rates, shares)[0], words, draws)
        row = json.dumps({"text": text, "id": f"d{count}", "metadata": {}}, ensure_ascii=False)
        streams[count % files].write(row + "\n")
        written += len(row)
        count += 1
    for stream in streams:
        stream.close()
    return count


def run(command: list[str]) -> tuple[float, float]:
    """(seconds by the clock, seconds of the processor) of a command and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, work


def read_ids(folder: Path) -> Iterator[str]:
    """The ids of the documents in packed JSON lines."""
    for file in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            yield from (json.loads(line)["id"] for line in stream)


def jaccard(one: set[str], other: set[str]) -> float:
    """The share of the elements of either set that are in both."""
    return len(one & other) / max(1, len(one | other))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", required=True, help="text: files or folders")
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--least", type=int, default=LEAST, help="words of a document")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peer", help="a Python that has datatrove; none: plmctl alone")
    parser.add_argument("--folder", help="where the files go; none: a temporary folder")
    parser.add_argument("--seed", type=int, default=0)
    words = (
        "share of copies that are about as often found as not, in which two draws of hashes differ"
    )
    parser.add_argument("--unclear", type=float, default=0, help=words)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="dedup-") as name:
        compare(given, Path(name))


def compare(given: argparse.Namespace, folder: Path) -> None:
    """Make the corpus, run both sides in turn, and print times and what stays."""
    corpus = folder / "corpus"
    count = write_corpus(given, corpus)
    print(f"{count:,} documents, {given.megabytes:g} MB, {given.processes} processes")
    sides: dict[str, list[str]] = {
        "plmctl": [
            *(sys.executable, "-m", "plmctl", "data", "dedup", str(corpus)),
            *(f"out={folder / 'plmctl'}", f"processes={given.processes}"),
        ]
    }
    if given.peer:
        sides["datatrove"] = [
            *(given.peer, str(PEER), str(corpus), str(folder / "datatrove")),
            *("--tasks", str(given.files), "--workers", str(given.processes)),
        ]
    times: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    for _ in range(given.rounds):
        for side, command in sides.items():
            shutil.rmtree(folder / side, ignore_errors=True)
            times[side].append(run(command))
    show(folder, times, count)


def show(folder: Path, times: dict[str, list[tuple[float, float]]], count: int) -> None:
    """Print the figures of both sides, and how far they agree."""
    best: dict[str, Any] = {}
    for side, taken in times.items():
        clock, work = (min(column) for column in zip(*taken, strict=True))
        best[side] = clock, work
        print(f"{side}: {count / clock:,.0f} documents/s by the clock, {clock:.1f} s;", end=" ")
        print(f"{count / work:,.0f} documents/s of the processor, {work:.1f} s")
    ours = set(read_ids(folder / "plmctl"))
    print(f"plmctl keeps {len(ours):,} documents")
    if "datatrove" not in best:
        return
    clock, work = (a / b for a, b in zip(best["datatrove"], best["plmctl"], strict=True))
    print(f"plmctl is {clock:.1f} times as fast by the clock, {work:.1f} of the processor")
    theirs = set(read_ids(folder / "datatrove"))
    firsts = set(json.loads((folder / "datatrove" / "firsts.json").read_text()))
    print(f"datatrove keeps {len(theirs):,} documents")
    print(f"Jaccard similarity of the kept sets {jaccard(ours, theirs):.4f};", end=" ")
    print(f"with the first of each cluster {jaccard(ours, firsts):.4f}")


if __name__ == "__main__":
    main()
