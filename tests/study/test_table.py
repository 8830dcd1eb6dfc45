"""From what jobs leave in their folders to the table: choice on dev, means, verdicts, cost,
curves; numbers made by hand.
"""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import statistics
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scipy import stats

from plmctl.analysis.runs import RunLog, average_curves, read_curve
from plmctl.core.errors import DataError
from plmctl.jobs.job import RUN
from plmctl.jobs.journal import State
from plmctl.report.latex import escape
from plmctl.report.studies import StudyFolder
from plmctl.report.study_panels import findings
from plmctl.report.study_tables import count_tested, explain_table, format_pair, make_metric_table
from plmctl.storage.atomic import write_json
from plmctl.storage.job_events import JobEvents
from plmctl.storage.reading import read_json
from plmctl.study.earlier import keep_first
from plmctl.study.latex import format_latex
from plmctl.study.learned import Unlearned
from plmctl.study.masks import list_noises
from plmctl.study.plan import StudyPlan
from plmctl.study.prospects import list_found
from plmctl.study.results import Results, list_warnings
from plmctl.study.show import show_table
from plmctl.study.study import Metric
from plmctl.study.table import LiveTable, _is_uneven, make_rows, write_table
from plmctl.text.tokenizer import Tokenizer
from tests.report import fabricated
from tests.study import toy_study

Planned = Callable[..., StudyPlan]
LM = "loss/mlm"
LOSS = {("slow", 0): 2.0, ("slow", 1): 2.1, ("fast", 0): 1.5, ("fast", 1): 1.61}
DEV = {  # of (arm, seed): setting -> the scores of two restarts
    ("slow", 0): [[0.5, 0.7], [0.8, 0.2]],
    ("slow", 1): [[0.5, 0.5], [0.6, 0.6]],
    ("fast", 0): [[0.9, 0.7], [0.8, 0.8]],
    ("fast", 1): [[0.1, 0.1], [0.9, 0.8]],
}


@pytest.fixture
def plan(planned: Planned) -> StudyPlan:
    node = {**toy_study.STUDY["finetune"], "grid": ["train.clip=1,2"], "restarts": 2}
    return planned(
        finetune=node,
        eval={"train": {"of": "toy", "overrides": ["split=train"]}},
        metrics={**toy_study.STUDY["metrics"], "on train": {"of": "train", "key": "accuracy"}},
    )


def leave(plan: StudyPlan, folder: Path) -> None:
    """What finished jobs leave."""
    for cell in plan.cells:
        place = (cell.arm, cell.seed)
        write(
            folder / str(cell.pretrain),
            "metrics.jsonl",
            [
                {"step": 1, "tokens": 100, "seconds": 1.0, "loss": 9.0},
                {"step": 6, "valid/loss/mlm": 5.0},
                {"step": 11, "tokens": 1100, "seconds": 6.0},
                {"step": 11, "valid/loss/mlm": LOSS[place]},
            ],
        )
        for setting, restarts in enumerate(cell.tuned["toy"]):
            for restart, name in enumerate(restarts):
                score = DEV[place][setting][restart]
                write(folder / name, "metrics.jsonl", [{"step": 4, "seconds": 2.0}])
                write(
                    folder / name,
                    "result.json",
                    {
                        "metrics": {"dev": {"accuracy": score, "loss": 1.0}},
                        "footprint": {"trained": 500, "saved": 2000, "memory": 10**6 + restart},
                    },
                )
                write(
                    folder / cell.evals["train"][name],
                    "result.json",
                    {"metrics": {"train": {"accuracy": score / 2}}},
                )


def write(folder: Path, name: str, content: Any) -> None:
    (folder / "run").mkdir(parents=True, exist_ok=True)
    lines = (
        "".join(json.dumps(line) + "\n" for line in content)
        if name.endswith("l")
        else json.dumps(content)
    )
    (folder / "run" / name).write_text(lines, encoding="utf-8")


def results(plan: StudyPlan, folder: Path, **other: State) -> Results:
    states = {name: other.get(name, State("done")) for name in plan.jobs}
    return Results(plan, states, lambda name: folder / name)


def test_the_best_setting_on_dev_counts_with_the_mean_of_its_restarts(
    plan: StudyPlan, here: Path
) -> None:
    leave(plan, here)
    found = results(plan, here)
    assert {(cell.arm, cell.seed): found.choice(cell, "toy") for cell in plan.cells} == {
        ("slow", 0): 0,
        ("slow", 1): 1,
        ("fast", 0): 0,
        ("fast", 1): 1,
    }
    assert found.values(plan.study.metrics["toy"], "slow") == pytest.approx({0: 0.6, 1: 0.6})
    assert found.values(plan.study.metrics["toy"], "fast") == pytest.approx({0: 0.8, 1: 0.85})
    assert found.values(plan.study.metrics["on train"], "fast") == pytest.approx({0: 0.4, 1: 0.425})
    assert found.values(plan.study.metrics["perplexity"], "slow") == pytest.approx(
        {0: math.exp(2.0), 1: math.exp(2.1)}
    )


def test_the_seconds_of_done_jobs(plan: StudyPlan, here: Path) -> None:
    """Two settings of 2 s each, for one restart; a seed that is not done counts nowhere."""
    leave(plan, here)
    assert results(plan, here).clock("slow") == {"pretrain": 6.0, "toy": 4.0}
    first = next(cell.pretrain for cell in plan.cells if cell.arm == "slow")
    other = {str(first): State("open")}
    assert results(plan, here, **other).clock("slow")["pretrain"] == 6.0
    assert results(plan, here, **{n: State("open") for n in plan.jobs}).clock("slow") == {}


def test_jobs_that_have_not_begun_are_one_line(
    plan: StudyPlan, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(plan, here)
    names = [*plan.jobs][-4:]
    for name in names[1:]:  # the first one was interrupted
        shutil.rmtree(here / name, ignore_errors=True)
    record = write_table(
        plan.study, results(plan, here, **dict.fromkeys(names, State("open"))), here
    )
    assert [job["why"] for job in record["missing"]] == ["begun, not finished"] + [
        "not run yet"
    ] * 3
    capsys.readouterr()
    show_table(record)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("open: ")]
    assert len(lines) == 2
    assert (
        lines[0]
        == f"open: 3 of {len(plan.jobs)} jobs, first {plan.jobs[names[1]].label}: not run yet"
    )


