"""How much time a search itself takes: processor seconds an individual of each strategy, with jobs
that write a loss instead of training.

Example:
    python benchmarks/search.py --individuals 40
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from plmctl.config.compose import compose
from plmctl.jobs.journal import JobJournal
from plmctl.jobs.work import work
from plmctl.search import run as running
from plmctl.storage.gate import admit

STRATEGIES = ("random", "evolution", "hurdles", "asha", "tpe", "cmaes", "gp")
WORDS = (
    *("individual.recipe=bert", "again.best=0"),
    "individual.overrides="
    "[size=tiny,tokenizer.vocab_size=1000,format.max_length=32,train.steps=81]",
    "space.words=['optim.lr=log(1e-4,1e-1)','train.batch_size=8,16,32',"
    "'size.num_layers=int(interval(1,4))']",
)


def train(record: dict[str, Any], folder: Path) -> int:
    """Write a loss, as a run leaves it behind."""
    config = record["config"]
    loss = abs(math.log10(config["optim"]["lr"]) + 2) + 1 / config["size"]["num_layers"]
    admit(folder).mkdir(parents=True, exist_ok=True)
    line = json.dumps({"step": 1, "valid/loss": loss})
    admit(folder / "metrics.jsonl").write_text(f"{line}\n", encoding="utf-8")
    return 0


def run_jobs(journal: JobJournal, count: int, launcher: tuple[str, ...]) -> int:
    """Run all jobs in this process."""
    for job in journal.ready():
        journal.conclude(job, work(journal.prepare(job), train))
    return 0


def measure(strategy: str, individuals: int, folder: Path) -> float:
    """Processor seconds of a search."""
    words = (
        f"strategy={strategy}",
        f"budget.individuals={individuals}",
        f"out={folder / strategy}",
    )
    settings = compose("search", None, (*WORDS, *words))
    start = time.process_time()
    running.search(settings)
    return time.process_time() - start


def main() -> None:
    """Print a line for each strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--individuals", type=int, default=40)
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES)
    given = parser.parse_args()
    running.run_jobs = run_jobs  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: measure(name, given.individuals, Path(folder)) / given.individuals
            for name in given.strategies
        }
    for name, seconds in found.items():
        print(f"{name}: {seconds:.3f} processor seconds an individual")


if __name__ == "__main__":
    main()
