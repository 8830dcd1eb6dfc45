"""A search over jobs that write a loss instead of training: killed, edited, failing."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.config.compose import compose
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError
from plmctl.jobs.journal import JobJournal
from plmctl.jobs.work import work
from plmctl.search.maker import Maker
from plmctl.search.run import plan, search
from plmctl.storage.gate import admit

WORDS = (
    *("individual.recipe=bert", "again.best=2", "again.seeds=2"),
    "individual.overrides=[size=tiny,tokenizer.vocab_size=200,format.max_length=16,train.steps=27]",
    "space.words=['optim.lr=log(1e-4,1e-1)','train.batch_size=4,8']",
)
CASES = {
    "random": ("strategy=random", "budget.individuals=6"),
    "evolution": ("strategy=evolution", "strategy.population=3", "strategy.sample=2"),
    "hurdles": (
        *("strategy=hurdles", "strategy.population=3", "strategy.sample=2"),
        *("strategy.stage=3", "strategy.updates=[3,9,27]"),
    ),
    "halving": ("strategy=halving", "strategy.least=3"),
    "asha": ("strategy=asha", "strategy.least=3", "parallel=2"),
    "grid": ("strategy=grid", "space.words=['optim.lr=1e-4,1e-2,1e-1','train.batch_size=4,8']"),
    "tpe": ("strategy=tpe", "strategy.startup=3"),
    "cmaes": ("strategy=cmaes",),
    "gp": ("strategy=gp", "strategy.startup=3"),
}


# tests/search/test_strategies.py kills these without jobs
OPTUNA = ("tpe", "cmaes", "gp")
SLOW = ("random", "evolution", "halving", "asha", "grid", *OPTUNA)


class Killed(BaseException):
    """The end of a process."""


def measure(config: dict[str, Any]) -> float:
    """A bowl around a rate of 0.01; longer trainings come nearer to it."""
    updates = config["train"]["pause_at"] or config["train"]["steps"]
    far = abs(math.log10(config["optim"]["lr"]) + 2) + config["train"]["batch_size"] / 100
    return far + 1 / updates + config["seed"] / 1000


def train(record: dict[str, Any], run: Path) -> int:
    """Write what a run leaves behind; `log` of the config's updates goes on where it was."""
    admit(run).mkdir(parents=True, exist_ok=True)
    line = json.dumps({"step": 1, "valid/loss": measure(record["config"])})
    with admit(run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return 0


@pytest.fixture
def searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, dict[str, Any]]]:
    monkeypatch.chdir(tmp_path)

    def make(out: str, *words: str, execute: Any = train) -> tuple[int, dict[str, Any]]:
        def run_jobs(journal: JobJournal, count: int, launcher: tuple[str, ...]) -> int:
            for job in journal.ready():
                journal.conclude(job, work(journal.prepare(job), execute))
            return int(journal.failed)

        monkeypatch.setattr("plmctl.search.run.run_jobs", run_jobs)
        code = search(compose("search", None, (*WORDS, f"out={out}", *words)))
        file = Path(out) / "outcome.json"
        return code, json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    return make


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES]
)
def test_killed_at_random_moments_it_comes_to_the_same_end(searched: Any, name: str) -> None:
    if name in OPTUNA:
        pytest.importorskip("optuna")
    ends = name in ("halving", "grid")
    words = (*CASES[name], *(() if ends else ("budget.individuals=7",)))
    _, whole = searched("whole", *words)
    moments, kills = random.Random(name), 0

    def train_or_die(record: dict[str, Any], run: Path) -> int:
        nonlocal kills
        if kills < 5 and moments.random() < 0.5:
            kills += 1
            if moments.random() < 0.5:
                train(record, run)  # and dies before anybody is told
            raise Killed
        return train(record, run)

    while True:
        try:
            _, broken = searched("broken", *words, execute=train_or_die)
            break
        except Killed:
            continue
    assert kills > 0
    assert broken["sha256"] == whole["sha256"]
    assert [each["words"] for each in broken["individuals"]] == [
        each["words"] for each in whole["individuals"]
    ]
    assert broken["best"] == whole["best"]


