"""Five kills in a row, each at another moment and followed by another layout: every update has the
rows that it has in a run that was never stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.core.batch import Batch
from plmctl.data.formats.sentence_pair import SentencePair
from plmctl.data.loader import Loader, RowSource
from plmctl.data.reader import RowReader
from plmctl.training import checkpoint, update
from plmctl.training.evaluation import measure
from plmctl.training.stages import Stage
from tests.data.killed_loader import loaders, random_shards
from tests.training.toy import ToyBatches, make_batch, make_trainer, weights

ROOT = Path(__file__).parents[2]
STEPS, B = 14, 8
# (the moment of the kill, rows of a micro-batch, updates that are prepared ahead)
SESSIONS = [("pass", 2, 2), ("save", 8, 0), ("renamed", 4, 2), ("prefetch", 1, 2), ("eval", 4, 1)]


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(owner: Any, name: str, number: int) -> None:
    """Die at the call `number` of a function."""
    inner, seen = getattr(owner, name), [0]

    def outer(*args: Any, **settings: Any) -> Any:
        seen[0] += 1
        return die() if seen[0] == number else inner(*args, **settings)

    setattr(owner, name, outer)


class Rows(Loader):
    """The rows of a text, of which each becomes a row of the toy; notes those of each update."""

    def __init__(self, folder: Path, micro: int, ahead: int) -> None:
        format = next(iter(loaders()["SentencePair"].sources.values())).reader.format
        assert isinstance(format, SentencePair)
        reader = RowReader(random_shards(40), format, seed=3, batch_size=B)
        super().__init__({"text": RowSource(reader)}, micro_batch_size=micro, prefetch=ahead)
        self.folder = folder

    def __next__(self) -> list[Batch]:
        batches = super().__next__()
        keys = [batch.key.tolist() for batch in batches]
        with (self.folder / "rows.jsonl").open("a") as file:
            file.write(json.dumps([self._step, [key for own in keys for key in own]]) + "\n")
        return [make_batch([key % 43 for key in own]) for own in keys]


def run(folder: Path, micro: int = B, ahead: int = 0) -> dict[str, torch.Tensor]:
    folder.mkdir(exist_ok=True)
    loader = Rows(folder, micro, ahead)

    def evaluate(model: Any, progress: Any) -> Any:
        return measure(
            model, trainer.objective, next(ToyBatches(8, 2)), world=trainer.world
        ).means()

    trainer = make_trainer(
        folder,
        steps=STEPS,
        dropout=0.0,
        evaluate=evaluate,
        stages=[Stage(batches=lambda: loader)],
        settings={"log_every": 1, "save_every": 2, "eval_every": 3},
    )
    if newest := trainer.checkpoints.newest():
        trainer.log.go_back(int(newest.name.removeprefix("step-")))
        trainer.resume(newest)
    trainer.fit()
    loader.close()
    return weights(trainer)


def read_rows(file: Path) -> dict[int, list[int]]:
    """The rows of each update; in all sessions that read it, the same."""
    found: dict[int, list[int]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        step, rows = json.loads(line)
        assert found.setdefault(step, rows) == rows
    return found


KILLS: dict[str, Callable[[], None]] = {
    "pass": lambda: at(update._Micro, "learn", 10),
    "save": lambda: at(checkpoint.Checkpoints, "finish", 2),
    "renamed": lambda: at(checkpoint.Checkpoints, "prune", 1),
    "prefetch": lambda: at(Loader, "_batch", 30),
    "eval": lambda: at(sys.modules[__name__], "measure", 1),
}


def test_every_update_has_its_rows_after_five_kills(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight")
    reached = []
    for moment, micro, ahead in SESSIONS:
        if not (pid := os.fork()):
            torch.set_num_threads(1)
            KILLS[moment]()
            try:
                run(tmp_path / "killed", micro, ahead)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, moment
        reached.append(max(read_rows(tmp_path / "killed/rows.jsonl")))
    assert reached[-1] < STEPS
    resumed = run(tmp_path / "killed", 2, 2)
    assert read_rows(tmp_path / "killed/rows.jsonl") == read_rows(tmp_path / "straight/rows.jsonl")
    assert set(read_rows(tmp_path / "straight/rows.jsonl")) == set(range(1, STEPS + 1))
    # sums over other micro-batches are rounded otherwise
    assert all((straight[name] - resumed[name]).abs().max() < 1e-4 for name in straight)


# a plug-in of every process: notes the rows of each update, and ends one process at a moment
KILLING = """
import json, os, signal, sys
from plmctl.data.loader import Loader
from plmctl.training import checkpoint, update
from plmctl.runs import validation

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
following = Loader.__next__
def note(self):
    batches = following(self)
    keys = [key for batch in batches for key in batch.key.tolist()]
    with open(os.path.join(os.environ["NOTED"], f"{os.getpid()}.jsonl"), "a") as file:
        file.write(json.dumps([self._step, rank, world, keys]) + "\\n")
    return batches
