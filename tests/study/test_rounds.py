"""Studies whose seeds are spent in rounds: which arms go on, when looks are made, what a restart
keeps, and where the time ends it. Jobs take no time here, but for the last test.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy import stats
from typer.testing import CliRunner

from plmctl.analysis.sequences import Look, spend
from plmctl.cli.app import make_app
from plmctl.core.errors import DataError, UsageError
from plmctl.jobs.journal import JobJournal
from plmctl.storage import job_events
from plmctl.storage.job_events import JobEvents
from plmctl.study.looks import Looks, open_looks
from plmctl.study.plan import StudyPlan
from plmctl.study.results import Results
from plmctl.study.rounds import Rounds
from plmctl.study.run import make_journal
from plmctl.study.table import write_table
from tests.study import toy_study

Planned = Callable[..., StudyPlan]

STUDY: dict[str, Any] = {
    "arms": {"slow": [], "fast": ["optim.lr=1e-2"], "same": ["optim.lr=2e-3"]},
    "seeds": [0, 1, 2, 3, 4, 5],
    "finetune": None,
    "metrics": {
        "loss": {"of": "pretrain", "key": "loss", "expect": {"fast": "lower", "same": "lower"}}
    },
}
UNTIL = {**STUDY, "until": "decided"}
NOISE = [0.31, -0.24, 0.12, -0.35, 0.27, -0.08]
LOSSES = {
    "slow": [2.0 + noise for noise in NOISE],
    "fast": [1.0 + noise + 0.001 * noise**2 for noise in NOISE],
    "same": [2.0 - noise for noise in NOISE],
}


@dataclass
class Start:
    """One start of a study, whose jobs leave the losses of LOSSES."""

    plan: StudyPlan
    folder: Path
    fails: Callable[[str], bool] = lambda label: False
    ran: list[str] = field(default_factory=list)  # labels of jobs
    cells: list[Counter[str]] = field(default_factory=list)  # of each part: arm -> seeds
    seconds: float = 1.0

    def run(self, parts: int = 99) -> Rounds:
        """Run it; a signal ends it while the last of so many parts runs."""
        whole = make_journal(self.plan, self.folder)
        looks = open_looks(self.plan, self.folder, whole.states)
        journal = JobJournal({}, self.folder / "jobs")
        rounds = Rounds(self.plan, whole.states, journal, looks)
        for part in rounds:
            self.cells.append(Counter(cell.arm for cell in part.cells))
            while ready := list(journal.ready()):
                for job in ready:
                    self._do(journal, job.name)
            if len(self.cells) == parts:
                break
        return rounds

    def _do(self, journal: JobJournal, name: str) -> None:
        job, run = journal.jobs[name], journal.prepare(journal.jobs[name]) / "run"
        self.ran.append(job.label)
        bad = self.fails(job.label)
        if job.verb == "pretrain":
            arm, seed = job.label.removeprefix("pretrain ").split(", seed ")
            run.mkdir(exist_ok=True)
            lines = [{"step": 1, "valid/loss": LOSSES[arm][int(seed)], "tokens": 1, "seconds": 1}]
            (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        run.mkdir(exist_ok=True)
        journal.events.write("failed" if bad else "finished", name, seconds=self.seconds)
        journal.conclude(job, int(bad))

    def table(self, rounds: Rounds) -> dict[str, dict[str, Any]]:
        """{arm: its row}."""
        results = Results(rounds.part, rounds.journal.states, rounds.journal.locate)
        record = write_table(self.plan.study, results, self.folder, looks=rounds.looks)
        return {row["arm"]: row for row in record["rows"]}


def read_looks(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "looks.json").read_text())
    return content


def literal_p(arm: str, seeds: int, most: int) -> float:
    """The smallest p of looks after 3, 4, ... seeds, divided by the share of the look."""
    pairs = [a - b for a, b in zip(LOSSES[arm], LOSSES["slow"], strict=True)]
    ps = []
    for n in range(3, seeds + 1):
        share = ((n - 2) ** 2 - (n - 3) ** 2) / (most - 2) ** 2
        ps.append(float(stats.ttest_1samp(pairs[:n], 0).pvalue) / share)
    return min(1.0, *ps)


def test_an_arm_that_is_decided_gets_no_more_seeds(planned: Planned, here: Path) -> None:
    start = Start(planned(**UNTIL), here / "out")
    rounds = start.run()
    assert start.cells == [
        {"slow": n, "fast": 3, "same": n} for n in (3, 4, 5, 6)
    ]  # the baseline goes on with the arm that is open
    assert len(start.ran) == 1 + 3 + 6 + 6
    looks = read_looks(here / "out")["looks"]
    assert [(look["seeds"], look["share"]) for look in looks] == [
        (n, (2 * n - 5) / 16) for n in (3, 4, 5, 6)
    ]
    assert [[node["arm"] for node in look["differences"]] for look in looks] == [
        ["fast", "same"],
        *[["same"]] * 3,
    ]
    rows = start.table(rounds)
    assert {arm: (row["n"], row["verdict"]) for arm, row in rows.items()} == {
        "slow": (6, ""),
        "fast": (3, "held"),
        "same": (6, "undecided"),
    }
    for arm, seeds in (("fast", 3), ("same", 6)):
        assert rows[arm]["p"] == pytest.approx(literal_p(arm, seeds, 6), rel=1e-6)
    assert rows["fast"]["p_holm"] == pytest.approx(2 * rows["fast"]["p"])
    # intervals are at the level of the newest look of an arm
    pairs = [a - b for a, b in zip(LOSSES["fast"], LOSSES["slow"], strict=True)][:3]
    wanted = stats.ttest_1samp(pairs, 0).confidence_interval(1 - 0.05 / 16)
    assert (rows["fast"]["low"], rows["fast"]["high"]) == pytest.approx(
        (wanted.low, wanted.high), rel=1e-6
    )
    page = (here / "out" / "table.md").read_text()
    assert "Seeds were spent in rounds, 3, 4, 5, 6 of at most 6" in page
    assert "undecided (could have seen " in page
    assert "over 3 to 6 seeds" in (here / "out" / "table.tex").read_text()


def test_it_ends_when_all_is_decided(planned: Planned, here: Path) -> None:
    metrics = {"loss": {"of": "pretrain", "key": "loss", "expect": {"fast": "higher"}}}
    plan = planned(**{**UNTIL, "metrics": metrics})
    start = Start(plan, here / "out")
    rounds = start.run()
    # nothing is expected of the third arm, so that there is nothing to decide about it
    assert start.cells == [{"slow": 3, "fast": 3, "same": 3}]
    assert rounds.end == "All is decided after 3 seeds of at most 6."
    assert start.table(rounds)["fast"]["verdict"] == "not held"
    again = Start(plan, here / "out")
    assert (again.run().end, again.ran) == (rounds.end, [])
    assert len(read_looks(here / "out")["looks"]) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_start_that_was_stopped_goes_on_with_the_same_levels(
    planned: Planned, here: Path, parts: int
) -> None:
    plan = planned(**UNTIL)
    Start(plan, here / "whole").run()
    stopped = Start(plan, here / "out").run(parts)
    # what ran to its end without a look is in no p-value
    looked = len(read_looks(here / "out")["looks"]) if parts > 1 else 0
    assert looked == parts - 1
    rows = Start(plan, here / "out").table(stopped)
    assert rows["same"]["p"] == (
        pytest.approx(literal_p("same", looked + 2, 6), rel=1e-6) if looked else None
    )
    assert rows["same"]["verdict"] == "undecided"
    Start(plan, here / "out").run()
    assert read_looks(here / "out") == read_looks(here / "whole")


@pytest.mark.slow  # test_looks_are_at_one_study stays
def test_seeds_that_have_run_before_anybody_looked_are_one_look(
    planned: Planned, here: Path
) -> None:
    before = Start(planned(**{**STUDY, "seeds": [0, 1, 2, 3, 4]}), here / "out")
    before.run()
    assert before.cells == [{"slow": 5, "fast": 5, "same": 5}]
    assert not (here / "out" / "looks.json").exists()
    start = Start(planned(**UNTIL), here / "out")
    start.run()
    assert start.cells == [{"slow": 5, "fast": 5, "same": 5}, {"slow": 6, "fast": 5, "same": 6}]
    looks = read_looks(here / "out")["looks"]
    assert [(look["seeds"], look["share"]) for look in looks] == [(5, 9 / 16), (6, 7 / 16)]


def test_looks_are_at_one_study(planned: Planned, here: Path) -> None:
    out = here / "out"
    Start(planned(**UNTIL), out).run(2)
    other = {**UNTIL["arms"], "same": ["optim.lr=3e-3"]}
    for changes, words in (
        (STUDY, "looked at after every round"),
        ({**UNTIL, "seeds": [0, 1, 2, 3, 4, 5, 6]}, r"fix: 'seeds=\[0,1,2,3,4,5\]'"),
        ({**UNTIL, "arms": other}, "arms, metrics or data have changed"),
    ):
        plan = planned(**changes)
        with pytest.raises(UsageError, match=words):
            Start(plan, out).run()
    (out / "looks.json").write_text("{")
    with pytest.raises(DataError, match=r"looks\.json"):
        Start(planned(**UNTIL), out).run()


def test_a_failed_cell_ends_neither_the_study_nor_is_it_tried_again(
    planned: Planned, here: Path
) -> None:
    bad = "pretrain same, seed 1"
    start = Start(planned(**UNTIL), here / "out", lambda label: label == bad)
    rounds = start.run()
    assert start.ran.count(bad) == 1
    assert rounds.journal.failed
    assert start.table(rounds)["same"]["n"] == 5
    # the next start does it, but what was looked at stays
    before = read_looks(here / "out")
    again = Start(planned(**UNTIL), here / "out")
    assert again.table(again.run())["same"]["n"] == 6
    assert again.ran == [bad]
    assert read_looks(here / "out") == before


class Clock:
    """A time that jobs take by themselves."""

    def __init__(self) -> None:
        self.now = 1e9

    def time(self) -> float:
        self.now += 300
        return self.now


@pytest.mark.slow  # test_looks_are_at_one_study stays
def test_the_time_of_a_study_is_that_of_all_its_starts(
    planned: Planned, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job takes five minutes from its first event to its last; the first seed needs four."""
    monkeypatch.setattr(job_events, "time", Clock())

    def run(hours: float, **study: Any) -> tuple[Start, Rounds]:
        plan = planned(**{**study, "budget": {"steps": 24, "hours": hours}})
        start = Start(plan, here / "out", seconds=300)
        return start, start.run()

    start, rounds = run(0.6, **STUDY)
    assert [cells["fast"] for cells in start.cells] == [1, 2]
    assert rounds.measure_time() == 300 * 7
    assert rounds.end == (
        "Ended by budget.hours=0.6: 35:00 are spent, and the next seeds would take about 15:00."
        " More of them: budget.hours=<more>."
    )
    assert start.table(rounds)["fast"]["n"] == 2
    start, rounds = run(0.85, **STUDY)
    assert [cells["fast"] for cells in start.cells] == [1, 2, 3]
    assert len(start.ran) == 3
    assert rounds.measure_time() == 300 * 10
    # with looks, the time ends it just so; a budget that is spent runs nothing
    start, rounds = run(0.85, **UNTIL)
    assert (start.ran, rounds.end[:24]) == ([], "Ended by budget.hours=0.")
    assert [look["seeds"] for look in read_looks(here / "out")["looks"]] == [3]
    start, rounds = run(1.0, **UNTIL)  # of one arm and the baseline now
    assert start.cells[-1] == {"slow": 4, "fast": 3, "same": 4}
    assert rounds.end.startswith("Ended by budget.hours=1: 1:00:00 are spent")