def test_the_best_are_trained_again_on_fresh_seeds(searched: Any) -> None:
    """Regret by hand: the fitness falls by a thousandth with each seed."""
    code, found = searched("again", *CASES["random"])
    assert code == 0
    losses = {each["individual"]: each["values"][0] for each in found["individuals"]}
    order = sorted(losses, key=lambda number: losses[number])
    assert [each["individual"] for each in found["best"]] == order[:2]
    for each in found["best"]:
        assert each["mean"] == pytest.approx(losses[each["individual"]] + 0.0015)
        assert each["regret"] == pytest.approx(0.0015)
    assert found["updates"] == 6 * 27
    assert found["updates_again"] == 4 * 27
    page = Path("again/search.md").read_text(encoding="utf-8")
    assert "The best on fresh seeds" in page
    assert found["sha256"][:16] in page


def test_every_seed_is_spent(searched: Any) -> None:
    """Three whole trainings on two seeds each, of a budget that a fourth would exceed."""
    words = ("seeds=[0,4]", "budget.updates=200", "again.best=0")
    _, found = searched("seeds", "strategy=random", *words)
    assert len(found["individuals"]) == 3
    assert found["updates"] == 3 * 2 * 27


def test_several_seeds_have_mean_deviation_median_and_best(searched: Any) -> None:
    """By hand: the loss of seed s is s thousandths above that of seed 0."""
    words = ("seeds=[0,1,5]", "again.best=1", "again.seeds=3")
    _, found = searched("spread", "strategy=grid", "space.words=['optim.lr=1e-3,1e-2']", *words)
    fresh = [0.006, 0.007, 0.008]
    for each in found["individuals"]:
        base = each["values"][0] - 0.002
        seeds = each["seeds"]
        assert (seeds["mean"], seeds["median"], seeds["best"]) == pytest.approx(
            (base + 0.002, base + 0.001, base)
        )
        assert seeds["sd"] == pytest.approx(np.std([0, 0.001, 0.005], ddof=1))
    best = found["best"][0]
    assert (best["mean"], best["median"], best["best"]) == pytest.approx(
        tuple(base + each for each in (fresh[1], fresh[1], fresh[0]))
    )
    values = [each["values"][0] for each in found["individuals"]]
    assert found["all"] == pytest.approx(
        {"mean": np.mean(values), "sd": np.std(values, ddof=1)}
        | {"median": np.median(values), "best": min(values)}
    )
    page = Path("spread/search.md").read_text(encoding="utf-8")
    assert "| individual | loss | sd | median | best | updates |" in page
    assert f"mean {np.mean(values):.4g}, sd {np.std(values, ddof=1):.4g}" in page
    assert f"plmctl pretrain bert size=tiny {'tokenizer.vocab_size=200'}" in page
    _, again = searched("spread", "strategy=grid", "space.words=['optim.lr=1e-3,1e-2']", *words)
    assert again == found | {"seconds": again["seconds"]}


def test_individuals_of_different_lengths_count_their_own_updates(searched: Any) -> None:
    words = ("space.words=['optim.lr=1e-3,1e-2','train.steps=9,27']", "strategy=grid")
    _, found = searched("lengths", *words)
    lengths = [int(each["words"][1].partition("=")[2]) for each in found["individuals"]]
    assert [each["updates"] for each in found["individuals"]] == lengths == [9, 27, 9, 27]
    assert found["updates"] == 2 * (9 + 27)
    best = [each["words"] for each in found["best"]]
    assert best == [["optim.lr=0.01", "train.steps=27"], ["optim.lr=0.01", "train.steps=9"]]
    assert found["updates_again"] == 2 * (9 + 27)


def test_a_winner_of_a_part_of_a_training_has_no_regret(searched: Any) -> None:
    _, found = searched("part", "strategy=asha", "strategy.least=3", "budget.individuals=3")
    assert {each["updates"] for each in found["individuals"]} == {3, 9}
    assert [each["regret"] for each in found["best"]] == [None]
    page = Path("part/search.md").read_text(encoding="utf-8")
    assert "trained the winner for 9 updates only" in page


def test_fresh_seeds_that_fail_are_counted(searched: Any) -> None:
    def fail(record: dict[str, Any], run: Path) -> int:
        if record["config"]["seed"] == 2:
            raise ValueError("diverged")
        return train(record, run)

    _, found = searched("fresh", *CASES["random"], execute=fail)
    assert found["failed_again"] == {str(each["individual"]): 1 for each in found["best"]}
    number = found["best"][0]["individual"]
    page = Path("fresh/search.md").read_text(encoding="utf-8")
    assert f"no share in the means: 1 of 2 of individual {number}; 1 of 2 of" in page


