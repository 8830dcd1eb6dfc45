"""Kills of a run at random moments: does it always go on from a verified checkpoint, with the curve
of a run without a kill?

    python -m tests.training.chaos out kills=100 processes=2
    python -m tests.training.chaos out processes=2 words='pretrain ... train.parallel=sharded'

Each round starts the run, or resumes it, and kills by SIGKILL one of its processes or all of them,
also those that save. Then every process must be gone, and the newest checkpoint must be whole and
no older than before. When all kills are done, the run goes to its end, and its losses are compared
with those of a run without a kill. So the schedule must not follow the length of the run. The last
line says what was found; exit code 1: a demand failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from plmctl.training.checkpoint import Checkpoints, damage, progress_of
from plmctl.training.log import read_metrics

WORDS = (
    "pretrain bert size=tiny size.width=32 size.inner_width=64 train.batch_size=8"
    " format.max_length=32 schedule=constant schedule.warmup_steps=0 schedule.warmup_share=0"
    " train.save_async=true train.log_every=1"
    " train.eval_every=0 train.keep_best=false eval.rows=8"
)
EVERY = 10  # updates from one save to the next
LONGEST = 300.0  # seconds that a start may take, and that an end may take


def start(folder: Path, words: list[str], *, processes: int, steps: int) -> subprocess.Popen:
    """Begin the run in `folder`, or go on with it, in a session of its own."""
    resumes = (folder / "config.yaml").is_file()
    verb, *rest = words
    own = [f"run.dir={folder}", f"train.processes={processes}", f"train.steps={steps}"]
    own += [] if resumes else [*rest, f"train.save_every={EVERY}"]
    command = [sys.executable, "-m", "plmctl", verb, *(["--resume"] if resumes else []), *own]
    with (folder.parent / "output.txt").open("ab") as output:
        return subprocess.Popen(command, start_new_session=True, stdout=output, stderr=output)


def family_of(root: int) -> list[int]:
    """The processes that descend from one, itself first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def wait_until(condition: Any, seconds: float = LONGEST) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return bool(met)


def updates_of(folder: Path) -> int:
    """The update of the last line of the log."""
    file = folder / "metrics.jsonl"
    return max((r["step"] for r in read_metrics(file)), default=0) if file.exists() else 0


def lives(process: int) -> bool:
    """Whether a process still runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(run: subprocess.Popen, folder: Path, moments: random.Random) -> str:
    """Kill one process of a run, or all, some time after it has gone on; what was killed."""
    before = updates_of(folder)
    wait_until(lambda: updates_of(folder) > before or run.poll() is not None)
    time.sleep(moments.uniform(0.0, 3.0))
    family = family_of(run.pid)
    if moments.random() < 0.5:
        targets, what = family, "the whole job"
    else:
        targets = [moments.choice(family[1:] or family)]
        what = Path(f"/proc/{targets[0]}/cmdline").read_bytes().decode().split("\0")[2]
    for target in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
    run.wait(LONGEST)
    if not wait_until(lambda: not any(map(lives, family))):
        what += ", PROCESSES ARE LEFT"
    return what


def losses(folder: Path) -> dict[int, float]:
    """The loss of each update in the log of a run."""
    return {
        record["step"]: record["loss"]
        for record in read_metrics(folder / "metrics.jsonl")
        if "loss" in record
    }


def main(out: str, *options: str) -> int:
    """Kill, resume, compare."""
    given = dict(option.split("=", 1) for option in options)
    kills, processes = int(given.get("kills", 4)), int(given.get("processes", 1))
    words, steps = shlex.split(given.get("words", WORDS)), int(given.get("steps", 4000))
    folder, moments = Path(out) / "killed", random.Random(int(given.get("seed", 0)))
    folder.parent.mkdir(parents=True, exist_ok=True)
    reached, lost, failures = 0, [0], list[str]()
    for number in range(kills):
        what = kill(start(folder, words, processes=processes, steps=steps), folder, moments)
        said: list[str] = []
        checkpoints = Checkpoints(folder / "checkpoints", say=said.append)
        newest, at = checkpoints.newest(), updates_of(folder)
        step = progress_of(newest).step if newest else 0
        failures += [f"kill {number}: {line}" for line in said]
        failures += (
            [f"kill {number}: {newest}: {damage(newest)}"] if newest and damage(newest) else []
        )
        failures += [f"kill {number}: {what}"] if "LEFT" in what else []
        if step < reached:
            failures.append(f"kill {number}: the newest is {step}, and was {reached}")
        reached = step
        lost.append(at - step)
        print(
            f"kill {number}: {what}, after update {at}; the newest checkpoint: {step}", flush=True
        )
    end = max(reached, updates_of(folder)) + EVERY
    for name in ("killed", "undisturbed"):
        run = start(Path(out) / name, words, processes=processes, steps=end)
        if run.wait(3600):
            failures.append(f"{name}: exit code {run.returncode}")
    killed, undisturbed = losses(folder), losses(Path(out) / "undisturbed")
    same = {step: loss for step, loss in killed.items() if undisturbed.get(step) != loss}
    if same or killed.keys() != undisturbed.keys():
        failures.append(f"the curves differ, first at update {min(same, default='?')}")
    record = {"kills": kills, "updates": len(killed), "most_lost": max(lost), "failures": failures}
    print(json.dumps(record))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
