"""Tokenizing: speed and memory of `plmctl tokenize` beside the library underneath used directly,
for each kind of tokenizer.

    # all kinds, two processes each
    python benchmarks/tokenize_text.py --text corpus.txt
    python benchmarks/tokenize_text.py --text corpus.txt --kinds wordpiece unigram --rounds 5
    # memory on a big input
    python benchmarks/tokenize_text.py --text corpus.txt --kinds wordpiece --gigabytes 1
    # made-up text: does it run
    python benchmarks/tokenize_text.py --megabytes 2 --rounds 1

The vocabulary is trained once, before. Each side is a whole process that reads the text and writes
ids on the same number of
cores: plmctl splits sentences, indexes and hashes on top; the library reads lines and encodes them
in batches with its own threads (`tokenizers`) or in a pool of processes (`sentencepiece`). Rounds
alternate; medians count. Then the ids are compared: those that plmctl wrote with those that the
library, in one call a sentence, gives for the same sentences. Memory is looked at 20 times a second
(Linux): the largest resident set of any process, and the most proportional set size (PSS) that a
process and its children held together.
`--gigabytes` repeats the text with words changed, so that no two documents are the same, and
measures plmctl alone.

(The file is not called tokenize.py because scripts beside it would then import it in place of
Python's own module.)
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pretrain_cpu import made_up_text

KINDS = ("wordpiece", "byte_bpe", "char", "unigram", "bpe")
BATCH = 2000  # lines the peer encodes at once
COMPARED = 20_000  # sentences whose ids are compared


@dataclass(frozen=True)
class Cost:
    seconds: float
    largest: int  # bytes resident in one process
    together: int  # bytes of PSS of all


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="a .txt or .txt.gz file; default: made-up words")
    parser.add_argument("--megabytes", type=int, default=100, help="of made-up text")
    parser.add_argument(
        "--gigabytes", type=float, help="measure the memory on so much varied text instead"
    )
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="a JSON file of all figures")
    parser.add_argument(
        "--peer", nargs=3, metavar=("TOKENIZER", "TEXT", "OUT"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.peer:
        return peer(*map(Path, options.peer), processes=options.processes)
    with tempfile.TemporaryDirectory(prefix="plmctl-bench-") as folder:
        work = Path(folder)
        # 8.2 bytes a made-up word
        text = (
            plain(Path(options.text), work)
            if options.text
            else made_up_text(work / "text.txt", int(options.megabytes * 1e6 / 8.2))
        )
        figures = [measured(kind, text, work / kind, options) for kind in options.kinds]
    if options.out:
        Path(options.out).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measured(kind: str, text: Path, work: Path, options: argparse.Namespace) -> dict[str, object]:
    """Train the vocabulary, run both sides in turn, compare; one line each, and all as numbers."""
    work.mkdir()
    plmctl = [
        sys.executable,
        "-m",
        "plmctl",
        "tokenize",
        f"tokenizer={kind}",
        f"processes={options.processes}",
    ]
    size = (
        [f"tokenizer.vocab_size={options.vocab}"]
        if kind != "char"
        else ["tokenizer.vocab_size=20000"]
    )
    subprocess.run(
        [*plmctl, f"data.path={text}", *size, f"out={work / 'first'}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    trained = work / "first/tokenizer"
    if options.gigabytes:
        text = varied(text, work / "big.txt", int(options.gigabytes * 1e9))
    command = [*plmctl, f"data.path={text}", f"tokenizer.path={trained}", f"out={work / 'own'}"]
    theirs = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--processes",
        str(options.processes),
        "--peer",
    ]
    own, other = [], []
    for _ in range(1 if options.gigabytes else options.rounds):
        own.append(watched(command))
        if not options.gigabytes:
            other.append(watched([*theirs, str(trained), str(text), str(work / "ids")]))
    megabytes = text.stat().st_size / 1e6
    found: dict[str, object] = {
        "kind": kind,
        "megabytes": megabytes,
        "processes": options.processes,
    }
    for name, runs in (("plmctl", own), ("library", other)):
        if runs:
            found |= {
                f"{name} {key}": value
                for key, value in said(f"{kind:10} {name}", megabytes, runs).items()
            }
    if other:
        found["speed ratio"] = statistics.median(
            b.seconds / a.seconds for a, b in zip(own, other, strict=True)
        )
    found["sentences with equal ids"], found["sentences compared"] = equal, total = compared(
        work / "own"
    )
    print(
        f"{kind:10} ids of {equal:,} of {total:,} sentences equal; ratio"
        f" {found.get('speed ratio', float('nan')):.2f}",
        flush=True,
    )
    return found


def said(name: str, megabytes: float, runs: list[Cost]) -> dict[str, float]:
    seconds = statistics.median(run.seconds for run in runs)
    largest, together = (
        max(run.largest for run in runs) / 2**20,
        max(run.together for run in runs) / 2**20,
    )
    print(
        f"{name:20} {megabytes / seconds:7.1f} MB/s  {seconds:7.1f} s  at most {largest:6.0f} MiB"
        f" in one process, {together:6.0f} MiB together",
        flush=True,
    )
    return {
        "MB/s": megabytes / seconds,
        "seconds": seconds,
        "largest MiB": largest,
        "together MiB": together,
    }


def plain(text: Path, work: Path) -> Path:
    """The file itself, or what a .gz holds: both sides read plain text."""
    if text.suffix != ".gz":
        return text
    file = work / text.name.removesuffix(".gz")
    with gzip.open(text) as packed, file.open("wb") as out:
        while block := packed.read(1 << 22):
            out.write(block)
    return file


def varied(text: Path, out: Path, size: int) -> Path:
    """`text` again and again until `size` bytes: in each copy a number stands behind the first
    word of every line.
    """
    copy = written = 0
    with out.open("w", encoding="utf-8") as file:
        while written < size:
            with text.open(encoding="utf-8") as lines:
                for line in lines:
                    first, space, rest = line.partition(" ")
                    written += file.write(
                        f"{first} {copy}{space}{rest}"
                        if copy and space and line[0] != "<"
                        else line
                    )
            copy += 1
    return out


def peer(tokenizer: Path, text: Path, out: Path, *, processes: int) -> None:
    """The straightforward program with the library that made the tokenizer."""
    import numpy as np

    os.environ["RAYON_NUM_THREADS"] = str(processes)
    with text.open(encoding="utf-8") as lines, out.open("wb") as file:
        batches = iter(
            lambda: [line.rstrip("\n") for _, line in zip(range(BATCH), lines, strict=False)], []
        )
        for ids in library(tokenizer, batches, processes):
            for each in ids:
                np.asarray(each, np.uint16).tofile(file)


def library(
    folder: Path, batches: Iterator[list[str]], processes: int
) -> Iterator[list[list[int]]]:
    """The ids of batches of lines, by `tokenizers` with its threads or by `sentencepiece` in a
    pool of processes.
    """
    if (folder / "tokenizer.json").exists():
        from tokenizers import Tokenizer

        encoder = Tokenizer.from_file(str(folder / "tokenizer.json"))
        encoder.encode_special_tokens = True
        for batch in batches:
            yield [
                found.ids for found in encoder.encode_batch_fast(batch, add_special_tokens=False)
            ]
        return
    import multiprocessing

    with multiprocessing.Pool(processes, _open, (str(next(folder.glob("*.model"))),)) as pool:
        yield from pool.imap(_encode, batches)


def _open(file: str) -> None:
    global _processor
    import sentencepiece

    _processor = sentencepiece.SentencePieceProcessor(model_file=file)


def _encode(batch: list[str]) -> list[list[int]]:
    return _processor.encode(batch, num_threads=1)


def compared(folder: Path) -> tuple[int, int]:
    """(equal, all): the ids of written sentences, and those that the library gives for the same
    text by itself.
    """
    from plmctl.data.shards import Shards
    from plmctl.data.survey import TextSource
    from plmctl.text.tokenizer import Tokenizer

    shards, tokenizer = Shards.open(folder), Tokenizer.load(folder)
    written = {
        tuple(ids) for split in (shards, Shards.open(folder, "valid")) for ids in sentences(split)
    }
    texts: list[str] = []
    path = shards.manifest["files"][0]["path"]
    for document in TextSource(path).documents():
        texts += document.segments if tokenizer.lossless else document.sentences
        if len(texts) > COMPARED:
            break
    found = [ids for ids in next(library(folder / "tokenizer", iter([texts]), 1)) if ids]
    return sum(tuple(ids) in written for ids in found), len(found)


def sentences(shards: Any) -> Iterator[list[int]]:
    """The first sentences of a split (both splits are in the order of the text), more than are
    compared.
    """
    ends = shards.sentences[: 2 * COMPARED + 1].tolist()
    for first, last in pairwise(ends):
        yield shards.ids[first:last].tolist()


def watched(command: list[str]) -> Cost:
    """What a command and all its children took."""
    start, largest, together = time.perf_counter(), 0, 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        sizes = [memory(pid) for pid in family(process.pid)]
        largest = max([largest, *(size[0] for size in sizes)])
        together = max(together, sum(size[1] for size in sizes))
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return Cost(time.perf_counter() - start, largest, together)


def family(pid: int) -> Iterator[int]:
    yield pid
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = tasks.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        for child in children:
            yield from family(int(child))


def memory(pid: int) -> tuple[int, int]:
    """(resident, proportional) bytes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {
        line.split()[0]: int(line.split()[1]) * 1024
        for line in lines
        if line.startswith(("Rss:", "Pss:"))
    }
    return found.get("Rss:", 0), found.get("Pss:", 0)


if __name__ == "__main__":
    main()