def test_jobs_side_by_side_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, clock = JobEvents(tmp_path), Clock()
    monkeypatch.setattr(job_events, "time", clock)
    lines = [
        ("started", "a", 0),
        ("started", "b", 10),
        ("finished", "a", 20),
        ("finished", "b", 35),
        ("started", "c", 40),  # killed with its study
        ("resumed", "c", 100),
        ("interrupted", "c", 103),
        ("resumed", "c", 200),
        ("failed", "c", 204),
        ("started", "of another study", 300),
        ("finished", "of another study", 400),
    ]
    for event, job, at in lines:
        clock.now = at - 300
        events.write(event, job)  # type: ignore[arg-type]
    assert job_events.measure_time(tmp_path, "abc") == 35 + 3 + 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": [0, 1, 2]}, ["seeds=[0, 1, 2]", "4 or more", "seeds=[0,1,2,3,4,5,6,7,8,9]"]),
        ({"until": "done"}, ["until='done'", "decided"]),
        (
            {"metrics": {"loss": {"of": "pretrain", "key": "loss"}}},
            ["until='decided'", "expect={ARM: higher}"],
        ),
        ({"budget": {"hours": 2}}, ["exactly one of steps, tokens, words, flops, minutes"]),
        ({"budget": {"steps": 24, "hours": 0}}, ["budget.hours", "more than 0"]),
    ],
)
def test_mistakes(parsed: Callable[..., Any], changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        parsed(**{**UNTIL, **changes})
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.slow
def test_a_real_study_until_it_is_decided(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    expect = {"loss": {"of": "pretrain", "key": "loss", "expect": {"fast": "lower"}}}
    toy_study.write_study(here, finetune=None, metrics=expect)

    def ablate(*words: str) -> Any:
        return CliRunner().invoke(make_app(), ["ablate", "./toy.yaml", "out=out", *words])

    words = ("until=decided", "seeds=[0,1,2,3,4,5]", "budget.hours=1")
    done = ablate(*words)
    assert done.exit_code == 0, done.output
    assert "time taken: " in done.output
    assert "All is decided after " in done.stderr
    table = json.loads((here / "out" / "table.json").read_text())
    slow, fast = table["rows"]
    pairs = [fast["values"][seed] - slow["values"][seed] for seed in fast["values"]]
    assert fast["n"] == len(pairs) >= 3
    error = statistics.stdev(pairs) / math.sqrt(len(pairs))
    t = statistics.fmean(pairs) / error
    share = table["looks"][-1]["share"]
    assert fast["p"] == pytest.approx(2 * stats.t.sf(abs(t), len(pairs) - 1) / share, rel=1e-6)
    assert (fast["p_holm"] < 0.05, fast["verdict"]) == (True, "held")
    assert table["seconds"] > 0
    before = (here / "out" / "jobs" / "journal.jsonl").read_text()
    assert ablate(*words).exit_code == 0
    assert (here / "out" / "jobs" / "journal.jsonl").read_text() == before
    assert "made" in ablate(*words, "--dry-run").output
    refused = ablate("seeds=[0,1,2]")
    assert refused.exit_code == 2
    assert "looked at after every round" in refused.stderr


@pytest.mark.parametrize("made", [[], [3], [3, 5]])
def test_the_schedule_goes_on_behind_the_newest_look(made: list[int], tmp_path: Path) -> None:
    """Looks to come begin one seed later, and all shares together are the whole level."""
    plan: Any = SimpleNamespace(study=SimpleNamespace(seeds=[*range(7)]))
    looks = Looks(plan, tmp_path, 3, [])
    for seeds in made:
        looks.made.append(Look(seeds, looks.share(seeds, looks.seeds), {}))
    found = looks.schedule()
    behind = [seeds for seeds in range(3, 8) if seeds > max(made, default=0)]
    assert [seeds for seeds, _ in found] == [*made, *behind]
    assert sum(share for _, share in found) == pytest.approx(spend(7, 7))
    before = [0, *made, *behind]
    for (seeds, share), last in zip(found, before, strict=False):
        assert share == pytest.approx(spend(seeds, 7) - spend(last, 7))
