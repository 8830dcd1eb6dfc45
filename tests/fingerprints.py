"""Whether the code still computes the same numbers: weights, curves and outputs of many small runs, as short hashes.

    python tests/fingerprints.py                      compare with tests/fingerprints.json; exit status 1 if anything differs
    python tests/fingerprints.py --only 'recipe/*'    some of the cases, and what they start from
    python tests/fingerprints.py --write              store what is found, for this platform

Every case is a command line in a process of its own, on text that is made up here, in fp32, with one thread and fixed seeds.
The code that runs is that of PYTHONPATH, else this repository's: PYTHONPATH=<another checkout> fingerprints that one.

weights  the tensors of all checkpoints of the case, whatever their names and their order; not the optimizer's
curve    metrics.jsonl without what depends on the clock
output   what the command writes beside: tokens, predictions, texts, vectors, tables
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fingerprint_cases import Case, cases
from fingerprint_texts import write_inputs

STORE = Path(__file__).with_suffix(".json")
REPOSITORY = Path(__file__).parents[1]
CLOCK = {"tokens_per_second", "data_wait", "mfu", "seconds"}  # of a record: differ from run to run
LIBRARIES = ("torch", "numpy", "sentencepiece", "tokenizers")
PARTS = ("weights", "curve", "output")
SAME_EVERYWHERE = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "COLUMNS": "100", "NO_COLOR": "1"}

Fingerprint = dict[str, str | float]


def short_hash(pieces: Iterable[bytes]) -> str:
    """Of the pieces as they are: in order, each with its length."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(len(piece).to_bytes(8, "little") + piece)
    return found.hexdigest()[:16]


def tensors(file: Path) -> list[bytes]:
    """A hash of the bytes of every tensor in a .safetensors file, sorted."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    spans = [(each["dtype"], *each["data_offsets"]) for name, each in header.items() if name != "__metadata__"]
    return sorted(hashlib.sha256(dtype.encode() + content[start + a : start + b]).digest() for dtype, a, b in spans)


def weights(folder: Path) -> str | None:
    """Of all checkpoints in `folder`; the same checkpoint in two places counts once."""
    files = [file for file in folder.rglob("*.safetensors") if file.stem.startswith(("model", "objective"))]
    saved: dict[Path, list[bytes]] = {}
    for file in files:
        saved.setdefault(file.parent, []).extend(tensors(file))
    return short_hash(sorted({b"".join(sorted(each)) for each in saved.values()})) if saved else None


def records(folder: Path) -> list[list[dict[str, Any]]]:
    """The lines of every metrics.jsonl in `folder` without the clock's numbers, sorted by what they say."""
    found = []
    for file in folder.rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        found.append([{key: value for key, value in line.items() if key not in CLOCK} for line in lines])
    return sorted(found, key=json.dumps)


def last_loss(curves: list[list[dict[str, Any]]]) -> float | None:
    """Of the last record that has one: `loss` of training, or the first number that is called so."""
    for line in reversed([line for curve in curves for line in curve]):
        if "loss" in line:
            return line["loss"]
    return None


def canonical(value: Any, ignored: frozenset[str]) -> Any:
    """JSON data without the keys of `ignored`, however deep."""
    if isinstance(value, Mapping):
        return {key: canonical(each, ignored) for key, each in value.items() if key not in ignored}
    if isinstance(value, list):
        return [canonical(each, ignored) for each in value]
    return value


def content(file: Path, case: Case) -> bytes:
    """What a file says: of JSON the data that does not depend on the clock, of anything else its bytes."""
    if file.suffix not in (".json", ".jsonl"):
        return file.read_bytes()
    text = file.read_text(encoding="utf-8")
    data = [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text)
    return json.dumps(canonical(data, case.ignored), sort_keys=True).encode()


def output(folder: Path, case: Case) -> str | None:
    """Of the files that the case names, with their own names but without those of folders that hold them."""
    files = sorted({file for pattern in case.outputs for file in folder.glob(pattern)})
    if case.outputs and not files:
        raise RuntimeError(f"wrote none of {', '.join(case.outputs)}")
    return short_hash(sorted(file.name.encode() + b"\n" + content(file, case) for file in files)) if files else None


def fingerprint(folder: Path, case: Case) -> Fingerprint:
    curves = records(folder)
    found: dict[str, str | float | None] = {
        "weights": weights(folder),
        "curve": short_hash([json.dumps(curves, sort_keys=True).encode()]) if curves else None,
        "output": output(folder, case),
        "loss": last_loss(curves),
    }
    return {key: value for key, value in found.items() if value is not None}


@dataclass
class Outcome:
    """What became of a case: its fingerprint, or why there is none."""

    found: Fingerprint
    failure: str
    seconds: float


def execute(case: Case, root: Path) -> Outcome:
    """Run the command of a case in `root`; what it says is kept in <case>.log."""
    folder = root / case.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **SAME_EVERYWHERE, "PLMCTL_CACHE": str(root / "cache"), "PYTHONPATH": tested()}
    began = time.monotonic()
    log = folder.with_name(folder.name + ".log")
    done = subprocess.run(
        [sys.executable, "-m", "plmctl", *case.words], cwd=root, env=env, capture_output=True, encoding="utf-8", check=False
    )
    log.write_text(f"{done.stdout}\n{done.stderr}", encoding="utf-8")
    seconds = time.monotonic() - began
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return Outcome({}, f"exit {done.returncode}: {' / '.join(said[-3:])[:300]}", seconds)
    try:
        if case.prints:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stdout.json").write_text(done.stdout, encoding="utf-8")
        return Outcome(fingerprint(folder, case), "", seconds)
    except (OSError, ValueError, RuntimeError) as error:
        return Outcome({}, f"{type(error).__name__}: {error}", seconds)


