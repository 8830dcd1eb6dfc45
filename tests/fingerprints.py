"""Whether the code still computes the same numbers: short hashes of what many small runs make.

    python tests/fingerprints.py                      compare with fingerprints.json beside it
    python tests/fingerprints.py --only 'recipe/*'    some of the cases, and what they start from
    python tests/fingerprints.py --write              store what is found, for this platform

Every case is a command line in a process of its own, on text that is made up here, in fp32, with
one thread and fixed seeds. The code that runs is that of PYTHONPATH, else this repository's:
PYTHONPATH=<another checkout> fingerprints that one. The exit status is 1 if anything differs.

weights  the tensors of all checkpoints, whatever their names and order; not the optimizer's
curve    metrics.jsonl without what the clock decides
output   what a command writes beside these: tokens, predictions, texts, vectors, tables
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fingerprint.case import Case
from fingerprint.cases import cases
from fingerprint.results import PARTS, Fingerprint, fingerprint
from fingerprint.texts import write_inputs

STORE = Path(__file__).with_suffix(".json")
LIBRARIES = ("torch", "numpy", "sentencepiece", "tokenizers")
ALIKE = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",  # this and the next two: the same kernels on newer processors
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "WNSEARCHDIR": "inputs/wordnet",  # a small WordNet, written with the texts
}


@dataclass
class Outcome:
    """What became of a case: its fingerprint, or why there is none."""

    found: Fingerprint
    failure: str = ""
    seconds: float = 0.0


def tested() -> str:
    """The PYTHONPATH of the code that is fingerprinted."""
    return os.environ.get("PYTHONPATH") or str(Path(__file__).parents[1])


def python(*words: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the code that is fingerprinted; `more`: environment variables."""
    env = {**os.environ, **ALIKE, "PYTHONPATH": tested(), **more}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, encoding="utf-8", check=False
    )