def test_ways_of_scoring_that_differ_are_named(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    for cell in plan.cells:
        for name in cell.evals["train"].values():
            file = here / name / "run" / "result.json"
            way = "masks" if cell.arm == "slow" else "replaced"
            file.write_text(json.dumps({**json.loads(file.read_text()), "score": way}))
    (line,) = results(plan, here).list_ways()
    assert line.startswith("on train: ")
    assert "(masks: slow; replaced: fast)" in line
    assert line in write_table(plan.study, results(plan, here), here)["notes"]
    for end in ("md", "html", "json", "csv"):
        assert line in (here / f"table.{end}").read_text(encoding="utf-8")
    assert (here / "table.csv").read_text(encoding="utf-8").count(line) == 1
    assert rf"{escape(line)}\par" in (here / "table.tex").read_text(encoding="utf-8")
    alone = findings.draw(StudyFolder(here, {}, read_json(here / "table.json")))
    assert sum(line in getattr(block, "note", "") for block in alone) == 1  # of its own metric


def test_verdicts_among_models_that_learned_nothing_are_marked(plan: StudyPlan, here: Path) -> None:
    """Each run answers "1" to all; those of one arm do not when they have learned."""
    leave(plan, here)
    study = plan.study
    for cell in plan.cells:
        for restarts in cell.tuned["toy"]:
            for name in restarts:
                (here / name / "run" / "predictions").mkdir()
                guesses = [{"gold": gold, "guess": "1"} for gold in "011"]
                write(here / name, "predictions/dev.jsonl", guesses)
    record = write_table(study, results(plan, here), here)
    marks = {(row["metric"], row["arm"]): row["mark"] for row in record["rows"]}
    assert [place for place, mark in marks.items() if mark] == [
        ("toy", "fast"),
        ("on train", "fast"),
    ]
    # the chosen setting has two restarts of two seeds
    assert "toy: slow (4), fast (4) give one answer to every example (in" in str(record["notes"])
    told = "† toy: fast and the baseline, in half of their runs or more, learned nothing"
    assert any(note.startswith(told) for note in record["notes"])
    for end, mark in {"md": " †", "html": ">†<", "csv": "†", "tex": r"$^\dagger$"}.items():
        assert mark in (here / f"table.{end}").read_text(encoding="utf-8")
    for file in here.glob("finetune*/run/predictions/dev.jsonl"):
        if any(file.parts[-4] in cell.jobs for cell in plan.cells if cell.arm == "fast"):
            file.write_text('{"gold": "0", "guess": "0"}\n{"gold": "1", "guess": "1"}\n')
    after = write_table(study, results(plan, here), here)
    assert not any(row["mark"] for row in after["rows"])
    assert "toy: slow (4) give one" in str(after["notes"])


def test_verdicts_among_pretrainings_at_the_frequencies_are_marked(
    plan: StudyPlan, here: Path
) -> None:
    """The loss of each run, and that of the frequencies of tokens by arm."""
    for unigram, marked in (
        ({"slow": 2.0, "fast": 1.5}, ["perplexity"]),  # 2.0, 2.1 and 1.5, 1.61: at or above
        ({"slow": 2.04, "fast": 1.54}, ["perplexity"]),  # all but equal
        ({"slow": 2.0, "fast": 1.7}, []),
        ({"slow": 2.2, "fast": 1.5}, []),
        ({}, []),
        ({"slow": 2.1, "fast": 1.6, "kind": "constant"}, ["perplexity"]),  # hardly below
        ({"slow": 2.1, "fast": 1.7, "kind": "constant"}, []),
        ({"slow": 1.0, "fast": 1.0, "tokens": 100}, []),  # too few tokens to compare losses
    ):
        leave(plan, here)
        kind = unigram.get("kind", "unigram")
        for cell in plan.cells:
            log = here / str(cell.pretrain) / "run" / "metrics.jsonl"
            if cell.arm in unigram:
                row = {"step": 11, f"valid/{kind}/mlm": unigram[cell.arm]}
                log.write_text(log.read_text() + json.dumps(row) + "\n")
            if tokens := unigram.get("tokens"):
                held = {"documents": 1, "tokens": tokens}
                write(here / str(cell.pretrain), "held_out.json", held)
        record = write_table(plan.study, results(plan, here), here)
        assert [row["metric"] for row in record["rows"] if row["mark"]] == marked
        assert ("no better than those of the freq" in str(record["notes"])) == bool(marked)
        for end, mark in {"md": " †", "html": "†<", "csv": "†", "tex": r"$^\dagger$"}.items():
            assert (mark in (here / f"table.{end}").read_text(encoding="utf-8")) == bool(marked)


def test_the_floor_of_a_generator_is_none_of_its_model(tmp_path: Path) -> None:
    """ELECTRA of which the generator has learned something, and the model calls every token
    original: what is not of one term, such as minimal pairs, is by its model.
    """
    electra = {"electra": {"_target_": "plmctl.objectives.electra.Electra"}}
    config = {**fabricated.CONFIG, "objective": electra}
    run = fabricated.run(tmp_path / "job" / "run", config=config)
    ends = {"loss/mlm": 5.0, "unigram/mlm": 6.2, "loss/rtd": 0.41, "constant/rtd": 0.417}
    record = {"step": 1, **{f"valid/{name}": value for name, value in ends.items()}}
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    plan: Any = SimpleNamespace()
    found = Results(plan, {}, lambda name: tmp_path / name)
    judged = {
        name: found.is_near_floor("job", name) for name in ("mlm", "rtd", "minimal_pairs", "")
    }
    assert judged == {"mlm": False, "rtd": True, "minimal_pairs": True, "": True}


def test_what_is_reached_without_pretraining_stands_next_to_its_metric(
    plan: StudyPlan, here: Path
) -> None:
    leave(plan, here)
    cell = plan.cells[0]
    for name in (name for names in cell.tuned["toy"] for name in names):
        write(here / name, "baselines.json", {"dev": {"most frequent": {"accuracy": 0.625}}})
    (evaluation, *_) = cell.evals["train"].values()
    file = here / evaluation / "run" / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chance": 0.5}))
    record = write_table(plan.study, results(plan, here), here, warnings=["lines were joined"])
    known = {"perplexity": {}, "toy": {"most frequent": 0.625}, "on train": {"chance": 0.5}}
    assert {name: record["floors"][name] for name in known} == known
    tex, page = (here / "table.tex").read_text(), (here / "table.md").read_text()
    assert r"\emph{toy} $\uparrow$ (most frequent: 0.625)" in tex
    assert "higher is better. Without pretraining: chance: 0.5." in page
    assert ("lines were joined" in page, "lines were joined" in tex) == (True, False)


def test_a_task_may_find_its_metrics_in_its_data(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    chosen = [results(plan, here).choice(cell, "toy") for cell in plan.cells]
    for arm in plan.arms.values():
        for config in arm.tuned["toy"]:
            config["task"]["metrics"] = None
    found = results(plan, here)
    assert [found.choice(cell, "toy") for cell in plan.cells] == chosen
    write_json(here / next(iter(plan.cells[0].tuned["toy"]))[0] / RUN / "baselines.json", {})
    table = write_table(plan.study, found, here)
    assert all(row["n"] for row in table["rows"])


def test_tied_pairs_are_counted_by_arm(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    assert results(plan, here).list_ties() == []
    for cell in plan.cells:
        for name in cell.evals["train"].values():
            file = here / name / "run" / "result.json"
            ties = {"ties": "strict"} | ({"tied": cell.seed + 3} if cell.arm == "slow" else {})
            file.write_text(json.dumps({**json.loads(file.read_text()), **ties}))
    (line,) = results(plan, here).list_ties()
    assert line.startswith("train: pairs of equal scores")
    assert line.endswith("slow 3.5, fast 0 (task.ties=strict)")


def test_a_task_states_that_lower_is_better(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    before = results(plan, here)
    metric = plan.study.metrics["toy"]
    assert not before.lower_is_better(metric)
    assert before.lower_is_better(replace(metric, better="lower"))
    for file in here.glob("finetune*/run/result.json"):
        known = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**known, "lower": ["accuracy"]}), encoding="utf-8")
    found = results(plan, here)
    chosen = {(cell.arm, cell.seed): found.choice(cell, "toy") for cell in plan.cells}
    for place, settings in DEV.items():
        means = [sum(restarts) for restarts in settings]
        assert chosen[place] == means.index(min(means))
    assert found.lower_is_better(metric)
    assert not found.lower_is_better(replace(metric, better="higher"))
    table = write_table(plan.study, found, here)
    assert table["about"]["toy"].endswith("accuracy of toy; lower is better.")


def test_a_task_states_that_its_scores_are_percents(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    rows = make_rows(plan.study, results(plan, here))
    assert not any(row["percent"] for row in rows)
    for file in here.glob("finetune*/run/result.json"):
        known = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps({**known, "percent": ["accuracy"]}), encoding="utf-8")
    table = write_table(plan.study, results(plan, here), here)
    percent = {row["metric"] for row in table["rows"] if row["percent"]}
    assert percent == {n for n, m in plan.study.metrics.items() if m.of == "toy"}
    assert "## toy, %" in (here / "table.md").read_text(encoding="utf-8")
    assert r"\emph{toy, \%}" in (here / "table.tex").read_text(encoding="utf-8")


def test_what_more_seeds_find_is_said_in_the_unit_of_a_metric(plan: StudyPlan, here: Path) -> None:
    """Power of 80% at the level 0.05 / comparisons, by the t distribution that is not central."""
    assert [*list_found(plan, results(plan, here, **{n: State("open") for n in plan.jobs}))] == []
    leave(plan, here)
    lines = [*list_found(plan, results(plan, here))]
    (line,) = (line for line in lines if line.startswith("perplexity: 2 seeds "))
    assert "(fast - slow: standard deviation" in line
    differences = [math.exp(LOSS["fast", n]) - math.exp(LOSS["slow", n]) for n in (0, 1)]
    spread, level = statistics.stdev(differences), 0.05 / len(plan.study.comparisons)
    for seeds, found in re.findall(r"(\d+) seeds ([\d.e+]+)", line):
        n, shift = int(seeds), float(found) / spread * math.sqrt(int(seeds))
        power = stats.nct.sf(stats.t.isf(level / 2, n - 1), n - 1, shift)
        assert power == pytest.approx(0.8, abs=0.03)


def test_a_metric_in_another_unit_is_no_further_comparison(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    alone = make_rows(plan.study, results(plan, here))
    metrics = plan.study.metrics
    loss = replace(metrics["perplexity"], exp=False, expect={}, published=None)
    study = replace(plan.study, metrics={"loss": loss, **metrics})
    rows = make_rows(study, results(replace(plan, study=study), here))
    found = {row["metric"]: row for row in rows if row["arm"] == "fast"}
    assert found["perplexity"]["p_of"] == "loss"
    assert found["perplexity"]["p_holm"] == found["loss"]["p_holm"]
    toy = next(row for row in alone if row["metric"] == "toy" and row["arm"] == "fast")
    assert found["toy"]["p_holm"] == toy["p_holm"]  # as without the loss
    table = {"rows": rows, "baseline": "slow"}
    assert count_tested(table) == 3
    assert "perplexity has the p of loss" in explain_table(table)


def test_costs_are_of_the_vocabulary_that_was_trained(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    before = {arm: results(plan, here).cost(arm) for arm in plan.arms}
    tokenizer = Tokenizer.train(["the cat sees a dog"] * 9, kind="wordpiece", vocab_size=30)
    for cell in plan.cells:
        if cell.arm == "fast":
            tokenizer.save(here / str(cell.pretrain) / RUN / "tokenizer")
    after = {arm: results(plan, here).cost(arm) for arm in plan.arms}
    assert after["slow"] == before["slow"]
    fewer, width = 300 - tokenizer.vocab.size, 32  # a row of the table, which is tied, and a bias
    assert before["fast"]["parameters"] - after["fast"]["parameters"] == fewer * (width + 1)
    assert after["fast"]["flops"] < before["fast"]["flops"]


def test_the_table_of_a_running_study_is_not_written_all_the_time() -> None:
    now, written = [0.0], []

    def write() -> None:
        written.append(now[0])
        now[0] += 2  # seconds that it takes
        raise DataError("no validation yet")  # the end of the study says it

    live = LiveTable(write, lambda: now[0])
    for moment in (0, 3, 41, 43, 90):
        now[0] = max(now[0], moment)
        live()
    assert written == [0, 43, 90]


def test_equal_warnings_of_jobs_are_one_line(plan: StudyPlan, here: Path) -> None:
    events = JobEvents(here / "jobs")
    slow, fast, *_ = [name for name in plan.jobs if name.startswith("pretrain")]
    lines = {slow: ["loss 3.25: nothing is learnt"], fast: ["loss 1,004.5: nothing is learnt", "x"]}
    (here / "jobs").mkdir()
    for name, warnings in lines.items():
        events.write("finished", name, warnings=warnings)
    assert list_warnings(plan, events) == [
        "2 jobs, first pretrain slow, seed 0: loss 3.25: nothing is learnt",
        "pretrain fast, seed 0: x",
    ]
    events.write("resumed", fast)  # it runs anew
    assert list_warnings(plan, events) == ["pretrain slow, seed 0: loss 3.25: nothing is learnt"]


def test_the_table(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    table = write_table(plan.study, results(plan, here), here, notes=["a note"], seconds=3723)
    rows = {(row["metric"], row["arm"]): row for row in table["rows"]}
    perplexity = rows["perplexity", "fast"]
    pairs = [math.exp(LOSS["fast", seed]) - math.exp(LOSS["slow", seed]) for seed in (0, 1)]
    assert perplexity["difference"] == pytest.approx(sum(pairs) / 2)
    assert (
        perplexity["n"],
        perplexity["expected"],
        perplexity["published"],
        perplexity["unit"],
    ) == (2, "lower", 4.0, "perplexity")
    # the smallest of three comparisons
    assert perplexity["p_holm"] == pytest.approx(min(1.0, 3 * perplexity["p"]))
    assert perplexity["verdict"] == ("held" if perplexity["p_holm"] < 0.05 else "undecided")
    assert rows["toy", "slow"]["difference"] is None
    assert rows["toy", "slow"]["detectable"] is None
    # of three comparisons, none of which is found: at a third of the level, one degree of freedom
    error = abs(pairs[0] - pairs[1]) / 2
    d, t = perplexity["detectable"] / error, stats.t.isf(0.05 / 6, 1)
    power = stats.chi2.expect(lambda x: stats.norm.sf(t * x**0.5 - d), args=(1,))
    assert power == pytest.approx(0.8, abs=1e-6)
    cost = {each["arm"]: each for each in table["costs"]}["fast"]
    assert cost["tokens"] == 1100
    assert cost["flops"] == pytest.approx(1100 * plan.arms["fast"].flops_per_token)
    assert cost["seconds"] == pytest.approx(6.0 + 4 * 2.0)
    assert (cost["trained"], cost["saved"]) == (500, 2000)
    assert cost["memory"] == 10**6 + 1  # the most of all
    assert json.loads((here / "table.json").read_text()) == json.loads(json.dumps(table))
    lines = list(csv.DictReader((here / "table.csv").open()))
    assert [float(line["mean"]) for line in lines] == [row["mean"] for row in table["rows"]]
    assert [line["p_raw"] for line in lines] == [str(row["p"] or "") for row in table["rows"]]
    assert "p" not in lines[0]
    assert r"slow & $" in (here / "table.tex").read_text()
    page = (here / "table.md").read_text()
    for words in (
        "published, perplexity",
        "a note",
        "0.825 ± 0.035",
        "for all 3 comparisons",
        "Time taken: 1:02:03.",
        "| detectable |",
        "show with 80% probability",
        "at one level in all rows: 0.05 / 3 = 0.017, the first step of Holm",
        "curve-0-steps",
        "nobody",
    ):
        assert words in page
    assert not [
        file
        for file in here.iterdir()
        if file.suffix not in (".md", ".html", ".json", ".csv", ".tex", ".yaml", ".txt", "")
    ]


def _row(
    metric: str, arm: str, mean: float | None, sd: float | None, n: int = 3, **more: Any
) -> dict[str, Any]:
    none = dict.fromkeys(("difference", "low", "high", "p", "p_holm"))
    own = {"metric": metric, "arm": arm, "mean": mean, "sd": sd, "n": n, "test": ""}
    return {**own, **none, **more}


def _found(difference: float, low: float, high: float, p: float) -> dict[str, Any]:
    return {"difference": difference, "low": low, "high": high, "p": p, "p_holm": p}


RECORD = {"title": "Rates {x} ~ $y$", "baseline": "a_b & c", "missing": []}


def test_the_table_for_a_paper() -> None:
    rows = [
        _row("loss", "a_b & c", 2.0, 0.1),
        _row("loss", r"50% \ #1", 1.5, 0.25, **_found(-0.5, -0.625, -0.375, 0.0001)),
        _row("steps^2", "a_b & c", 123456.0, 20.0),
        _row("steps^2", r"50% \ #1", 1e-7, None, **_found(-123456.0, -123466.0, -123446.0, 0.0123)),
    ]
    assert format_latex({**RECORD, "rows": rows}, {"loss"}).splitlines() == [
        r"% needs \usepackage{booktabs}; written by plmctl ablate",
        r"\begin{table}",
        r"\centering",
        r"\caption{Rates \{x\} \textasciitilde{} \$y\$. Mean $\pm$ standard deviation over 3 seeds."
        r" Bold: the best mean of all arms, where its difference from a\_b \& c (of a\_b \& c from"
        r" all others) has $p < 0.05$."
        r" Difference from a\_b \& c, with its 95\% interval by Student's $t$"
        r" over pairs of equal seeds; $p$: the same $t$-test, corrected by Holm for all"
        r" 2 comparisons. Intervals are not corrected for the number of comparisons: each has its"
        r" level alone.}",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"arm & mean $\pm$ sd & difference [95\% interval] & $p$ \\",
        r"\midrule",
        r"\multicolumn{4}{l}{\emph{loss} $\downarrow$} \\",
        r"a\_b \& c & $2.00 \pm 0.10$ &  &  \\",
        r"50\% \textbackslash{} \#1 & $\mathbf{1.50 \pm 0.25}$ & $-0.500\ [-0.625, -0.375]$"
        r" & $0.0001$ \\",
        r"\midrule",
        r"\multicolumn{4}{l}{\emph{steps\textasciicircum{}2} $\uparrow$} \\",
        r"a\_b \& c & $\mathbf{123{,}456 \pm 20}$ &  &  \\",
        r"50\% \textbackslash{} \#1 & $1 \cdot 10^{-7}$"
        r" & $-123{,}456\ [-123{,}466, -123{,}446]$ & $0.0123$ \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    alone = format_latex({**RECORD, "rows": rows[:1]}, {"loss"})
    assert "bold" not in alone
    assert "mathbf" not in alone
    assert "Difference from" not in alone


def test_means_and_deviations_end_at_one_place() -> None:
    rows = [
        _row("accuracy", "a", 0.5, 0.03333),
        _row("accuracy", "b", 0.55556, 0.002, **_found(0.05556, -0.07093, 0.182, 0.2)),
        _row("accuracy", "c", 12.34567, 0.01, **_found(11.84567, 11.8, 11.9001, 0.01)),
        _row("accuracy", "d", None, None),
    ]
    lines = format_latex({**RECORD, "rows": rows}, []).splitlines()
    assert [line for line in lines if line.startswith(("a &", "b &", "c &", "d &"))] == [
        r"a & $0.500 \pm 0.033$ &  &  \\",
        r"b & $0.5556 \pm 0.0020$ & $+0.056\ [-0.071, +0.182]$ & $0.2000$ \\",
        r"c & $\mathbf{12.346 \pm 0.010}$ & $+11.846\ [+11.800, +11.900]$ & $0.0100$ \\",
        r"d & -- &  &  \\",
    ]


@pytest.mark.parametrize("deviation", [0.000996, 0.0995, 0.0042, 0.95, 9.96, 31.4])
def test_a_deviation_has_two_significant_digits(deviation: float) -> None:
    """And the mean ends there, by decimal arithmetic."""
    two = Context(prec=2).create_decimal(Decimal(deviation))
    place = two if two < 10 else Decimal(1)
    wanted = tuple(str(Decimal(each).quantize(place)) for each in (5.43215678, deviation))
    assert format_pair(5.43215678, deviation) == wanted
    assert format_pair(0.5, 0.0) == ("0.5", "0")
    assert format_pair(0.5, 1e-17) == ("0.5", "1e-17")


def test_the_text_of_one_metric_names_no_other() -> None:
    same = {"difference": 0.0, "test": "no spread"}
    rows = [_row(name, "b", 0.5, 0.1, **same) for name in ("loss", "perplexity")]
    rows[1]["p_of"] = "loss"
    whole, own = (explain_table({**RECORD, "rows": rows}, name) for name in (None, "loss"))
    assert "perplexity has the p of loss" in whole
    assert "perplexity" not in own
    assert "loss: b is equal to a_b & c in every seed." in own


def test_nothing_is_bold_where_no_test_says_that_it_is_best() -> None:
    """The mean of an arm is bold by its own test, that of the baseline by the tests of all others;
    and not where both sides have learned nothing.
    """
    base, sure, unsure = "a_b & c", _found(0.2, 0.1, 0.3, 0.01), _found(0.2, -0.1, 0.5, 0.2)

    def count(best: tuple[float, Any], other: tuple[float, Any]) -> int:
        rows = [
            _row("f1", "b", best[0], 0.1, **best[1]),
            _row("f1", "c", other[0], 0.1, **other[1]),
        ]
        record = {**RECORD, "rows": [_row("f1", base, 0.7, 0.1), *rows]}
        return format_latex(record, []).count("mathbf")

    assert count((0.9, sure), (0.8, unsure)) == 1
    assert count((0.9, unsure), (0.8, sure)) == 0
    assert count((0.5, sure), (0.6, sure)) == 1
    assert count((0.5, sure), (0.6, unsure)) == 0
    assert count((0.9, {**sure, "mark": "†"}), (0.8, unsure)) == 0
    same = _row("accuracy", "b", 0.5, 0.0, difference=0.0, test="no spread")
    (line,) = (
        each
        for each in format_latex({**RECORD, "rows": [same]}, []).splitlines()
        if each.startswith("b &")
    )
    assert line == r"b & $0.5 \pm 0$ & $+0$ & -- \\"


def test_arms_in_chinese_need_a_package() -> None:
    chinese = format_latex({**RECORD, "rows": [_row("loss", "全词", 2.0, 0.1)]}, {"loss"})
    assert r"xeCJK} or \usepackage{ctex}, and XeLaTeX" in chinese.splitlines()[1]
    assert "XeLaTeX" not in format_latex({**RECORD, "rows": [_row("loss", "é", 2.0, 0.1)]}, [])
    greek = format_latex({**RECORD, "rows": [_row("loss", "α", 2.0, 0.1)]}, [])
    assert greek.splitlines()[1] == "% letters that are not Latin: XeLaTeX instead of LaTeX"


def test_long_values_without_pretraining_stand_below_the_table() -> None:
    """Next to the metric they would be wider than the line."""
    rows, floors = [_row("f1", "a", 0.5, 0.1)], {"words and pairs of words of a text": 0.25}
    short, long = (
        format_latex({**RECORD, "rows": rows, "floors": {"f1": own}}, [])
        for own in (floors, floors | {"most frequent": 0.5})
    )
    assert r"$\uparrow$ (words and pairs of words of a text: 0.25)" in short
    assert "f1, without pretraining: words and pairs of words of a text: 0.25; most" in long


def test_signs_that_latex_lacks() -> None:
    assert escape("«a»  50% – né 全") == r"$\ll$a$\gg$ 50\% – né 全"
    assert escape("⟦a → b⟧ 5″ ∈ ±1") == r"[a $\to$ b] 5'' [element of] ±1"
    assert escape("fine \N{GRINNING FACE} \N{HEAVY BLACK HEART}\ufe0f!") == (
        "fine [grinning face] [heavy black heart]!"
    )


def test_a_study_that_is_not_complete_says_so(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    unread = {name: State("open") for name in plan.cells[1].jobs}
    write_table(plan.study, results(plan, here, **unread), here, again="plmctl ablate toy")
    tex = (here / "table.tex").read_text()
    assert r"\textbf{Not complete}: fast, seed 0." in tex
    assert "deviation over 1 to 2 seeds." in tex
    assert "mathbf" not in tex
    page = (here / "table.md").read_text(encoding="utf-8")
    assert "says nothing about the spread" in page
    assert "More of them" not in page
    assert (
        "% NOT COMPLETE: 9 jobs without a result, the first 5 below. To run them: plmctl ablate toy"
        in tex
    )
    assert "%   open: pretrain fast, seed 0 (for fast, seed 0)" in tex
    assert r"arm & $n$ & mean" in tex
    assert "slow & $2$ & $" in tex
    assert "fast & $1$ & $" in tex
    for cell in plan.cells:
        unread |= {name: State("open") for name in cell.jobs if cell.arm == "fast"}
    write_table(plan.study, results(plan, here, **unread), here)
    assert "mathbf" not in (here / "table.tex").read_text()
    page = (here / "table.md").read_text()
    assert "all 0 comparisons" not in page
    assert "There is no p here" in page


def test_what_failed_is_named_and_left_out(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    bad = plan.cells[1].tuned["toy"][0][1]
    table = write_table(
        plan.study, results(plan, here, **{bad: State("failed", "no finite gradient\nmore")}), here
    )
    fast = next(row for row in table["rows"] if (row["metric"], row["arm"]) == ("toy", "fast"))
    # the other setting of the cell is whole
    assert fast["values"] == pytest.approx({0: 0.8, 1: 0.85})
    assert [(each["state"], each["cells"]) for each in table["missing"]] == [
        ("failed", "fast, seed 0")
    ]
    assert "no finite gradient |" in (here / "table.md").read_text()
    both = {
        name: State("failed", "x") for restarts in plan.cells[1].tuned["toy"] for name in restarts
    }
    table = write_table(plan.study, results(plan, here, **both), here)
    fast = next(row for row in table["rows"] if (row["metric"], row["arm"]) == ("toy", "fast"))
    assert (fast["n"], fast["test"], fast["p"], fast["sd"]) == (1, "none", None, None)


def test_equal_differences_have_no_p(
    plan: StudyPlan, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor have those below the digits that are stored."""
    same = {place: [[0.5, 0.5], [0.5, 0.5]] for place in DEV}
    same["fast", 1] = [[0.5000005, 0.5000005]] * 2
    monkeypatch.setattr("tests.study.test_table.DEV", same)
    plan.study.metrics["toy"].expect["fast"] = "higher"
    leave(plan, here)
    table = write_table(plan.study, results(plan, here), here)
    rows = {(row["metric"], row["arm"]): row for row in table["rows"]}
    toy = rows["toy", "fast"]
    assert (toy["difference"], toy["test"], toy["p"], toy["low"]) == (0, "no spread", None, None)
    assert toy["verdict"] == ""
    show_table(table)
    equal = "toy: fast is equal to slow in every seed"
    assert equal in capsys.readouterr().out.splitlines()
    page = (here / "table.md").read_text()
    assert "No p (-) and no verdict where every seed gave exactly the same difference" in page
    assert f"{equal}." in page
    head, cells = make_metric_table([toy]).head, make_metric_table([toy]).rows[0]
    assert dict(zip(head, cells, strict=True))["p (Holm)"] == "-"
    assert "t-test over seeds, corrected by Holm for the one comparison" in page


def test_curves_over_every_axis(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    log = RunLog.read(here / str(plan.cells[0].pretrain) / "run")
    assert read_curve(log, "valid/loss/mlm", "steps", 7.0) == [(6, 6, 5.0), (11, 11, 2.0)]
    assert read_curve(log, "valid/loss/mlm", "tokens", 7.0) == [(6, 600, 5.0), (11, 1100, 2.0)]
    assert read_curve(log, "valid/loss/mlm", "flops", 7.0) == [(6, 4200, 5.0), (11, 7700, 2.0)]
    assert read_curve(log, "valid/loss/mlm", "time", 7.0) == [(6, 3.5, 5.0), (11, 6.0, 2.0)]
    metric = plan.study.metrics["perplexity"]
    runs = results(plan, here).runs(metric, "tokens")
    assert list(runs) == ["slow", "fast"]
    x, loss = average_curves(runs["slow"])[-1]
    assert (x, metric.unit(loss)) == pytest.approx((1100, math.exp(2.05)))


def test_a_mean_curve_is_over_what_all_seeds_have() -> None:
    assert average_curves([[(1, 10, 2.0), (2, 20, 1.0)], [(2, 24, 3.0), (3, 30, 9.0)]]) == [
        (22, 2.0)
    ]
    assert average_curves([]) == []


@pytest.mark.parametrize(
    ("mean", "deviation", "difference", "shown"),
    [
        (1129.2, 215.7, 202.2, ["1,129 ± 216", "+202", "-303 to +12,345"]),
        (0.28812, 0.1634, 15.2, ["0.29 ± 0.16", "+15", "-303 to +12,345"]),
        (23456.0, 99.7, -23456.0, ["23,456 ± 100", "-23,456", "-303 to +12,345"]),
    ],
)
def test_large_numbers_have_no_exponent(
    mean: float, deviation: float, difference: float, shown: list[str]
) -> None:
    row = {
        "arm": "a",
        "n": 3,
        "mean": mean,
        "sd": deviation,
        "difference": difference,
        "low": -303.1,
        "high": 12345.0,
        "p_holm": 0.5,
        "expected": "",
        "verdict": "",
        "published": None,
        "unit": "",
    }
    assert list(make_metric_table([row]).rows[0][2:5]) == shown


def test_what_two_values_of_a_metric_can_differ_by() -> None:
    assert Metric("toy", "accuracy").span == 1
    assert Metric("toy", "matthews").span == 2
    assert Metric("toy", "loss").span is Metric("pretrain", "accuracy", exp=True).span is None


def test_an_arm_without_a_run_has_no_verdict(plan: StudyPlan, here: Path) -> None:
    leave(plan, here)
    made = results(plan, here)
    found = SimpleNamespace(
        values=lambda metric, arm: {} if arm == "fast" else made.values(metric, arm),
        explain_absence=made.explain_absence,
        is_percent=made.is_percent,
    )
    rows = {(row["metric"], row["arm"]): row for row in make_rows(plan.study, found)}
    row = rows["perplexity", "fast"]
    assert (row["n"], row["expected"], row["verdict"]) == (0, "lower", "")


@pytest.mark.parametrize(
    ("kinds", "unlike", "said"),
    [
        (["open", "open"], "", "not run"),
        (["open", "open"], "another loss", "not run"),
        (["done", "open"], "another loss", "ran, left out: another loss"),
        (["failed", "open"], "", "failed"),
        (["stopped", "done"], "", "stopped early"),
        (["done", "done"], "", "ran, has no such score"),
    ],
)
def test_an_arm_without_a_value_says_why(
    plan: StudyPlan,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    kinds: list[Any],
    unlike: str,
    said: str,
) -> None:
    monkeypatch.setattr("plmctl.study.results.explain_unlike", lambda *words: unlike)
    own = [cell for cell in plan.cells if cell.arm == "fast"]
    states = {
        name: State(kind) for cell, kind in zip(own, kinds, strict=True) for name in cell.jobs
    }
    found = results(plan, here, **states)
    assert found.explain_absence(plan.study.metrics["perplexity"], "fast") == said


def test_an_undecided_verdict_says_what_could_have_been_seen() -> None:
    row = {
        "arm": "a",
        "n": 3,
        "mean": 0.8,
        "sd": 0.01,
        "difference": 0.01,
        "low": -0.02,
        "high": 0.04,
        "detectable": 0.02134,
        "p_holm": 0.4,
        "expected": "higher",
        "verdict": "undecided",
        "published": None,
        "unit": "",
    }
    table = make_metric_table([row])
    (line,) = table.rows
    assert dict(zip(table.head, line, strict=True))["detectable"] == "0.021"
    assert line[-1] == "undecided (could have seen 0.021)"
    decided = make_metric_table([{**row, "verdict": "held"}]).rows[0]
    assert decided[-1] == "held"
    # two seeds of an accuracy cannot show anything
    blind = make_metric_table([{**row, "detectable": 2.4, "span": 1.0}]).rows[0]
    assert (blind[5], blind[-1]) == ("none", "undecided (no difference could have been seen)")
    seeing = make_metric_table([{**row, "detectable": 0.9, "span": 1.0}]).rows[0]
    assert seeing[-1] == "undecided (could have seen 0.9)"
    # an arm without a run, and one without a spread
    absent = {**row, "detectable": None, "verdict": "", "difference": None, "n": 0}
    assert make_metric_table([absent]).rows[0][-1] == "no baseline"
    absent["mean"] = None
    assert make_metric_table([absent]).rows[0][-1] == "not run"
    left_out = {**absent, "expected": "", "absent": "ran, left out: another loss"}
    assert make_metric_table([left_out]).rows[0][-1] == "ran, left out: another loss"
    assert make_metric_table([{**absent, "difference": 0.1}]).rows[0][-1] == "no spread"
    # of one seed, and in a table of an older version
    assert make_metric_table([{**row, "detectable": None}]).rows[0][-1] == "undecided at this scale"
    del row["detectable"]
    former = make_metric_table([row])
    assert "detectable" not in former.head
    assert former.rows[0][-1] == "undecided at this scale"


@pytest.mark.parametrize(("tokens", "validates"), [(2000, True), (1999, False)])
def test_the_page_says_how_much_text_is_held_out(
    plan: StudyPlan, here: Path, tokens: int, validates: bool
) -> None:
    leave(plan, here)
    for cell in plan.cells:
        held = {"documents": 12, "tokens": tokens if cell.arm == "fast" else 5400}
        write(here / str(cell.pretrain), "held_out.json", held)
    table = write_table(plan.study, results(plan, here), here)
    page = (here / "table.md").read_text()
    assert "valid: 12 documents, 5,400 tokens of text (slow)" in table["notes"]
    assert "valid: 12 documents, 5,400 tokens of text (slow)" in page
    assert ("valid: 12 documents, 2,000 tokens of text (fast)" in page) is validates
    assert (
        "held out: 12 documents, 1,999 tokens of text: too few for a validation" in page
    ) is not validates
    assert ("a sample, no validation" in table["about"]["perplexity"]) is not validates
    assert ("Learning curves on a sample of held-out text" in page) is not validates
    for cell in plan.cells:
        write(here / str(cell.pretrain), "held_out.json", {"documents": 12, "tokens": 5400})
    notes = write_table(plan.study, results(plan, here), here)["notes"]
    assert "valid: 12 documents, 5,400 tokens of text" in notes


def test_arms_of_different_seeds_are_told_apart_from_their_means() -> None:
    study: Any = SimpleNamespace(baseline="a")

    def judge(*seeds: int, test: str = "paired t") -> bool:
        base = _row("f1", "a", 0.5, 0.1, values={0: 0.4, 1: 0.6})
        other = _row("f1", "b", 0.5, 0.1, test=test, values=dict.fromkeys(seeds, 0.5))
        return _is_uneven(study, [base, {**other, "test": test}])

    assert (judge(0, 1), judge(0, 1, 2), judge(2, 3, test="Welch t")) == (False, True, False)


def test_the_noise_of_validation_is_named_and_marked_where_arms_train_with_another(
    planned: Planned, here: Path
) -> None:
    """The mark is on the arm whose masks are not those of the baseline; BERT's masks are those of
    validation.
    """
    word = ["noise=[whole_word_mask]", "noise.whole_word_mask.rate=0.3"]
    arms = {"slow": ["optim.lr=1e-3"], "fast": ["optim.lr=1e-2"], "word": word}
    plan = planned(
        arms=arms, finetune={"tasks": {}}, metrics={"loss": {"of": "pretrain", "key": LM}}
    )
    for cell in plan.cells:
        lines = [{"step": 1, "tokens": 10, "seconds": 1.0}, {"step": 1, f"valid/{LM}": 2.0}]
        write(here / str(cell.pretrain), "metrics.jsonl", lines)
    table = write_table(plan.study, results(plan, here), here)
    assert {row["arm"]: row["noise_mark"] for row in table["rows"]} == {
        "slow": "",
        "fast": "",
        "word": "‡",
    }
    line = "loss: validated under token_mask 0.15; trained with whole_word_mask 0.3: word"
    assert line in table["notes"]
    assert list_noises(plan) == [line]
    assert "validated under token_mask 0.15;" in table["about"]["loss"]
    assert r" loss: validated under token\_mask 0.15." in (here / "table.tex").read_text()
    assert any(note.startswith("‡ loss: word and the baseline") for note in table["notes"])
    alone = planned(metrics={"loss": {"of": "pretrain", "key": LM}})
    assert list_noises(alone) == ["loss: validated under token_mask 0.15"]


@pytest.mark.parametrize(
    ("constant", "said"),
    [(True, "learned nothing: they give one answer"), (False, "no better than")],
)
def test_a_model_below_simple_ones_has_not_learned_nothing(
    planned: Planned, here: Path, constant: bool, said: str
) -> None:
    plan = planned()
    simple = {"dev": {"words": {"accuracy": 0.9}}}
    for cell in plan.cells:
        lines = [{"step": 1, "tokens": 10, "seconds": 1.0}, {"step": 1, f"valid/{LM}": 2.0}]
        write(here / str(cell.pretrain), "metrics.jsonl", lines)
        for (name,) in cell.tuned["toy"]:
            write(here / name, "metrics.jsonl", [{"step": 4, "seconds": 2.0}])
            write(here / name, "result.json", {"metrics": {"dev": {"accuracy": 0.6}}})
            write(here / name, "baselines.json", simple)
            (here / name / "run/predictions").mkdir()
            guesses = [{"gold": gold, "guess": "a" if constant else gold} for gold in "ab"]
            write(here / name, "predictions/dev.jsonl", guesses)
    (note,) = (line for line in Unlearned(results(plan, here)).list_notes() if "† toy" in line)
    assert said in note
    assert ("learned nothing" in note) is constant


def test_seeds_and_drops_after_a_first_table_are_named(planned: Planned, here: Path) -> None:
    """Writing the same table again is no other look; the drop of a metric stays known."""

    def make(metrics: list[str], seeds: int) -> list[str]:
        plan = planned(
            f"seeds={[*range(seeds)]}",
            finetune={"tasks": {}},
            metrics={name: {"of": "pretrain", "key": f"{name}/mlm"} for name in metrics},
        )
        for place, cell in enumerate(plan.cells):
            end = {"step": 1, f"valid/{LM}": 2.0 + place**2 / 9, "valid/acc/mlm": place**2 / 90}
            lines = [{"step": 1, "tokens": 10, "seconds": 1.0}, end]
            write(here / str(cell.pretrain), "metrics.jsonl", lines)
        notes: list[str] = write_table(plan.study, results(plan, here), here)["notes"]
        return [note for note in notes if "added" in note or "dropped" in note]

    assert make(["loss", "acc"], 2) == make(["loss", "acc"], 2) == []
    (added,) = make(["loss", "acc"], 3)
    assert added.startswith("seeds were added after a first table of 2, which had p-values")
    assert make(["loss", "acc"], 3) == [added]
    _, dropped = make(["loss"], 3)
    assert dropped.startswith("acc had results in an earlier table and is dropped now")
    assert dropped.endswith("corrected for 1 comparison, not for 2")
    assert make(["loss"], 3) == [added, dropped]


@pytest.mark.parametrize(("accuracies", "said"), [("111", True), ("112", False), ("11", False)])
def test_one_accuracy_of_all_seeds_is_named(
    planned: Planned, here: Path, accuracies: str, said: bool
) -> None:
    seeds = f"seeds={[*range(len(accuracies))]}"
    plan = planned(seeds, finetune={"tasks": {}}, metrics={"a": {"of": "pretrain", "key": LM}})
    for cell in plan.cells:
        own = int(accuracies[cell.seed]) / 10 if cell.arm == "fast" else cell.seed / 10
        end = {"step": 1, f"valid/{LM}": 2.0, "valid/acc/mlm": own}
        lines = [{"step": 1, "tokens": 10, "seconds": 1.0}, end]
        write(here / str(cell.pretrain), "metrics.jsonl", lines)
    notes = [*Unlearned(results(plan, here)).list_notes()]
    assert [note[:27] for note in notes] == (["fast: acc/mlm is 0.1 in all"] if said else [])


def test_directions_after_the_first_results_are_marked(planned: Planned, here: Path) -> None:
    """Only the first results fix them; who takes a change back has none, and new arms are free."""

    def make(**directions: dict[str, str]) -> tuple[list[str], dict[Any, str]]:
        plan = planned(
            finetune={"tasks": {}},
            metrics={
                name: {"of": "pretrain", "key": f"{name}/mlm", "expect": expect}
                for name, expect in directions.items()
            },
        )
        for place, cell in enumerate(plan.cells):
            end = {"step": 1, f"valid/{LM}": 2.0 + place**2 / 9, "valid/acc/mlm": place**2 / 90}
            lines = [{"step": 1, "tokens": 10, "seconds": 1.0}, end]
            write(here / str(cell.pretrain), "metrics.jsonl", lines)
        assert keep_first(plan.study, [{"difference": None}], here / "none.json") == {}
        table = write_table(plan.study, results(plan, here), here)
        marks = {row["metric"]: row["late_mark"] for row in table["rows"] if row["arm"] == "fast"}
        return [note for note in table["notes"] if "first results" in note], marks

    assert make(loss={"fast": "lower"}) == make(loss={"fast": "lower"}) == ([], {"loss": ""})
    (changed,), marks = make(loss={"fast": "higher"})
    assert changed.startswith("§ loss: fast: lower before, higher now. Directions changed after")
    assert marks == {"loss": "§"}
    assert make(loss={"fast": "lower"}) == ([], {"loss": ""})
    (dropped,), marks = make(loss={})
    assert "fast: lower before, none now" in dropped
    assert marks == {"loss": ""}
    (late, added), marks = make(loss={"fast": "lower"}, acc={"fast": "higher"})
    assert late.startswith("§ acc: fast: no direction before, higher now")
    assert added.startswith("acc: added after the first results (")
    assert marks == {"loss": "", "acc": "§"}
    first = read_json(here / "table.json")
    del first["first"]  # as tables of older versions
    write_json(here / "table.json", first)
    assert make(loss={"fast": "higher"}, acc={"fast": "higher"})[1] == {"loss": "§", "acc": ""}


def test_a_loss_stands_next_to_that_of_frequencies(planned: Planned, here: Path) -> None:
    metrics = {
        name: {"of": "pretrain", "key": LM, "exp": name == "ppl"} for name in ("loss", "ppl")
    }
    plan = planned(finetune={"tasks": {}}, metrics=metrics)
    for cell in plan.cells:
        end = {"step": 1, f"valid/{LM}": 2.0, "valid/unigram/mlm": 3.0, "valid/bigram/mlm": 1.5}
        lines = [{"step": 1, "tokens": 10, "seconds": 1.0}, end]
        write(here / str(cell.pretrain), "metrics.jsonl", lines)
    table = write_table(plan.study, results(plan, here), here)
    assert table["floors"]["loss"] == {"unigram": 3.0, "bigram": 1.5}
    assert table["floors"]["ppl"]["unigram"] == pytest.approx(math.exp(3.0))
    assert "Without pretraining: unigram: 3; bigram: 1.5." in table["about"]["loss"]