def test_a_larger_budget_goes_on(searched: Any) -> None:
    _, first = searched("grown", *CASES["random"])
    _, more = searched("grown", "strategy=random", "budget.individuals=9")
    assert more["individuals"][:6] == first["individuals"]
    assert len(more["individuals"]) == 9


def test_failures_are_counted_with_the_worst_fitness(searched: Any) -> None:
    def fail(record: dict[str, Any], run: Path) -> int:
        if record["config"]["train"]["batch_size"] == 4:
            raise ValueError("too small")
        return train(record, run)

    _, found = searched("failing", *CASES["random"], execute=fail)
    for each in found["individuals"]:
        small = "train.batch_size=4" in each["words"]
        assert each["state"] == ("failed" if small else "trained")
        assert (each["values"] is None) == small
    assert "too small" in Path("failing/search.md").read_text(encoding="utf-8")


def test_a_failed_individual_counts_the_updates_that_it_has_made(searched: Any) -> None:
    """Seed 0 fails behind 7 updates, seed 1 makes all 27: 17 each, and 7 where it is alone."""

    def fail(record: dict[str, Any], run: Path) -> int:
        train(record, run)
        with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"step": 7, "loss": 3.0}\n{"step": 3')
        if record["config"]["seed"] == 0 and record["config"]["train"]["batch_size"] == 4:
            raise ValueError("exploded")
        return train(record, run)

    grid = ("strategy=grid", "space.words=['train.batch_size=4,8']", "again.best=0")
    _, one = searched("one", *grid, execute=fail)
    assert [each["updates"] for each in one["individuals"]] == [7, 27]
    assert one["updates"] == 34
    _, two = searched("two", *grid, "seeds=[0,1]", execute=fail)
    assert [each["updates"] for each in two["individuals"]] == [17, 27]
    assert two["updates"] == 2 * (17 + 27)


def test_a_search_in_which_all_failed_begins_anew(
    searched: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_always(record: dict[str, Any], run: Path) -> int:
        raise ValueError("no disk")

    with pytest.raises(UsageError, match=r"first 5 individuals failed.*no disk"):
        searched("lost", *CASES["random"], execute=fail_always)
    two = ("strategy=random", "budget.individuals=2")
    why = r"(?s)no individual was trained; the last one:.*no disk.*begins anew"
    with pytest.raises(UsageError, match=why):
        searched("few", *two, execute=fail_always)
    _, whole = searched("whole", *two, "seed=3")
    for folder in ("few", "lost"):  # with another seed, too: nothing is lost
        capsys.readouterr()
        _, found = searched(folder, *two, "seed=3")
        assert "begins anew" in capsys.readouterr().err
        assert found["sha256"] == whole["sha256"]
        assert [each["state"] for each in found["individuals"]] == ["trained"] * 2
    with pytest.raises(UsageError, match="other settings"):
        searched("few", *two, "seed=4")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("space.words=[]",), "at least"),
        (("constraints.parameters=1000",), r"(?s)above 1,000.*fix: constraints.parameters=\d+"),
        (("fitness=[f1]",), "no run reports it"),
        (("fitness=[acc/mlmm]",), r"did you mean 'acc/mlm'"),
        (("budget.individuals=null",), "must have an end"),
        (("strategy=grid",), "cannot be listed"),
        (("strategy=hurdles", "strategy.updates=[3,9]"), r"fix: 'strategy.updates=\[3,9,27\]'"),
        (("strategy=hurdles", "fitness=[loss,parameters]"), "one goal"),
        (("strategy=evolution", "strategy.start=[best]"), "no point 'best'"),
        (("space.words=['size=nano,nanu']",), "no such size"),
        (("individual.overrides=[train.steps=null,train.tokens=900]",), "counts in updates"),
        (("better=[lower,lower]",), "for each of"),
        (
            ("space.words=['optim.lrr=1e-3,1e-2','size=tiny,mini']",),
            r"(?s)no such setting.*fix: .space.words=\['optim.lr=1e-3,1e-2','size=tiny,mini'\]",
        ),
        (
            ("individual.overrides=[train.stepz=9]",),
            r"fix: .*individual.overrides=\['?train.steps=9",
        ),
        (
            ("individual.overrides=[optim.clip=null,train.steps=9]",),
            r"fix: .individual.overrides=\['optim=\w+','optim.clip=null','train.steps=9'\]",
        ),
        (("individual.recipe=bret",), r"(?s)no such recipe.*fix: individual.recipe=bert"),
        (("seeds=[]",), r"(?s)one at least.*fix: 'seeds=\[0\]'"),
        (("seeds=[0,2,0]",), r"(?s)none twice.*fix: 'seeds=\[0,2\]'"),
        (("fitness=[loss,macs,loss]",), r"(?s)none twice.*fix: 'fitness=\[loss,macs\]'"),
        (("individual.overrides=[train.steps=9,seed=3]",), r"(?s)must not set seed.*fix: 'seeds="),
        (("space.words=['train.pause_at=3,9']",), "must not set train.pause_at"),
        (("space.words=['run.dir=a,b']",), "must not set run.dir"),
        (("strategy=asha", "space.words=['train.steps=9,27']"), "must be equally long"),
    ],
)
def test_mistakes_are_answered_before_anything_is_written(
    searched: Any, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmctl.search.course.HOPELESS", 4)
    with pytest.raises(UsageError, match=message):
        searched("none", *CASES["random"], *words)
    assert not Path("none").exists()


def test_an_edited_search_is_refused_and_stays(searched: Any) -> None:
    searched("kept", *CASES["random"])
    before = {file: file.read_bytes() for file in Path("kept").rglob("*") if file.is_file()}
    for word in ("space.words=['optim.lr=1e-3,1e-2']", "seed=1", "fitness=[acc/mlm]"):
        with pytest.raises(UsageError, match="holds a search with other settings"):
            searched("kept", *CASES["random"], word)
    assert {f: f.read_bytes() for f in Path("kept").rglob("*") if f.is_file()} == before


def test_a_missing_library_is_told(searched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"strategy=tpe needs optuna\n  fix: pip install"):
        searched("none", "strategy=tpe", "budget.individuals=3")


def test_several_goals_have_a_front(searched: Any) -> None:
    words = (
        "space.words=['optim.lr=log(1e-4,1e-1)','size=tiny,mini']",
        "fitness=[loss,parameters]",
    )
    _, found = searched("front", "strategy=random", "budget.individuals=6", *words)
    sizes = {each["values"][1] for each in found["individuals"]}
    assert len(sizes) == 2
    assert "The front" in Path("front/search.md").read_text(encoding="utf-8")


def test_dry_run_counts_jobs_and_updates(searched: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    from plmctl.search.show import foresee

    asked = compose("search", None, (*WORDS, *CASES["halving"], "out=none"))
    made = plan(asked.asked(dry_run=True))
    found = foresee(made)
    # 9 individuals of 3 updates, 3 of them to 9, 1 to 27; 2 again with 2 seeds
    assert (found["individuals"], found["jobs"]) == (9, 13 + 4)
    assert found["updates"] == 9 * 3 + 3 * 6 + 18
    assert found["updates_again"] == 4 * 27
    assert search(replace(asked, provenance=replace(asked.provenance, dry_run=True))) == 0
    assert "done at about" in capsys.readouterr().out
    assert not Path("none").exists()


def test_finetunings_of_one_cost_are_foreseen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Any]()

    def know(spec: Any, *, timed: bool) -> int:
        seen.append(spec.train)
        return len(seen)

    monkeypatch.setattr("plmctl.search.maker.foresee_finetuning", know)
    words = ("task=classification", "task.path=films.csv", "checkpoint=bert-base-uncased/")
    maker = Maker("finetune", None, words, Provenance("search"))
    rates = (["optim.lr=1e-3"], ["optim.lr=1e-4"], ["train.epochs=7"])
    assert [maker.foresee(maker.compose(each)) for each in rates] == [1, 1, 2]
    assert seen[1].epochs == 7


@pytest.mark.slow  # tests/search/test_strategies.py has both orders
def test_a_launcher_gets_the_same_search(searched: Any) -> None:
    """Jobs that are given out together: the list is that of `parallel`, whoever runs them."""
    _, one = searched("one", *CASES["random"], "parallel=3")
    _, three = searched("three", *CASES["random"], "parallel=1")
    assert one["sha256"] == three["sha256"]  # random points need no results


def test_an_individual_that_ends_behind_the_hours_counts(
    searched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmctl.search.journal.measure_time", lambda folder, jobs: 4.0 * len(jobs))
    _, found = searched("hours", "strategy=random", "budget.hours=0.001", "parallel=2")
    assert [each["state"] for each in found["individuals"]] == ["trained"] * 2
    assert {each["individual"] for each in found["best"]} == {0, 1}