def printed(code: str) -> str:
    """What Python code prints."""
    done = python("-c", code, cwd=Path(tempfile.gettempdir()))
    if done.returncode:
        sys.exit(f"{tested()}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


def platform_key() -> str:
    """What may change the last digit of a number: system, processor, its kernels, torch."""
    code = "import torch; print(torch.backends.cpu.get_cpu_capability(), torch.__version__)"
    kernels, torch_version = printed(code).split()
    number = torch_version.partition("+")[0]
    return f"{platform.system()} {platform.machine()} {kernels} torch {number}".lower()


def recipe_folder() -> Path:
    """recipes/ of the code that is fingerprinted: beside its package, or inside if installed."""
    package = Path(printed("import plmctl; print(plmctl.__path__[0])"))
    return next(
        each for each in (package.parent / "recipes", package / "_recipes") if each.is_dir()
    )


def execute(case: Case, root: Path) -> Outcome:
    """Run the command of a case in `root`; <case>.log keeps what it says."""
    folder, began = root / case.name, time.monotonic()
    (folder if case.writes_files else folder.parent).mkdir(parents=True, exist_ok=True)
    done = python("-m", "plmctl", *case.words, cwd=root, PLMCTL_CACHE=str(root / "cache"))
    seconds = time.monotonic() - began
    folder.with_name(f"{folder.name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return Outcome({}, f"exit {done.returncode}: {' / '.join(said[-3:])[:300]}", seconds)
    try:
        if case.prints:
            (folder / case.prints).write_text(done.stdout, encoding="utf-8")
        return Outcome(fingerprint(folder, case.outputs), seconds=seconds)
    except (OSError, ValueError) as error:
        return Outcome({}, f"{type(error).__name__}: {error}", seconds)


def give_up(lost: str) -> Outcome:
    return Outcome({}, f"{lost} failed")


def run(
    chosen: list[Case], root: Path, jobs: int, tell: Callable[[str, Outcome], None]
) -> dict[str, Outcome]:
    """Each case once all that it reads is there.

    Args:
        chosen: the cases, with all that they need.
        root: the folder in which they run.
        jobs: so many at the same time.
        tell: is called with the name and the outcome of each case when it ends.
    """
    done: dict[str, Outcome] = {}
    waiting, running = list(chosen), dict[Future[Outcome], str]()
    needs = {case.name: case.needs([each.name for each in chosen]) for case in chosen}
    with ThreadPoolExecutor(jobs) as pool:
        while waiting or running:
            for case in [case for case in waiting if needs[case.name] <= done.keys()]:
                waiting.remove(case)
                lost = [name for name in sorted(needs[case.name]) if done[name].failure]
                job = pool.submit(give_up, lost[0]) if lost else pool.submit(execute, case, root)
                running[job] = case.name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(future)
                done[name] = future.result()
                tell(name, done[name])
    return done


def verdict(outcome: Outcome, stored: Fingerprint | None) -> str:
    """`equal`, `not stored`, or what differs."""
    if outcome.failure:
        return f"failed: {outcome.failure}"
    if stored is None:
        return "not stored"
    parts = [part for part in PARTS if outcome.found.get(part) != stored.get(part)]
    if not parts:
        return "equal"
    losses = stored.get("loss"), outcome.found.get("loss")
    moved = f" (loss was {losses[0]})" if losses[0] != losses[1] else ""
    return f"DIFFERS: {', '.join(parts)}{moved}"


def with_needs(chosen: list[Case], every: list[Case]) -> list[Case]:
    """The chosen cases and all that they start from, in the order of `every`."""
    names, all_names = {case.name for case in chosen}, {case.name for case in every}
    while True:
        needed = set[str]().union(*(case.needs(all_names) for case in every if case.name in names))
        if needed <= names:
            break
        names |= needed
    return [case for case in every if case.name in names]


def read_store() -> dict[str, Any]:
    """{platform: {"libraries": {name: version}, "cases": {name: fingerprint}}}"""
    return json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}


def write_store(key: str, done: dict[str, Outcome]) -> None:
    """Keep what was found, beside what is known of other cases and platforms."""
    store = read_store()
    known = store.get(key, {}).get("cases", {})
    known |= {name: outcome.found for name, outcome in done.items() if not outcome.failure}
    libraries = {name: version(name) for name in LIBRARIES}
    store[key] = {"libraries": libraries, "cases": dict(sorted(known.items()))}
    STORE.write_text(json.dumps(dict(sorted(store.items())), indent=1) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=summary, epilog=rest, formatter_class=shape)
    parser.add_argument("--write", action="store_true", help="store what is found")
    parser.add_argument("--only", metavar="GLOB", action="append", help="of the names; repeatable")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--out", type=Path, help="a new folder that keeps the runs and their logs")
    parser.add_argument("--list", action="store_true", help="print the command lines and stop")
    return parser.parse_args()


def measure(chosen: list[Case], given: argparse.Namespace, known: dict[str, Fingerprint]) -> int:
    """Run the cases, tell of each what became of it, and keep that if it was asked for."""
    root = given.out or Path(tempfile.mkdtemp(prefix="fingerprints-"))
    write_inputs(root / "inputs")
    counts = Counter[str]()

    def tell(name: str, outcome: Outcome) -> None:
        told = "found" if given.write and not outcome.failure else verdict(outcome, known.get(name))
        counts[told.partition(":")[0]] += 1
        loss = outcome.found.get("loss", "")
        print(f"{name:28} {loss!s:>12} {outcome.seconds:6.1f} s  {told}", flush=True)

    try:
        done = run(chosen, root, given.jobs, tell)
    finally:
        if given.out is None:
            shutil.rmtree(root, ignore_errors=True)
    if given.write:
        write_store(platform_key(), done)
    elif not given.only:
        for name in sorted(known.keys() - done.keys()):
            counts["lost"] += 1
            print(f"{name:28} is stored, and there is no such case any more")
    if counts["not stored"]:
        print("to store what is new: python tests/fingerprints.py --write --only <name>")
    print(", ".join(f"{count} {told}" for told, count in counts.items()))
    return 0 if counts.keys() <= {"equal", "found", "not stored"} else 1


def main() -> int:
    given = arguments()
    every = cases(recipe_folder())
    globs = given.only or ["*"]
    named = [case for case in every if any(fnmatch.fnmatch(case.name, glob) for glob in globs)]
    if not named:
        sys.exit(f"no case is called {' or '.join(globs)}; see --list")
    if given.list:
        print("\n".join(f"{case.name:28} plmctl {' '.join(case.words)}" for case in named))
        return 0
    key, store = platform_key(), read_store()
    if key not in store and not given.write:
        print(f"no fingerprints are stored for '{key}', only for: {', '.join(store) or 'none'}")
        print("fix: python tests/fingerprints.py --write, with PYTHONPATH=<code that is right>")
        return 0
    known = store.get(key, {"libraries": {}, "cases": {}})
    for name, stored in known["libraries"].items():
        if stored != version(name):
            print(f"note: stored with {name} {stored}, here is {version(name)}")
    print(f"{tested()}, {key}")
    return measure(with_needs(named, every), given, known["cases"])


if __name__ == "__main__":
    sys.exit(main())
