"""Calibration: the error by hand, the temperature by a search of all, thresholds, and what is
kept in a checkpoint.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plmctl.artifacts.kept_decision import read_decision, write_decision
from plmctl.core.errors import ConfigError, UsageError
from plmctl.tasks.answers.label_sets import SetAnswer
from plmctl.tasks.calibration import (
    LabelDecision,
    apply_decision,
    ask_sure,
    describe_answered,
    fit_decision,
    fit_sure,
    measure_answered,
    measure_calibration,
    measure_loss,
)
from plmctl.tasks.fitted_rows import FittedRows
from plmctl.tasks.intervals import wilson
from plmctl.tasks.record import Example
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.labels import LabelScores
from plmctl.tasks.scores.metrics import is_larger_better
from plmctl.use.calibrating import (
    WORSE,
    calibrate,
    decide_again,
    describe_calibration,
    describe_loss,
    warn_of_fit,
)

DEV = FittedRows("dev")


def task(**more: Any) -> Any:
    def score(rows: Any) -> dict[str, float]:
        gold, guess = [row["gold"] for row in rows], [row["guess"] for row in rows]
        return {"f1": metrics.f1(gold, guess, positive="yes")}

    scores = LabelScores(positive="yes")
    known = {"name": "x", "metrics": ["f1"], "scores": scores}
    known |= {
        "answer": None,
        "score": score,
        "directions": SimpleNamespace(larger=is_larger_better),
    }
    return SimpleNamespace(**{**known, **more})


def row(gold: str, p: float) -> dict[str, Any]:
    """A prediction that gives "yes" the probability p."""
    guess = "yes" if p > 0.5 else "no"
    return {"id": "1", "gold": gold, "guess": guess, "probabilities": {"no": 1 - p, "yes": p}}


def test_the_calibration_error_by_hand() -> None:
    rows = [row("yes", 0.9), row("yes", 0.92), row("no", 0.91), row("no", 0.3)]
    error, bins = measure_calibration(rows, bins=10)
    # (0.6, 0.7]: one guess of 0.7, right; (0.8, 0.9]: one of 0.9; (0.9, 1.0]: two, half of them
    assert error == pytest.approx((0.3 + 0.1 + 2 * abs(0.5 - 0.915)) / 4)
    assert [each.count for each in bins] == [1, 1, 2]


def test_the_temperature_has_the_least_loss() -> None:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(200):
        z = rng.normal(size=3)
        p = np.exp(z) / np.exp(z).sum()
        sharp = np.exp(2.5 * z) / np.exp(2.5 * z).sum()  # surer than it is right
        gold = "abc"[rng.choice(3, p=p)]
        known = dict(zip("abc", sharp.tolist(), strict=True))
        rows.append({"gold": gold, "guess": "a", "probabilities": known})

    def loss(temperature: float) -> float:
        own = apply_decision(task(), rows, LabelDecision(temperature))
        return -math.fsum(math.log(each["probabilities"][each["gold"]]) for each in own)

    found = fit_decision(task(), rows, ["temperature"], origin=DEV)
    best = min(np.arange(0.5, 6, 0.05), key=loss)
    assert found.temperature == pytest.approx(best, abs=0.05)
    assert 1.8 < found.temperature < 3.4
    assert found.threshold is None


def test_a_temperature_at_the_end_of_the_search_is_said_to_be_no_optimum() -> None:
    wrong, right = [row("no", 0.9)] * 3, [row("yes", 0.7)] * 3  # no temperature is warm enough
    warm = fit_decision(task(), wrong, ["temperature"], origin=DEV)
    assert warm.temperature == pytest.approx(20)
    assert warm.describe() == (
        "temperature 20 (the end of the search, no optimum: the guesses are hardly better than"
        " chance), fitted on dev"
    )
    cold = fit_decision(task(), right, ["temperature"], origin=DEV).describe()
    assert cold.startswith("temperature 0.05 (the end of the search, no optimum: all are right)")
    assert "end" not in LabelDecision.fitted_on("dev", 19.9).describe()
    folded = LabelDecision.fitted_on("dev").describe()  # of a folder by convert
    assert folded == "the temperature in its weights, fitted on dev"


def test_of_several_labels_each_has_its_odds() -> None:
    several = task(answer=SetAnswer())
    known = {"a": 0.8, "b": 0.1}
    rows = [{"gold": ["a"], "guess": ["a"], "probabilities": known}]
    (cool,) = apply_decision(several, rows, LabelDecision(2.0, 0.3))
    odds = math.sqrt(0.8 / 0.2)
    assert cool["probabilities"]["a"] == pytest.approx(odds / (1 + odds))
    assert cool["guess"] == ["a"]
    (low,) = apply_decision(several, rows, LabelDecision(2.0, 0.2))
    assert low["guess"] == ["a", "b"]


def test_the_threshold_has_the_best_score() -> None:
    rows = [row("yes", 0.4), row("yes", 0.35), row("no", 0.3), row("no", 0.1), row("yes", 0.8)]
    found = fit_decision(task(), rows, ["threshold"], origin=DEV)
    assert 0.3 < (found.threshold or 0) <= 0.35
    assert (found.label, found.temperature) == ("yes", 1.0)
    after = apply_decision(task(), rows, found)
    assert task().score(after)["f1"] == 1.0
    assert found.describe() == f"threshold {found.threshold:.4g} of yes, fitted on dev"
    sure = [row("yes", 0.9), row("no", 0.1)]  # any between does: the nearest to a half
    assert fit_decision(task(), sure, ["threshold"], origin=DEV).threshold == 0.5


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"gold": 1.0, "guess": 2.0}], "predicts no probabilities of labels"),
        ([{**row("yes", 0.3), "gold": None}], "these texts have no labels\n  fix: split=dev"),
        (
            [{"gold": 0, "guess": 0, "probabilities": [0.2, 0.8]}],
            r"chooses among 2 labels.*\n  fix: 'calibrate=\[temperature\]'",
        ),
    ],
)
def test_what_cannot_be_calibrated(rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit_decision(task(), rows, ["temperature", "threshold"], origin=DEV)


def test_a_decision_is_kept_in_the_checkpoint(tmp_path: Path) -> None:
    def loaded(published: bool = False) -> Any:
        return SimpleNamespace(source=SimpleNamespace(folder=tmp_path, published=published))

    fitted = ("temperature", "threshold")
    rows = [row("yes", 0.4), row("no", 0.05), row("no", 0.3), row("yes", 0.45)]
    assert decide_again(loaded(), task(), rows) == (rows, "")
    calibrate(loaded().source, task(), DEV, rows, fitted)
    after, words = decide_again(loaded(), task(), rows)
    assert [each["guess"] for each in after] == ["yes", "no", "no", "yes"]
    assert words.startswith("temperature ")
    assert "threshold" in words
    assert "without the temperature" in str(describe_calibration(rows, after))
    short, _ = decide_again(loaded(), task(), rows, 6)
    shown = [p for each in short for p in each["probabilities"].values()]
    assert shown == [float(f"{p:.6g}") for p in shown]
    assert shown == pytest.approx([p for e in after for p in e["probabilities"].values()], rel=1e-5)
    with pytest.raises(ConfigError, match="a published folder is not written to"):
        calibrate(loaded(published=True).source, task(), DEV, rows, fitted)


def test_the_loss_is_said_and_what_the_calibration_error_hides(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [row("yes", 0.9), row("no", 0.9)]  # right, and wrong
    after = apply_decision(task(), rows, LabelDecision(2.0))
    odds = math.sqrt(0.9 / 0.1)
    new = -(math.log(odds / (1 + odds)) + math.log(1 / (1 + odds))) / 2
    old = -(math.log(0.9) + math.log(0.1)) / 2
    assert str(describe_loss(rows, after)) == f"{new:.4f}, without the temperature {old:.4f}"
    with caplog.at_level("INFO", logger="plmctl"):
        warn_of_fit(rows, after, "f1")
    assert "fitted to 2 examples, which say little of others" in caplog.text
    assert "rises" not in caplog.text  # half of the guesses are right, and they became less sure
    right = [row("yes", 0.9)] * 100
    with caplog.at_level("INFO", logger="plmctl"):
        warn_of_fit(right, apply_decision(task(), right, LabelDecision(2.0)), "f1")
    assert "the calibration error rises from 0.1000 to 0.2500" in caplog.text
    worse = describe_calibration(right, apply_decision(task(), right, LabelDecision(2.0)))
    assert str(worse) == f"0.2500, without the temperature 0.1000; {WORSE}"
    assert WORSE not in str(describe_calibration(rows, after))
    assert caplog.text.count("say little") == 1


def test_the_loss_of_several_labels_is_that_of_each() -> None:
    rows: list[dict[str, Any]] = [
        {"gold": ["a"], "guess": [], "probabilities": {"a": 0.4, "b": 0.1}}
    ]
    assert str(describe_loss(rows, rows)) == f"{-math.log(0.4) - math.log(0.9):.4f}"


def test_the_least_sure_answer_keeps_most_rows_at_the_wished_accuracy() -> None:
    """Risk and coverage by the definition: every threshold is tried."""
    rng = np.random.default_rng(0)
    sure = rng.integers(50, 100, 300) / 100  # with many equal ones
    rows = [row("yes" if rng.random() < p else "no", p + 1e-9) for p in sure]
    for wanted in (0.8, 0.9, 0.95):
        found = fit_sure(rows, wanted)

        def answered(t: float) -> list[bool]:
            own = [each for each in rows if each["probabilities"][each["guess"]] >= t]
            return [each["gold"] == each["guess"] for each in own]

        tried = {each["probabilities"][each["guess"]] for each in rows}
        good = [t for t in tried if sum(answered(t)) >= wanted * len(answered(t))]
        assert found == min(good)
        decided = apply_decision(task(), rows, LabelDecision(sure=found))
        kept = [each for each in decided if not each.get("unsure")]
        assert len(kept) == len(answered(found))
        share, accuracy = len(kept) / 300, sum(answered(found)) / len(kept)
        known = measure_answered(decided)
        said = describe_answered(known, len(decided))
        assert said.startswith(f"{len(kept)} of 300 rows ({share:.1%}), accuracy {accuracy:.4f} ")
        low, high = wilson(sum(answered(found)), len(kept))
        assert known["interval"] == pytest.approx((low, high))
        assert f"(95% {low:.4f} to {high:.4f})" in said
        assert known["share"] == share
    alike = [{**row("yes", 0.9), "bundle": f"b{n // 2}"} for n in range(12)]
    assert measure_answered(alike)["interval"] == pytest.approx(wilson(6, 6))
    wrong = [row("no", 0.9), row("yes", 0.8)]
    with pytest.raises(UsageError, match=r"the best has 0.5000\n  fix: abstain=0.5"):
        fit_sure(wrong, 0.9)
    with pytest.raises(UsageError, match="one guess each"):
        fit_sure([{"gold": ["a"], "guess": ["a"], "probabilities": {"a": 0.9}}], 0.9)


def test_a_least_probability_that_a_user_names() -> None:
    rows = [row("yes", 0.9), row("no", 0.4)]
    fitted = LabelDecision.fitted_on("dev", 2.0, sure=0.99)
    assert ask_sure(fitted, None) is fitted
    asked = ask_sure(fitted, 0.7)
    assert asked is not None
    assert asked.describe() == "temperature 2, fitted on dev; unsure below 0.7, as asked"
    decided = apply_decision(task(), rows, asked)  # 0.9 is 0.75 with the temperature
    assert [each.get("unsure", False) for each in decided] == [False, True]
    bare = ask_sure(LabelDecision.fitted_on("dev", sure=0.9), 0.5)
    assert bare is not None
    assert bare.describe() == "unsure below 0.5, as asked"
    bare.check(task(), rows[0])
    for other in ({"guess": 1.5}, {"guess": ["a"], "probabilities": {"a": 0.9}}):
        with pytest.raises(ConfigError, match="no probability of one label"):
            bare.check(task(), other)


def test_abstaining_keeps_the_temperature_that_was_fitted(tmp_path: Path) -> None:
    rows = [row("yes", 0.9), row("no", 0.6), row("yes", 0.8), row("no", 0.2)]
    where = SimpleNamespace(source=SimpleNamespace(published=False, folder=tmp_path))
    calibrate(where.source, task(), DEV, rows, ["temperature"])  # type: ignore[arg-type]
    before = decide_again(where, task(), rows)[0]  # type: ignore[arg-type]
    calibrate(where.source, task(), DEV, rows, [], abstain=1.0)  # type: ignore[arg-type]
    after, said = decide_again(where, task(), rows)  # type: ignore[arg-type]
    assert [each["probabilities"] for each in after] == [each["probabilities"] for each in before]
    assert [each.get("unsure", False) for each in after] == [False, True, False, False]
    assert "unsure below" in said
    assert "temperature" in said


@pytest.fixture
def source(tmp_path: Path) -> Any:
    return SimpleNamespace(published=False, folder=tmp_path)


def rows_of(*shares: float) -> list[dict[str, Any]]:
    """Predictions, of which those with a p above 0.7 are right."""
    return [row("yes" if p > 0.7 else "no", p) for p in shares]


def test_each_part_keeps_the_rows_that_it_is_from(source: Any) -> None:
    """The bound of dev does not claim the temperature that is from test."""
    rows = rows_of(0.95, 0.9, 0.8, 0.6)
    calibrate(source, task(), FittedRows("test", 4, ("b.csv",)), rows, ["temperature"])
    calibrate(source, task(), FittedRows("dev", 4, ("a.csv",)), rows, [], abstain=1.0)
    kept = read_decision(source.folder)
    assert kept is not None
    assert kept.spell_origins() == {
        "temperature": "test (4 rows of b.csv)",
        "sure": "dev (4 rows of a.csv)",
    }
    said = kept.describe()
    assert said.startswith(f"temperature {kept.temperature:.4g}, fitted on test (4 rows of b.csv);")
    assert said.endswith("for accuracy 1, fitted on dev (4 rows of a.csv)")
    calibrate(source, task(), DEV, rows, ["threshold"])
    again = read_decision(source.folder)
    assert again is not None
    assert again.temperature == kept.temperature
    assert again.spell_origins()["temperature"] == "test (4 rows of b.csv)"


def test_a_new_temperature_keeps_the_goal_of_the_bound(
    source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rows = rows_of(0.95, 0.9, 0.8, 0.6)
    calibrate(source, task(), DEV, rows, ["threshold"], abstain=1.0)
    with caplog.at_level("INFO", logger="plmctl"):
        calibrate(source, task(), FittedRows("test"), rows, ["temperature"])
    kept = read_decision(source.folder)
    assert kept is not None
    own = replace(kept, sure=0.0)
    assert kept.sure == fit_sure(apply_decision(task(), rows, own), 1.0)
    assert kept.threshold is not None
    assert {*kept.spell_origins().values()} == {"test"}
    assert "threshold is fitted again" in caplog.text
    assert "fitted again for accuracy 1: it was 0." in caplog.text


@pytest.mark.parametrize(
    ("goal", "words"), [(0.0, "its goal is not known"), (0.9, "no threshold reaches this accuracy")]
)
def test_a_bound_is_never_lost_without_a_word(
    goal: float, words: str, source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kept = replace(LabelDecision.fitted_on("dev", sure=0.9), goal=goal)
    write_decision(kept, source.folder)
    with caplog.at_level("INFO", logger="plmctl"):
        calibrate(source, task(), DEV, [row("no", 0.9), row("yes", 0.8)], ["temperature"])
    found = read_decision(source.folder)
    assert found is not None
    assert (found.sure, found.goal) == (0.0, 0.0)
    assert (
        f"the bound of unsure, 0.9, is of the old probabilities, and goes: {words}" in caplog.text
    )
    assert f"abstain={goal or 0.95:g} split=dev" in caplog.text


def test_a_decision_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    old = {"temperature": 1.5, "threshold": None, "label": None, "fitted": "dev", "sure": 0.9}
    (tmp_path / "decision.json").write_text(json.dumps(old))
    known = read_decision(tmp_path)
    assert known == LabelDecision.fitted_on("dev", 1.5, sure=0.9)
    assert known.describe() == "temperature 1.5, unsure below 0.9, fitted on dev"


@pytest.mark.parametrize(("right", "verdict"), [(200, "met"), (150, "missed"), (190, "undecided")])
def test_the_goal_has_a_verdict_by_the_interval(right: int, verdict: str) -> None:
    rows = [row("yes" if number < right else "no", 0.9) for number in range(200)]
    low, high = wilson(right, 200)
    assert verdict == ("met" if low >= 0.95 else "missed" if high < 0.95 else "undecided")
    known = measure_answered(rows, 0.95)
    assert (known["goal"], known["verdict"]) == (0.95, verdict)
    assert f"goal 0.95 {verdict};" in describe_answered(known, 200)
    assert "verdict" not in measure_answered([{**each, "gold": None} for each in rows], 0.95)


def test_rows_are_known_again_by_their_texts() -> None:
    def examples(*numbers: int) -> list[Example]:
        return [Example("", {"text": f"text {n}"}, place=f"a/b.csv:{n}") for n in numbers]

    origin = FittedRows.of("dev", examples(*range(200)))
    assert origin.describe() == "dev (200 rows of b.csv)"
    assert origin.covers("other", examples(*range(200))[::-1])
    assert origin.covers("other", examples(*range(50)))
    assert origin.covers("other", examples(*range(600)))
    assert not origin.covers("dev", examples(*range(200, 400)))
    assert not origin.covers("dev", examples(*range(190, 400)))  # a few copies


def test_an_answer_to_a_text_that_is_not_read_is_unsure_where_there_is_a_bound() -> None:
    rows = [{**row("yes", 0.99), "unknown": 1.0}, row("no", 0.2), row("no", 0.8)]
    decided = apply_decision(task(), rows, LabelDecision(sure=0.75))
    assert [each.get("unsure", False) for each in decided] == [True, False, False]
    assert not any("unsure" in each for each in apply_decision(task(), rows, LabelDecision()))
    assert fit_sure(rows, 0.5) == 0.8  # without the first, one of two is right
    with pytest.raises(UsageError, match=r"the best has 0\.5000"):
        fit_sure(rows, 0.6)


def test_the_loss_is_of_rows_whose_label_the_model_has() -> None:
    rows = [row("yes", 0.9), {**row("yes", 0.9), "gold": "returns"}]
    assert measure_loss(rows) == pytest.approx(-math.log(0.9))
    fitted = fit_decision(task(), rows * 2, ["temperature"], origin=DEV)
    alone = fit_decision(task(), rows[:1] * 2, ["temperature"], origin=DEV)
    assert fitted.temperature == alone.temperature
