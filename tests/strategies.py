"""Whether every recipe trains to the same losses under another strategy of several processes.

    python tests/strategies.py                        all recipes: sharded beside replicated, 2 each
    python tests/strategies.py --parallel hybrid --processes 4 --more train.shard_size=2
    python tests/strategies.py --parallel replicated --teams 2     a team of 2 beside one process
    python tests/strategies.py --only 'recipe/ele*' 'finetune/*'

The cases are those of `fingerprints.py`, of a few updates. All cases of a strategy run in the same
processes, which stay together. What a case starts from is made once by one process. The exit status
is 1 if a loss differs by more than 1e-6 of itself, or a case fails.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import fnmatch
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from fingerprint.case import Case
from fingerprint.cases import cases
from fingerprint.texts import write_inputs

ROOT = Path(__file__).parents[1]
UPDATES = ("train.steps=4", "train.eval_every=2", "train.save_every=0")
KINDS = ("recipe", "variant", "finetune", "distill")  # of the cases that train
MOST = 1e-6  # of a loss
SECONDS = 180  # of a case, before processes that wait for each other are ended


def words_of(case: Case, kind: str) -> list[str]:
    """A case's own words, of a few updates; of a kind of run, into a folder of that kind."""
    trains = any(word.startswith("run.dir=") for word in case.words)
    words = [word for word in case.words if not (kind and word.startswith("run.dir="))]
    words += UPDATES if trains else ()
    words += ["train.epochs=null"] if trains and case.words[0] != "pretrain" else []
    return [*words, f"run.dir={kind}/{case.name}"] if kind else words


def drop_nothing() -> None:
    """Train without dropout: a team draws other numbers than one process."""
    from plmctl.training import trainer

    make = trainer.Trainer.__init__

    def build(self: Any, *, model: Any, objective: Any, **others: Any) -> None:
        for part in [*model.modules(), *objective.modules()]:
            for name in ("rate", "dropout", "p"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 0.0)
        make(self, model=model, objective=objective, **others)

    trainer.Trainer.__init__ = build  # type: ignore[method-assign]


def run_all(folder: str, kind: str, *more: str) -> None:
    """Run the cases that `cases.json` names in this process of several."""
    import torch
    import torch.distributed as dist

    from plmctl.cli import app
    from plmctl.runs import session

    os.chdir(folder)
    torch.set_num_threads(1)
    if "without_dropout" in os.environ:
        drop_nothing()
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=SECONDS / 2))
        session.leave = lambda: None  # the next case goes on with the group
    for words in json.loads(Path(f"{kind or 'before'}.json").read_text(encoding="utf-8")):
        sys.argv = ["plmctl", *words, *more]
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        app.import_command(sys.argv[1:])
        try:
            app.main()
        except SystemExit as end:
            if end.code:
                print(f"{words}: exit {end.code}", file=sys.stderr, flush=True)
                os._exit(1)  # the others wait for this one
        faulthandler.cancel_dump_traceback_later()


def launch_all(folder: Path, kind: str, processes: int, chosen: list[Case], *more: str) -> int:
    """Run cases in so many processes; the exit code."""
    from plmctl.training.processes.launch import launch

    words = [words_of(case, kind) for case in chosen]
    (folder / f"{kind or 'before'}.json").write_text(json.dumps(words), encoding="utf-8")
    os.environ |= {
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "OMP_NUM_THREADS": "1",
        "WNSEARCHDIR": str(folder / "inputs/wordnet"),
        "PLMCTL_CACHE": str(folder / "cache"),
    }
    return launch(processes, ["--run", str(folder), kind, *more], module="strategies")


def read_losses(folder: Path) -> dict[str, float]:
    """{step/name: loss} of the curve of a run."""
    found: dict[str, float] = {}
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record: dict[str, Any] = json.loads(line)
        losses = {name: value for name, value in record.items() if "loss" in name}
        found |= {f"{record['step']}/{name}": value for name, value in losses.items()}
    return found


def compare(first: dict[str, float], second: dict[str, float]) -> float:
    """The largest difference of two curves, relative to the value; inf where one has more."""
    if first.keys() != second.keys():
        return float("inf")
    return max(abs(first[n] - second[n]) / max(1.0, abs(first[n])) for n in first)


def choose(globs: list[str]) -> tuple[list[Case], list[Case]]:
    """(what is compared, what it starts from, each behind what it needs itself)."""
    every = cases(ROOT / "recipes")
    chosen = [
        case
        for case in every
        if case.name.split("/")[0] in KINDS and any(fnmatch.fnmatch(case.name, g) for g in globs)
    ]
    names, needed = {case.name for case in every}, set[str]()
    new = set[str]().union(*(case.needs(names) for case in chosen))
    while new - needed:
        needed |= new
        new = set[str]().union(*(case.needs(names) for case in every if case.name in needed))
    return chosen, [case for case in every if case.name in needed]


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=summary, epilog=rest, formatter_class=shape)
    parser.add_argument("--only", metavar="GLOB", nargs="+", default=["recipe/*"])
    parser.add_argument("--parallel", default="sharded")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--teams", type=int, default=1, help="processes of each team")
    parser.add_argument("--more", metavar="SETTING", nargs="*", default=[], help="of the strategy")
    given = parser.parse_args()
    chosen, before = choose(given.only)
    if not chosen:
        sys.exit(f"no case is called {' or '.join(given.only)}")
    folder = Path(tempfile.mkdtemp(prefix="strategies-"))
    try:
        write_inputs(folder / "inputs")
        strategy = [f"train.parallel={given.parallel}", *given.more]
        strategy += [f"train.tensor_parallel={given.teams}"] if given.teams > 1 else []
        readers = given.processes // given.teams
        os.environ |= {"without_dropout": "1"} if given.teams > 1 else {}
        failed = before and launch_all(folder, "", 1, before)
        failed = failed or launch_all(folder, "replicated", readers, chosen)
        failed = failed or launch_all(folder, "other", given.processes, chosen, *strategy)
        if failed:
            return 1
        worst = 0.0
        for case in chosen:
            curves = [read_losses(folder / kind / case.name) for kind in ("replicated", "other")]
            apart = compare(*curves)
            worst = max(worst, apart)
            print(f"{case.name:28} {apart:.1e}{'  DIFFERS' if apart > MOST else ''}", flush=True)
        return int(worst > MOST)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_all(*sys.argv[2:])
    else:
        sys.exit(main())
