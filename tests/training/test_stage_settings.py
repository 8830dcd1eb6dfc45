"""What a stage has of its own besides data: its pattern, its rate and its schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.window import Window
from plmctl.core.errors import ConfigError
from plmctl.objectives.base import Output, Term
from plmctl.training.budget import Budget
from plmctl.training.freezing import find_refitted
from plmctl.training.log import read_metrics
from plmctl.training.optim.schedule import Constant, Polynomial
from plmctl.training.stages import Stage, describe_empty_stages, share_of_stage
from tests.training.test_resume import straight_and_resumed
from tests.training.toy import (
    ToyBackbone,
    ToyBatches,
    ToyObjective,
    curve,
    make_trainer,
    same,
    weights,
)


class Seeing(ToyBackbone):
    """Adds the mean of the tokens that the pattern lets a token see."""

    def __init__(self, dropout: float) -> None:
        super().__init__(dropout)
        self.pattern: Pattern = Full()

    def set_pattern(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def encode(self, x, batch, state=None, record=frozenset()):
        seen = self.pattern.dense(batch.text)
        if seen is not None:
            x = seen[0, 0].to(x.dtype) @ x
        return super().encode(x, batch)


def stage(share: float, **own: object) -> Stage:
    return Stage(batches=ToyBatches, share=share, **own)


def rates(folder: Path) -> list[float]:
    return [record["lr"] for record in read_metrics(folder / "metrics.jsonl") if "lr" in record]


def test_a_run_ends_early_in_its_last_stage_alone(tmp_path: Path) -> None:
    """Validations without a new best count from update 6 on, the first one of the last stage."""
    trainer = make_trainer(
        tmp_path,
        stages=[stage(0.5), stage(0.5)],
        evaluate=lambda model, progress: {"loss": 1.0},
        settings={"eval_every": 1, "keep_best": "loss", "patience": 2},
    )
    assert trainer.fit().progress.step == 7


def test_a_stage_has_a_schedule_and_a_rate_of_its_own(tmp_path: Path) -> None:
    """A warm-up over 2 updates in each stage, and half the rate in the second."""
    warm = Constant(warmup_steps=2)
    stages = [stage(0.5, schedule=warm), stage(0.5, schedule=warm, rate=0.5)]
    make_trainer(tmp_path, steps=8, stages=stages, settings={"log_every": 1}).fit()
    wanted = [0.005, 0.01, 0.01, 0.01, 0.0025, 0.005, 0.005, 0.005]
    assert rates(tmp_path) == pytest.approx(wanted)


def test_the_limit_of_a_warm_up_counts_the_updates_of_the_stage(tmp_path: Path) -> None:
    warm = Constant(warmup_steps=1000, warmup_limit=0.5)
    stages = [stage(0.75), stage(0.25, schedule=warm)]
    make_trainer(tmp_path, steps=16, stages=stages, settings={"log_every": 1}).fit()
    assert rates(tmp_path)[12:] == pytest.approx([0.005, 0.01, 0.01, 0.01])


def test_without_its_own_the_schedule_of_the_run_goes_on(tmp_path: Path) -> None:
    alone, staged = tmp_path / "alone", tmp_path / "staged"
    make_trainer(alone, steps=8, settings={"log_every": 1}).fit()
    stages = [stage(0.5), stage(0.5, rate=2.0)]
    make_trainer(staged, steps=8, stages=stages, settings={"log_every": 1}).fit()
    factors = [b / a for a, b in zip(rates(alone), rates(staged), strict=True)]
    assert factors == pytest.approx([1.0] * 4 + [2.0] * 4)


def test_stages_of_a_run_measured_in_tokens(tmp_path: Path) -> None:
    """8 rows of 6 tokens an update: 8 updates, of which the second stage has 4."""
    stages = [stage(0.5), stage(0.5, schedule=Constant(warmup_share=0.5))]
    budget = Budget(tokens=8 * 48)
    make_trainer(tmp_path, budget=budget, stages=stages, settings={"log_every": 1}).fit()
    assert rates(tmp_path)[4:] == pytest.approx([0.005, 0.01, 0.01, 0.01])


def test_the_share_of_a_stage() -> None:
    stages = [stage(0.2), stage(0.3), stage(0.5)]
    found = [share_of_stage(stages, 1, done) for done in (0.1, 0.2, 0.35, 0.5, 0.9)]
    assert found == pytest.approx([0, 0, 0.5, 1, 1])


def seeing_stages() -> list[Stage]:
    warm = Constant(warmup_share=0.5)
    return [
        stage(0.3, pattern=Window(reach=0), schedule=warm),
        stage(0.7, pattern=Window(reach=2), schedule=warm, rate=0.5),
    ]


def test_stages_without_an_update_are_named() -> None:
    stages = [stage(0.5), stage(0.46), stage(0.03), stage(0.01)]
    assert describe_empty_stages(stages, 40) == (
        "stage 4 of 4: no update, the share is too small (train.steps=100 gives every stage one)"
    )
    assert describe_empty_stages(stages, 3).startswith("stages 3, 4 of 4: no update")
    assert not describe_empty_stages(stages, 100)
    assert not describe_empty_stages(stages, None)  # of tokens or minutes


def test_tokens_see_by_the_pattern_of_the_stage(tmp_path: Path) -> None:
    """The seen patterns, and the weights: those of two runs with one pattern each."""
    found: list[Pattern] = []
    trainer = make_trainer(tmp_path / "both", steps=9, stages=seeing_stages(), backbone=Seeing)
    trainer.objective.after_step = lambda model, step: found.append(model.backbone.pattern)
    trainer.fit()
    assert [pattern.reach().back for pattern in found] == [0] * 3 + [2] * 6
    wide = [stage(0.3, pattern=Window(reach=2)), stage(0.7)]
    other = make_trainer(tmp_path / "wide", steps=9, stages=wide, backbone=Seeing)
    other.fit()
    assert not same(weights(trainer), weights(other))


def test_resume_within_a_stage_is_bit_for_bit(tmp_path: Path) -> None:
    """Stopped after update 5 of 9, the second of a stage of 6 whose warm-up takes 3."""
    straight, resumed = straight_and_resumed(tmp_path, stages=seeing_stages(), backbone=Seeing)
    assert resumed.progress.stage == 1
    assert resumed.progress.before_stage == 3
    assert resumed.model.backbone.pattern.reach().back == 2
    assert same(weights(straight), weights(resumed))
    assert curve(tmp_path / "a") == curve(tmp_path / "b")


def test_another_pattern_begins_a_new_search_for_the_best(tmp_path: Path) -> None:
    """Losses under another pattern do not compare: the best checkpoint is one of the last stage."""
    losses = iter([3.0, 1.0, 2.0, 2.5])
    trainer = make_trainer(
        tmp_path,
        steps=4,
        stages=[stage(0.5, pattern=Window(reach=0)), stage(0.5, pattern=Full())],
        backbone=Seeing,
        evaluate=lambda model, progress: {"loss": next(losses)},
        settings={"eval_every": 1, "keep_best": "loss"},
    )
    result = trainer.fit()
    assert (result.progress.best, result.progress.best_step) == (2.0, 3)


class Halved(ToyObjective):
    """The toy without its second loss."""

    def forward(self, model, batch, state=None):
        out = super().forward(model, batch, state)
        terms = {"mlm": out.terms["mlm"], "row": Term(out.terms["row"].total, 0.0)}
        return Output(terms, out.logs, out.state)


def test_other_losses_are_only_logged(tmp_path: Path) -> None:
    """Updates as without the other loss, which is logged, and continues in the second stage."""
    stages = [stage(0.5, losses=("mlm",)), stage(0.5)]
    one = make_trainer(tmp_path / "1", steps=8, stages=stages, settings={"log_every": 1})
    other = make_trainer(tmp_path / "2", steps=4, objective=Halved(), settings={"log_every": 1})
    found: list[dict] = []
    one.objective.after_step = lambda model, step: found.append(weights(one))
    other.schedule = one.schedule = Constant(warmup_steps=3)
    one.fit(), other.fit()
    own = weights(other)
    moved = [n for n in own if not n.startswith("heads.row")]
    assert all(torch.allclose(found[3][name], own[name], atol=1e-6) for name in moved)
    assert not all(torch.equal(found[3][name], found[7][name]) for name in own)
    records = read_metrics(tmp_path / "1" / "metrics.jsonl")
    assert all("loss/row" in record for record in records if "lr" in record)


class Following(ToyBackbone):
    """Counts how often it is refitted."""

    refits = 0

    def refit(self) -> None:
        self.refits += 1


def test_modules_are_refitted_once_when_a_stage_begins(tmp_path: Path) -> None:
    stages = [stage(0.3), stage(0.7, refit=("backbone",))]
    straight, resumed = straight_and_resumed(tmp_path, stages=stages, backbone=Following)
    assert straight.model.backbone.refits == 1
    assert resumed.model.backbone.refits == 0  # stopped within the second stage
    with pytest.raises(ConfigError, match="none: no part of this model follows"):
        find_refitted(ToyBackbone(0.0), ["backbone"])


def test_a_model_without_a_pattern_says_so() -> None:
    with pytest.raises(ConfigError, match="ToyBackbone, which keeps how it sees"):
        ToyBackbone(0.0).set_pattern(Full())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"steps": 20}, ["warm-up scaled down from 3 to 2 updates"]),
        ({"steps": 40}, []),
        ({"budget": Budget(tokens=900)}, ["warm-up scaled down from 3 to 2 updates"]),
        (
            {"steps": 20, "stages": [0.5, 0.5]},
            ["warm-up scaled down from 4 to 1 updates", "warm-up scaled down from 4 to 1 updates"],
        ),
    ],
)
def test_a_shortened_warm_up_is_said_in_every_stage_and_budget(
    settings: dict[str, Any], told: list[str], tmp_path: Path
) -> None:
    """Once: at the start, or where the number of updates is not known, when warm-up is over."""
    own = Constant(warmup_steps=4, warmup_limit=0.1)
    if "stages" in settings:
        stages = [stage(share, schedule=own) for share in settings["stages"]]
        settings = {**settings, "stages": stages}
    trainer = make_trainer(
        tmp_path, schedule=Polynomial(warmup_steps=3, warmup_limit=0.1), **settings
    )
    said: list[str] = []
    trainer.log.say = said.append
    trainer.fit()
    assert [line.partition(":")[0] for line in said if "warm-up" in line] == told