Loader.__next__ = note
def at(owner, name, number):
    inner, seen = getattr(owner, name), [0]
    def outer(*a, **k):
        seen[0] += 1
        if seen[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*a, **k)
    setattr(owner, name, outer)
moment = os.environ.get("MOMENT", "")
if moment in ("save", "renamed") and rank == 0:
    at(checkpoint.Checkpoints, "finish" if moment == "save" else "prune", 2)
if rank == world - 1:
    if moment == "pass":
        at(update._Micro, "learn", 6)
    if moment == "prefetch":
        at(Loader, "_batch", 12)
    if moment == "eval":
        at(validation, "measure", 2)
"""


@pytest.mark.slow  # seven starts, of up to four processes; one process in forks stays
def test_with_other_processes_each_time(tmp_path: Path) -> None:
    """1 -> 2 -> 4 -> 2 -> 1 -> 2 processes of the command, over tokens in shards."""
    (tmp_path / "killing.py").write_text(KILLING, encoding="utf-8")
    text = "\n\n".join(f"Sentence number {n} of all. Another one, {n * n}." for n in range(400))
    (tmp_path / "x.txt").write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "OMP_NUM_THREADS": "1"}
    environment |= {"PLMCTL_CACHE": str(tmp_path / "cache")}

    def plmctl(*words: str, moment: str = "", noted: str = "noted") -> int:
        (tmp_path / noted).mkdir(exist_ok=True)
        own = {**environment, "MOMENT": moment, "NOTED": str(tmp_path / noted)}
        command = [sys.executable, "-m", "plmctl", *words]
        done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True)
        assert moment or done.returncode == 0, done.stderr
        return done.returncode

    plmctl(
        *("tokenize", "data.path=x.txt", "out=tokens", "tokenizer=wordpiece"),
        *("tokenizer.vocab_size=60", "shard_tokens=1500", "processes=1"),
    )
    words = [
        *("pretrain", "bert", "data.path=tokens", "size=tiny", "format.max_length=32"),
        *("train.steps=24", f"train.batch_size={B}", "train.save_every=2", "train.eval_every=3"),
        *(
            "model.embedding.dropout=0",
            "train.compile=false",
            "train.device=cpu",
            "data.window=4000",
        ),
        *("--plugin", "killing"),
    ]
    plmctl(*words, "run.dir=straight", noted="straight-noted")
    for number, (moment, processes, micro) in enumerate(
        [("pass", 1, 2), ("save", 2, 4), ("renamed", 4, 1), ("prefetch", 2, 2), ("eval", 1, 8)]
    ):
        layout = [f"train.processes={processes}", f"train.micro_batch_size={micro}"]
        how = ["--resume", "--plugin", "killing"] if number else []
        begin = ["pretrain", *how] if number else words
        assert plmctl(*begin, "run.dir=killed", *layout, moment=moment) != 0, moment
    last = ["train.processes=2", "train.micro_batch_size=1"]
    plmctl("pretrain", "--resume", "--plugin", "killing", "run.dir=killed", *last)
    straight = _read_noted(tmp_path / "straight-noted")
    assert set(straight) == set(range(1, 25))
    assert _read_noted(tmp_path / "noted") == straight


def _read_noted(folder: Path) -> dict[int, list[int]]:
    """The rows of each update, of all ranks in their order, the same in each session."""
    found: dict[int, list[int]] = {}
    sessions: dict[tuple[int, int], dict[int, list[int]]] = {}
    for number, file in enumerate(sorted(folder.iterdir())):
        for line in file.read_text(encoding="utf-8").splitlines():
            step, rank, world, keys = json.loads(line)
            share = sessions.setdefault((step, world), {})
            assert share.setdefault(rank, keys) == keys, (number, step)
    for (step, world), share in sessions.items():
        if len(share) == world:  # else it was stopped before all had the update
            rows = [key for rank in range(world) for key in share[rank]]
            assert found.setdefault(step, rows) == rows
    return found
