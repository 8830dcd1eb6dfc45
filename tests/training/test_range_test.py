"""The range test of learning rates, against slow definitions and scripted curves."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError, PlmctlError
from plmctl.training.optim.range_test import RangeTest, smooth, suggest
from plmctl.training.optim.schedule import Constant


def test_rates_rise_by_equal_factors() -> None:
    """lr_i = lr_min (lr_max / lr_min)^(i / N) with lr_max = 0.5 and 51 updates."""
    schedule = RangeTest(first=1e-6)
    for i in range(51):
        rate = 0.5 * schedule(i + 1, 51)
        assert rate == pytest.approx(5e-7 * (0.5 / 5e-7) ** (i / 50))
    assert schedule(1, 1) == 1e-6


def test_smoothing_is_a_mean_with_falling_weights() -> None:
    """Weight 0.9^(i - j) for the loss of update j."""
    losses = [3.0, 5.0, 1.0, 4.0, 4.0, 2.0]
    for i, smoothed in enumerate(smooth(losses, 0.9)):
        weights = [0.9 ** (i - j) for j in range(i + 1)]
        mean = sum(w * x for w, x in zip(weights, losses, strict=False)) / sum(weights)
        assert smoothed == pytest.approx(mean)


def test_suggestions_of_a_scripted_curve() -> None:
    """A loss that falls as a logistic curve in log10(rate) around 1e-3, least at 1e-2, and rises
    without bound behind it.
    """
    rates = [10 ** (-6 + i / 20) for i in range(121)]

    def loss(rate: float) -> float:
        place = math.log10(rate)
        falling = 5 - 4 / (1 + math.exp(-4 * (place + 3)))
        return falling if place <= -2 else falling + 20 * (place + 2) ** 2

    found = suggest(rates, [loss(rate) for rate in rates], smoothing=0.0)
    assert found is not None
    assert found.steepest == pytest.approx(1e-3)
    assert found.minimum == pytest.approx(1e-3, rel=0.2)
    best = min(map(loss, rates))
    assert found.diverged == next(r for r in rates if r > 1e-2 and loss(r) > 4 * best)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e9])
def test_what_comes_after_divergence_does_not_count(bad: float) -> None:
    rates = [10 ** (-4 + i / 10) for i in range(40)]
    losses = [4 - 0.1 * i for i in range(20)] + [bad] + [0.0] * 19
    found = suggest(rates, losses, smoothing=0.0)
    assert found is not None
    assert found.diverged == rates[20]
    assert found.minimum == rates[19] / 10


def test_few_points_suggest_nothing() -> None:
    assert suggest([1e-3] * 9, [1.0] * 9) is None
    assert "10 points" in RangeTest().conclude([(0.1, 2.0)])
    assert Constant().conclude(iter([(0.1, 2.0)])) == ""
    with pytest.raises(ConfigError, match="less than 1"):
        RangeTest(first=1.0)


def test_a_run_ends_with_a_suggestion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line comes from the curve that the run has logged; exploded weights are no mistake."""

    def explode(*_: object) -> list[str]:
        raise PlmctlError("this training has exploded")

    monkeypatch.setattr("plmctl.runs.pretraining.Floors.conclude", explode)
    line = "size=tiny size.width=16 size.inner_width=32 size.num_layers=1 format.max_length=16"
    run = "train.steps=12 train.log_every=1 train.eval_every=0 train.batch_size=4 optim.lr=1"
    words = [*line.split(), *run.split(), "schedule=range_test", "tokenizer=char"]
    text = tmp_path / "text.txt"
    text.write_text("a small house is near the big tree.\n" * 200, "utf-8")
    words += [f"run.dir={tmp_path / 'run'}", f"data.path={text}"]
    result = CliRunner().invoke(make_app(), ["pretrain", *words])
    assert result.exit_code == 0, result.output
    assert "range test: the loss fell fastest at optim.lr=" in result.output
    found = re.search(r"fastest at (optim.lr=\S+),", result.output)
    after = result.output.partition("next:\n")[2].splitlines()[0].partition("  #")[0].split()
    # the same run at this rate, without the settings of the test
    own = [word for word in words if not word.startswith(("schedule", "run.dir", "optim.lr"))]
    own = [word for word in own if word not in ("train.steps=12", "train.log_every=1")]
    assert found is not None
    assert after == ["plmctl", "pretrain", "bert", *own, found[1]]
    assert "finetune" not in result.output
