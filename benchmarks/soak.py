"""A long run with everything at once: does it keep its memory, files and threads?

    python benchmarks/soak.py --minutes 30
    python benchmarks/soak.py --minutes 30 --set train.processes=2 data.path=corpus.txt

A run of a tiny model validates, saves, traces some updates and feeds the trackers that are
installed, offline. This script looks at its processes once a second. The first third is warming up.
A number is flat where the mean of the last third is not above that of the second by more than
its share in LIMITS (or, for whole numbers, by more than one). The exit code is 1 where one is not.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

LIMITS = {"memory, MB": 0.03, "open files": 0.0, "threads": 0.0}
TINY = ("size=tiny", "size.width=64", "size.inner_width=128", "format.max_length=64")
OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}


def main() -> int:
    given = arguments()
    with tempfile.TemporaryDirectory(prefix="plmctl-soak-") as temporary:
        seen, said = watch(Path(temporary), given)
    if len(seen) < 6:
        print(f"the run ended after {len(seen)} looks:\n{said}", file=sys.stderr)
        return 1
    third = len(seen) // 3
    print(
        f"{len(seen)} looks in {given.minutes:g} minutes\n{'':12} {'second third':>14} {'last':>10}"
    )
    good = True
    for number, (name, limit) in enumerate(LIMITS.items()):
        values = [look[number] for look in seen]
        before = sum(values[third : 2 * third]) / third
        after = sum(values[2 * third :]) / (len(values) - 2 * third)
        flat = after <= max(before * (1 + limit), before + (limit == 0))
        good &= flat
        print(f"{name:12} {before:14,.1f} {after:10,.1f} {'flat' if flat else 'grows'}")
    return int(not good)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--set", nargs="+", default=[], help="further settings of the run")
    parser.add_argument("--every", type=int, default=20, help="updates from save to save")
    return parser.parse_args()


def watch(work: Path, given: argparse.Namespace) -> tuple[list[tuple[float, ...]], str]:
    """(memory in MB, open files, threads) of a run, by seconds; what it printed last."""
    trackers = [name for name in ("wandb", "mlflow", "trackio") if find_spec(name)]
    places = {
        "MLFLOW_TRACKING_URI": f"sqlite:///{work}/mlflow.db",
        "TRACKIO_DIR": f"{work}/trackio",
    }
    every = (f"train.eval_every={given.every}", f"train.save_every={given.every}")
    # traces of a part of the run alone: one of the whole would grow with it
    words = (
        *("pretrain", "bert", *TINY, *every, "train.log_every=5", "train.batch_size=8"),
        *(f"train.minutes={given.minutes}", "eval.rows=32", "train.profile=[30,34]"),
        *(f"run.trackers=[{','.join(trackers)}]", f"run.dir={work / 'run'}", "budgets=[]"),
    )
    log = work / "log.txt"
    seen: list[tuple[float, ...]] = []
    with log.open("w") as file:
        run = subprocess.Popen(
            [sys.executable, "-m", "plmctl", *words, *given.set],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **OFFLINE, **places},
        )
        try:
            while run.poll() is None:
                if (work / "run" / "metrics.jsonl").exists():
                    seen += look(run.pid)
                time.sleep(1)
        finally:
            if run.poll() is None:
                run.send_signal(signal.SIGKILL)
            run.wait()
    lines = log.read_text(errors="replace").splitlines()
    return (seen if run.returncode == 0 else []), "\n".join(lines[-5:])


def look(process: int) -> Sequence[tuple[float, ...]]:
    """The numbers of a process and all that it has started; nothing of one that has ended."""
    total = [0.0, 0.0, 0.0]
    try:
        for each in (process, *children_of(process)):
            status = Path(f"/proc/{each}/status").read_text().splitlines()
            own = dict(line.split(":", 1) for line in status if ":" in line)
            total[0] += int(own["VmRSS"].split()[0]) / 1024
            total[1] += len(os.listdir(f"/proc/{each}/fd"))
            total[2] += int(own["Threads"])
    except (OSError, KeyError):
        return []
    return [tuple(total)]


def children_of(process: int) -> list[int]:
    """Processes that a process has started, with theirs."""
    file = Path(f"/proc/{process}/task/{process}/children")
    own = [int(word) for word in file.read_text().split()] if file.exists() else []
    return own + [inner for each in own for inner in children_of(each)]


if __name__ == "__main__":
    raise SystemExit(main())
