"""Studies that run: killed and resumed, failing, changed, stopped early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import UsageError
from plmctl.jobs.job import Job
from plmctl.jobs.journal import State, hold_folder
from plmctl.jobs.runners import Processes
from plmctl.storage.job_events import JobEvents
from plmctl.study.plan import StudyPlan
from plmctl.study.run import make_journal
from tests.study import toy_study

Planned = Callable[..., StudyPlan]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def ablate(*words: str) -> Any:
    return CliRunner().invoke(make_app(), ["ablate", "./toy.yaml", *words])


def without_time(folder: Path) -> dict[str, Any]:
    table = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    assert table.pop("seconds") > 0
    for cost in table["costs"]:
        assert cost.pop("seconds") > 0
        assert (cost.pop("memory", None) or 1) > 0  # None without a fine-tuning
    return table


def events(folder: Path) -> list[tuple[str, str]]:
    lines = (folder / "jobs/journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [(record["event"], record["job"]) for record in map(json.loads, lines)]


def interrupt(out: Path, when: Callable[[], bool], number: int) -> int:
    """Start the study, send the signal as soon as `when` holds; the exit code."""
    child = subprocess.Popen(
        [sys.executable, "-m", "plmctl", "ablate", "./toy.yaml", f"out={out}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not when():
        assert child.poll() is None, "it ended before the signal"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(number)
    return child.wait(60)


@pytest.mark.slow
def test_killed_and_interrupted_it_ends_in_the_same_table(here: Path) -> None:
    toy_study.write_study(here)
    assert ablate("out=whole").exit_code == 0
    whole, out = without_time(here / "whole"), here / "broken"

    def checkpoints() -> int:
        return len(list(out.glob("jobs/pretrain-*/run/checkpoints/step-*")))

    assert interrupt(out, lambda: checkpoints() > 0, signal.SIGKILL) == -signal.SIGKILL
    seen = len(events(out))
    assert interrupt(out, lambda: len(events(out)) > seen + 2, signal.SIGINT) == 130
    done = ablate("out=broken")
    assert done.exit_code == 0, done.output
    assert without_time(out) == whole
    assert {row["n"] for row in whole["rows"]} == {2}
    assert (here / "broken" / "table.md").exists()
    assert (here / "broken" / "table_files" / "curve-0-steps.svg").exists()
    # no cell ran twice: each ended once, and what was begun again went on
    ended = Counter(job for event, job in events(out) if event == "finished")
    assert set(ended.values()) == {1}
    starts = Counter(job for event, job in events(out) if event in ("started", "resumed"))
    assert sum(starts.values()) <= len(ended) + 2
    # and a third start has nothing to do
    before = events(out)
    assert ablate("out=broken").exit_code == 0
    assert events(out) == before
    assert without_time(out) == whole


TEXT = {"of": "pretrain", "overrides": ["task=lm", "data.path=corpus.txt", "task.pseudo_tokens=0"]}
BASIC = "hydra/launcher=basic"
LOSSES: dict[str, Any] = {
    "finetune": None,
    "seeds": [0],
    "eval": {"text": TEXT},
    "metrics": {
        "loss": {"of": "pretrain", "key": "loss"},
        "text": {"of": "text", "key": "masked_perplexity"},
    },
}


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of LOSSES, its jobs one after the other by Hydra's own launcher."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("OMP_NUM_THREADS", "1")
        toy_study.write_files(folder)
        toy_study.write_study(folder, **LOSSES)
        done = ablate("out=one", BASIC)
        assert done.exit_code == 0, done.output
        assert ablate("out=one", BASIC).exit_code == 0  # all is done already
    return folder / "one"


@pytest.mark.slow
def test_side_by_side_it_ends_in_the_same_table_and_a_changed_arm_runs(
    here: Path, launched: Path
) -> None:
    toy_study.write_study(here, **LOSSES)
    assert ablate("out=two", "processes=3").exit_code == 0
    first = without_time(here / "two")
    assert first == without_time(launched)
    kinds = [Counter(event for event, _ in events(out)) for out in (here / "two", launched)]
    assert kinds[0] == kinds[1]
    # one is changed (and renamed), one is gone
    arms = {"slow": ["optim.lr=1e-3"], "other": ["optim.lr=5e-3"]}
    toy_study.write_study(here, **{**LOSSES, "arms": arms})
    before = len(events(here / "two"))
    assert ablate("out=two").exit_code == 0
    new = events(here / "two")[before:]
    # its pretraining and its evaluation
    assert Counter(event for event, _ in new) == {"started": 2, "finished": 2}
    second = without_time(here / "two")
    assert second["rows"][0] == first["rows"][0]
    assert second["rows"][1]["arm"] == "other"


@pytest.mark.slow  # jobs of a launcher are in tests/cli/test_cli.py
def test_through_joblib_it_ends_in_the_same_table(here: Path, launched: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    toy_study.write_study(here, **LOSSES)
    done = ablate("out=two", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert done.exit_code == 0, done.output
    assert without_time(here / "two") == without_time(launched)


@pytest.mark.slow  # the endings of its jobs are in tests/jobs/test_cluster.py
def test_as_jobs_of_a_cluster_it_ends_in_the_same_table(here: Path, launched: Path) -> None:
    pytest.importorskip("submitit")
    toy_study.write_study(here, **LOSSES)
    done = ablate("out=two", "launcher=local", "launcher.parallel=2")
    assert done.exit_code == 0, done.output
    assert without_time(here / "two") == without_time(launched)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("launcher=slurm", "nodes=2"), "1: each job of a study has one machine"),
        (("hydra/launcher=submitit_slurm",), "plmctl submits its jobs itself"),
        (("hydra.launcher.n_jobs=2",), "of which launcher?"),
        (
            ("hydra/launcher=basic", "processes=2"),
            "the launcher decides how many jobs run at a time",
        ),
        (("hydra/launcher=nowhere",), "there is no hydra/launcher 'nowhere'"),
    ],
)
def test_words_for_a_launcher(here: Path, words: tuple[str, ...], answer: str) -> None:
    toy_study.write_study(here, finetune=None, metrics={"loss": {"of": "pretrain", "key": "loss"}})
    done = ablate("out=two", *words)
    assert done.exit_code == 2
    assert answer in done.output


class Child:
    """Stands for a process that has ended."""

    def __init__(self, code: int) -> None:
        self.exitcode = code


class Pretended(Processes):
    """Its jobs take no time and fail as told."""

    def __init__(
        self, plan: StudyPlan, folder: Path, fails: Callable[[Job], str] = lambda job: ""
    ) -> None:
        super().__init__(make_journal(plan, folder), 1)
        self.fails = fails

    @property
    def states(self) -> dict[str, State]:
        return self.journal.states

    def _start(self, job: Job) -> None:
        (self.journal.prepare(job) / "run").mkdir()
        problem = self.fails(job)
        self.journal.events.write("failed" if problem else "finished", job.name, why=problem)
        self._children[job.name] = Child(int(bool(problem)))  # type: ignore[assignment]


def test_one_failed_cell_does_not_end_the_study(planned: Planned, here: Path) -> None:
    plan = planned()
    bad = plan.cells[1].pretrain
    runner = Pretended(plan, here, lambda job: "no finite gradient" if job.name == bad else "")
    assert runner.run() == 1
    kinds = Counter(state.kind for state in runner.states.values())
    assert kinds == {"done": 7, "failed": 1, "skipped": 1}
    assert runner.states[plan.cells[1].tuned["toy"][0][0]].why == "pretrain fast, seed 0 failed"


def test_a_job_whose_weights_are_gone_but_needed_runs_again(planned: Planned, here: Path) -> None:
    assert Pretended(planned(), here).run() == 0
    events = JobEvents(here / "jobs")
    for name in events.last:
        if name.startswith("finetune"):
            events.write("finished", name, kept=False)
    assert all(state.kind == "done" for state in Pretended(planned(), here).states.values())
    more = planned(eval={"train": {"of": "toy", "overrides": ["split=train"]}})
    assert Counter(state.kind for state in Pretended(more, here).states.values()) == {
        "done": 5,
        "open": 8,
    }


def test_jobs_of_another_age_are_told(here: Path) -> None:
    """An older plmctl left jobs with other keys."""
    toy_study.write_study(here)
    assert "do not count" not in ablate("--dry-run", "out=study").output
    for name in ("pretrain-0123456789abcdef", "finetune-0123456789abcdef"):
        JobEvents(here / "study/jobs").write("finished", name, seconds=1.0, kept=True)
    said = ablate("--dry-run", "out=study")
    assert said.exit_code == 0, said.output
    told = " ".join(said.output.split())
    assert "2 finished jobs in study/jobs had other settings, or another plmctl made them" in told


def test_the_rule_ends_hopeless_runs(planned: Planned, here: Path) -> None:
    stop = {"metric": "valid/loss", "after": 0.4, "bound": 5.0}
    plan = planned(stop=stop)

    class Logged(Pretended):
        def _start(self, job: Job) -> None:
            super()._start(job)
            if job.verb == "pretrain":
                run = self.journal.locate(job.name) / "run"
                worse = job.config["optim"]["lr"] == 1e-2
                rows = [(6, 9.0), (12, 6.0 if worse else 4.9), (18, 4.0)]
                lines = [json.dumps({"step": step, "valid/loss": value}) for step, value in rows]
                (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")

    runner = Logged(plan, here)
    assert runner.run() == 0
    state = runner.states[plan.cells[1].pretrain or ""]
    assert (state.kind, state.why) == (
        "stopped",
        "stopped early: valid/loss was 6 after update 12, above 5",
    )
    assert Counter(state.kind for state in runner.states.values()) == {
        "done": 5,
        "stopped": 2,
        "skipped": 2,
    }
    again = Logged(plan, here)
    assert {
        name: state.kind for name, state in again.states.items() if state.kind == "stopped"
    }.keys() == {cell.pretrain for cell in plan.cells if cell.arm == "fast"}
    without = Logged(planned(), here)  # the rule is gone: what it stopped goes on
    assert Counter(state.kind for state in without.states.values()) == {"done": 5, "open": 4}


def test_two_do_not_work_in_one_folder(here: Path) -> None:
    with (
        hold_folder(here / "study", {}, kind="study", command="plmctl ablate"),
        pytest.raises(UsageError, match="another plmctl ablate"),
        hold_folder(here / "study", {}, kind="study", command="plmctl ablate"),
    ):
        pass
    with (
        pytest.raises(UsageError, match="not a study"),
        hold_folder(here / "task", {}, kind="study", command="plmctl ablate"),
    ):
        pass


def test_a_real_failure_is_in_the_table_with_its_error(here: Path) -> None:
    words = [word for word in toy_study.SMALL if "vocab_size" not in word]
    pretrain = {"recipe": "roberta", "overrides": [*words, "tokenizer.vocab_size=5000"]}
    toy_study.write_study(here, pretrain=pretrain)
    done = ablate("out=out")
    assert done.exit_code == 1
    (missing,) = json.loads((here / "out" / "table.json").read_text())["missing"]
    assert missing["state"] == "failed"
    assert "this text is too small" in missing["why"]
    assert missing["cells"].count("seed") == 4
    assert "this text is too small" in (here / "out" / "table.md").read_text()
    assert os.path.getsize(next((here / "out").glob("jobs/tokenize-*/log.txt"))) > 0