def tested() -> str:
    """PYTHONPATH of the code that is fingerprinted."""
    return os.environ.get("PYTHONPATH") or str(REPOSITORY)


def recipe_folder() -> Path:
    """recipes/ of the code that is fingerprinted: beside its package, or inside where it is installed."""
    code = "import plmctl; print(plmctl.__path__[0])"
    env = {**os.environ, "PYTHONPATH": tested()}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir()
    )
    package = Path(done.stdout.strip())
    return next(folder for folder in (package.parent / "recipes", package / "_recipes") if folder.is_dir())


def platform_key() -> str:
    """What may change the last bits of a number: processor, its instruction set, torch."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability().lower()
    return f"{platform.system().lower()} {platform.machine()} {capability} torch {torch.__version__.partition('+')[0]}"


def run(chosen: list[Case], root: Path, jobs: int, tell: Callable[[Case, Outcome], None]) -> dict[str, Outcome]:
    """Every case once all that it reads is there, `jobs` at a time."""
    done: dict[str, Outcome] = {}
    open_cases, running = list(chosen), dict[Future[Outcome], Case]()
    with ThreadPoolExecutor(jobs) as pool:
        while open_cases or running:
            for case in [case for case in open_cases if case.needs <= done.keys()]:
                open_cases.remove(case)
                lost = [name for name in sorted(case.needs) if done[name].failure]
                if lost:
                    done[case.name] = Outcome({}, f"{lost[0]} failed", 0.0)
                    tell(case, done[case.name])
                else:
                    running[pool.submit(execute, case, root)] = case
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                case = running.pop(future)
                done[case.name] = future.result()
                tell(case, done[case.name])
    return done


def verdict(outcome: Outcome, stored: Fingerprint | None) -> str:
    """`equal`, or what differs."""
    if outcome.failure:
        return f"failed: {outcome.failure}"
    if stored is None:
        return "not stored"
    names = [name for name in PARTS if outcome.found.get(name) != stored.get(name)]
    differing = [f"{name} differ{'' if name == 'weights' else 's'}" for name in names]
    if names and outcome.found.get("loss") != stored.get("loss"):
        differing.append(f"loss {stored.get('loss')} -> {outcome.found.get('loss')}")
    return ", ".join(differing) or "equal"


def with_what_they_need(chosen: list[Case], every: list[Case]) -> list[Case]:
    names = {case.name for case in chosen}
    while more := {need for case in every if case.name in names for need in case.needs} - names:
        names |= more
    return [case for case in every if case.name in names]


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store what is found")
    parser.add_argument("--only", metavar="GLOB", action="append", help="cases of these names; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--out", type=Path, help="a folder that keeps the runs and what they said")
    parser.add_argument("--list", action="store_true", help="the command lines of the cases, and stop")
    given = parser.parse_args()
    every = cases(recipe_folder())
    named = [case for case in every if any(fnmatch.fnmatch(case.name, glob) for glob in given.only or ["*"])]
    if not named:
        parser.error(f"no case is called {' or '.join(given.only)}; there are {', '.join(case.name for case in every)}")
    if given.list:
        print("\n".join(f"{case.name:28} plmctl {' '.join(case.words)}" for case in named))
        return 0
    key, store = platform_key(), json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}
    if key not in store and not given.write:
        print(f"no fingerprints are stored for '{key}', only for {', '.join(store) or 'no platform'}")
        print("to store them, from code that is known to be right: python tests/fingerprints.py --write")
        return 0
    known = store.setdefault(key, {"libraries": {}, "cases": {}})
    libraries = {name: version(name) for name in LIBRARIES}
    for name in LIBRARIES:
        if known["libraries"].get(name, libraries[name]) != libraries[name]:
            print(f"note: stored with {name} {known['libraries'][name]}, here is {libraries[name]}")
    print(f"{tested()}, {key}")
    root = given.out or Path(tempfile.mkdtemp(prefix="fingerprints-"))
    write_inputs(root / "inputs")
    counts: dict[str, int] = {}

    def tell(case: Case, outcome: Outcome) -> None:
        told = verdict(outcome, None if given.write else known["cases"].get(case.name))
        if given.write and not outcome.failure:
            told = "found"
        counts[told.partition(":")[0]] = counts.get(told.partition(":")[0], 0) + 1
        print(f"{case.name:28} {outcome.found.get('loss', '')!s:>10} {outcome.seconds:6.1f} s  {told}", flush=True)

    try:
        done = run(with_what_they_need(named, every), root, given.jobs, tell)
    finally:
        if given.out is None:
            shutil.rmtree(root, ignore_errors=True)
    if given.write:
        known["libraries"] = libraries
        known["cases"].update({name: outcome.found for name, outcome in done.items() if not outcome.failure})
        known["cases"] = dict(sorted(known["cases"].items()))
        STORE.write_text(json.dumps(dict(sorted(store.items())), indent=1) + "\n", encoding="utf-8")
    elif not given.only:
        for name in sorted(known["cases"].keys() - done.keys()):
            counts["gone"] = counts.get("gone", 0) + 1
            print(f"{name:28} is stored, and there is no such case")
    print(", ".join(f"{count} {told}" for told, count in counts.items()))
    return 0 if counts.keys() <= {"equal", "found", "not stored"} else 1


if __name__ == "__main__":
    sys.exit(main())
