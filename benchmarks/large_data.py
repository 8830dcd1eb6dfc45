"""Tokens of a text in parts, and tokens behind a store that fails, both beside the plain way.

    python benchmarks/large_data.py --text wiki/ --megabytes 10000 --parts 16 --cache 1 --kills 5

1. The documents of `--text` are written again and again, each with a number of its own, until they
   have `--megabytes`. One process tokenizes them. Then two processes tokenize `--parts` parts in
   turn; a first one is killed in part 0, which alone is made again. The bytes of both results are
   compared, and the largest memory of a process is printed.
2. The tokens, in shards of `--shard-tokens`, lie behind a server on this machine. Of its answers, a
   share of `--faults` is a status 5xx or 429, half a file, a changed bit, or comes late. A process
   reads rows from it through a cache of `--cache` GB: `--steps` updates of 64 rows of 512 tokens,
   at `--pace` tokens a second, as a training would. It is killed `--kills` times. Its rows are
   compared with those of a process that reads the files themselves. Printed are the share of the
   time in which it waited for data, its memory, and the largest size of the cache.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from faulty_store import open_store

from plmctl.text.reader import read_documents

ROWS, LENGTH = 64, 512
FAULTS: tuple[int | str, ...] = (503, 429, 500, "cut", "flip", "slow")


def write_text(paths: Sequence[str] | None, megabytes: float, file: Path) -> None:
    """JSON lines with documents of `paths`, none twice the same."""
    size = int(megabytes * 1e6)
    with file.open("w", encoding="utf-8") as lines:
        for turn in itertools.count():
            for number, document in enumerate(read_documents(paths)):
                text = f"{turn}-{number} " + "\n".join(document.paragraphs)
                size -= lines.write(json.dumps({"text": text}) + "\n")
                if size <= 0:
                    return


def run(words: Sequence[str], *, kill_after: float = 0) -> tuple[float, float]:
    """(seconds, GB of the largest process) of a command of plmctl; it may be killed before."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "plmctl", *words], stdout=subprocess.DEVNULL)
    if kill_after:
        time.sleep(kill_after)
        process.kill()
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
        raise SystemExit(f"failed: plmctl {shlex.join(words)}")
    return time.monotonic() - start, used.ru_maxrss / 1e6


