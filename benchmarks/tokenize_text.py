"""Tokenizing speed and memory: `plmctl tokenize` beside the `tokenizers` library, same vocabulary, text file to ids on disk.

    python benchmarks/tokenize_text.py --text corpus.txt --kind wordpiece
    python benchmarks/tokenize_text.py --megabytes 20 --rounds 1      # made-up text: does it run

The vocabulary is trained once, before. Each side is a whole process that reads the text and writes ids: plmctl splits
sentences and indexes documents on top; the peer reads lines and encodes them in batches, in parallel. Rounds alternate;
medians count. Memory is the most proportional set size (PSS) that the process and its children held together, looked at
20 times a second (Linux).

(The file is not called tokenize.py because scripts beside it would then import it in place of Python's own module.)
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pretrain_cpu import made_up_text

from plmctl.text import rust

BATCH = 2000  # lines the peer encodes at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="a .txt file; default: made-up words")
    parser.add_argument("--megabytes", type=int, default=200, help="of made-up text")
    parser.add_argument(
        "--kind", default="wordpiece", choices=["wordpiece", "byte_bpe"], help="the kinds that the peer has too"
    )
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", nargs=3, metavar=("TOKENIZER", "TEXT", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer(*map(Path, options.peer))
    with tempfile.TemporaryDirectory(prefix="plmctl-bench-") as folder:
        work = Path(folder)
        # 8.2 bytes a made-up word
        text = Path(options.text) if options.text else made_up_text(work / "text.txt", int(options.megabytes * 1e6 / 8.2))
        compare(text, work, options)


def compare(text: Path, work: Path, options: argparse.Namespace) -> None:
    plmctl = [sys.executable, "-m", "plmctl", "tokenize", f"tokenizer={options.kind}"]
    first = work / "first"
    subprocess.run([*plmctl, f"data.path={text}", f"tokenizer.vocab_size={options.vocab}", f"out={first}"], check=True)
    trained = first / "tokenizer"
    own: list[tuple[float, float]] = []
    other: list[tuple[float, float]] = []
    for number in range(options.rounds):
        own.append(watched([*plmctl, f"data.path={text}", f"tokenizer.path={trained}", f"out={work / f'own{number}'}"]))
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--peer",
            str(trained / rust.FILE),
            str(text),
            str(work / "ids"),
        ]
        other.append(watched(command))
    size = text.stat().st_size / 1e6
    for name, runs in (("plmctl tokenize", own), ("tokenizers", other)):
        seconds, memory = statistics.median(s for s, _ in runs), max(m for _, m in runs)
        print(f"{name:16} {size / seconds:7.1f} MB/s  {seconds:7.1f} s  {memory / 2**20:7.0f} MiB at most")
    ratio = statistics.median(b[0] / a[0] for a, b in zip(own, other, strict=True))
    print(f"plmctl is {ratio:.2f} times as fast on {size:.0f} MB, {os.cpu_count()} cores, {options.kind}")


def peer(tokenizer: Path, text: Path, out: Path) -> None:
    """The straightforward program with the `tokenizers` library."""
    import numpy as np
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    with text.open(encoding="utf-8") as lines, out.open("wb") as file:
        while batch := [line.rstrip("\n") for _, line in zip(range(BATCH), lines, strict=False)]:
            for encoding in encoder.encode_batch_fast(batch, add_special_tokens=False):
                np.asarray(encoding.ids, np.uint16).tofile(file)


def watched(command: list[str]) -> tuple[float, float]:
    """(seconds, most bytes of PSS) of a command and all its children."""
    start, most = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, sum(map(pss, family(process.pid))))
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return time.perf_counter() - start, most


def family(pid: int) -> Iterator[int]:
    yield pid
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = tasks.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        for child in children:
            yield from family(int(child))


def pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