def hash_folder(folder: Path) -> str:
    """A hash of the names and contents of all files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{file.relative_to(folder)} {content}\n".encode())
    return digest.hexdigest()


def tokenize_in_parts(words: Sequence[str], parts: int, kill_after: float) -> tuple[float, float]:
    """(seconds, GB of the largest process) of two processes that share the parts."""
    start, memory = time.monotonic(), [0.0]
    run([*words, f"parts={parts}", "part=0"], kill_after=kill_after)
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from large_data import run
for part in range(int(sys.argv[1]), {parts}, 2):
    print(run([*{[*words]!r}, "parts={parts}", f"part={{part}}"])[1], flush=True)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", script, first], stdout=subprocess.PIPE, text=True)
        for first in ("0", "1")
    ]
    for process in both:
        memory += map(float, process.communicate()[0].split())
        if process.returncode:
            raise SystemExit("a part failed")
    memory.append(run([*words, f"parts={parts}"])[1])
    return time.monotonic() - start, max(memory)


def read(path: str, steps: int, pace: float, cache: float, folder: Path) -> None:
    """Read rows from the last saved state on; a line of `rows.txt` is the hash of an update."""
    import resource

    from plmctl.config.groups import Data
    from plmctl.data.formats.blocks import Blocks
    from plmctl.data.loader import Loader, RowSource
    from plmctl.data.located import locate
    from plmctl.data.stream_reader import StreamReader
    from plmctl.inputs.sharded import open_shards
    from plmctl.noise.token_mask import TokenMask

    data = Data(cache_size=cache, cache_dir=str(folder / "cache"))
    stream = open_shards(locate(path), path, data, window=1, share=1.0)
    vocab = stream.tokenizer.vocab
    blocks = Blocks(vocab=vocab, max_length=LENGTH, crossing=True, specials=False)
    reader = StreamReader(stream, blocks, seed=1, batch_size=ROWS)
    loader = Loader(
        {"text": RowSource(reader, TokenMask(vocab=vocab, rate=0.15))}, micro_batch_size=8
    )
    state, saved, first = folder / "state.json", {"step": 0}, time.monotonic()
    if state.is_file():
        saved = json.loads(state.read_text())
        loader.load_state_dict(saved["loader"])
    largest = 0
    with (folder / "rows.txt").open("a") as rows:
        for step in range(saved["step"], steps):
            batches = next(loader)
            if step == saved["step"]:  # the start is no wait of a training
                loader.waited, first = 0.0, time.monotonic()
            digest = hashlib.sha256()
            for batch in batches:
                digest.update(batch.key.numpy().tobytes() + batch.text.ids.numpy().tobytes())
            rows.write(f"{step} {digest.hexdigest()}\n")
            rows.flush()
            time.sleep(ROWS * LENGTH / pace)
            if step % 10 == 9:
                text = json.dumps({"step": step + 1, "loader": loader.state_dict()})
                (folder / "state.new").write_text(text)
                (folder / "state.new").replace(state)
                files = (folder / "cache/shards").glob("*")
                largest = max(largest, sum(file.stat().st_size for file in files if file.exists()))
    loader.close()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps([loader.waited, time.monotonic() - first, used, largest / 1e9]))


def read_with_kills(
    arguments: argparse.Namespace, path: str, folder: Path, kills: int
) -> list[float]:
    """(waited, seconds, GB of memory, GB of the cache) of the last session."""
    folder.mkdir()
    own = {**os.environ, "PLMCTL_CACHE": str(folder / "cache")}
    words = ["--read", path, "--work", str(folder), "--steps", str(arguments.steps)]
    words += ["--pace", str(arguments.pace), "--cache", str(arguments.cache)]
    command, draws = [sys.executable, __file__, *words], random.Random(0)
    for number in range(kills):
        process = subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL)
        aim = arguments.steps * (number + draws.random()) / (kills + 1)
        while process.poll() is None and count_lines(folder / "rows.txt") < aim:
            time.sleep(0.05)
        process.kill()
        process.wait()
    done = subprocess.run(command, env=own, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def count_lines(file: Path) -> int:
    return len({line.split()[0] for line in file.read_text().splitlines()}) if file.exists() else 0


def read_log(file: Path) -> set[str]:
    return set(file.read_text().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", nargs="*", help="files of text; default: the text in Python")
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--shard-tokens", type=int, default=1 << 26)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--cache", type=float, default=1.0, help="GB")
    parser.add_argument("--faults", type=float, default=0.05, help="share of the answers")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--pace", type=float, default=1e6, help="tokens a second")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--work", type=Path, help="a folder that stays; default: a new one")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read, arguments.steps, arguments.pace, arguments.cache, arguments.work)
        return
    with tempfile.TemporaryDirectory() as made:
        measure(arguments, arguments.work or Path(made))


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "text.jsonl"
    if not text.exists():
        write_text(arguments.text or None, arguments.megabytes, text)
    words = ["tokenize", f"data.path={text}", "tokenizer=wordpiece", "processes=1"]
    words += [f"shard_tokens={arguments.shard_tokens}"]
    if arguments.megabytes > 50:  # a small text yields fewer tokens
        words += [f"tokenizer.vocab_size={arguments.vocab}"]
    one, two = folder / "one", folder / "two"
    seconds, memory = run([*words, f"out={one}"])
    print(f"{text.stat().st_size / 1e6:,.1f} MB in one process: {seconds:.1f} s, {memory:.2f} GB")
    kill_after = max(3.0, seconds / 20)
    in_parts = tokenize_in_parts([*words, f"out={two}"], arguments.parts, kill_after)
    same = hash_folder(one) == hash_folder(two)
    print(
        f"in {arguments.parts} parts by two, one killed: {in_parts[0]:.1f} s,"
        f" {in_parts[1]:.2f} GB, {'the same' if same else 'OTHER'} bytes",
        flush=True,
    )
    straight = read_with_kills(arguments, str(one), folder / "straight", 0)
    draws = random.Random(1)

    def fault(path: str, number: int) -> int | str:
        return draws.choice(FAULTS) if draws.random() < arguments.faults else ""

    with open_store(one, fault) as store:
        found = read_with_kills(arguments, store.url, folder / "remote", arguments.kills)
        asked, sent = sum(store.asked.values()), store.sent
    rows = [read_log(folder / name / "rows.txt") for name in ("straight", "remote")]
    print(
        f"{arguments.steps} updates from a store: {asked} requests, {sent / 1e9:.2f} GB sent,"
        f" {arguments.kills} kills, {'the same' if rows[0] == rows[1] else 'OTHER'} rows"
    )
    for name, (waited, seconds, used, cache) in (("files", straight), ("store", found)):
        share = waited / max(seconds, 1e-9)
        print(f"{name}: waited {share:.2%} of {seconds:.1f} s, {used:.2f} GB, cache {cache:.3f} GB")
    if not same or rows[0] != rows[1]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
