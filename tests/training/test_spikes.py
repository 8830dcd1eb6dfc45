"""Spikes: the rule by its definition, and runs as if the rows of a spike were absent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import median_abs_deviation

from plmctl.core.errors import PlmctlError
from plmctl.training.spikes import Spikes
from plmctl.training.stages import Stage
from plmctl.training.trainer import Trainer
from tests.training.test_resume import stop_at
from tests.training.toy import ToyBatches, ToyObjective, curve, make_trainer, same, weights


def test_the_rule_is_median_and_median_deviation() -> None:
    numbers = np.random.default_rng(0)
    spikes = Spikes(back=False, window=40, deviations=3.0)
    past: list[float] = []
    found = 0
    for value in [*numbers.gamma(2.0, size=200), 50.0]:
        last = past[-40:]
        bound = np.inf
        if len(last) >= 10:
            spread = max(median_abs_deviation(last, scale="normal"), 0.01 * np.median(last))
            bound = np.median(last) + 3 * spread
        reason = spikes.find({"loss": value})
        assert bool(reason) == (value > bound)
        if reason:
            found += 1
            assert f"loss {value:.4g}" in reason
            continue
        past.append(value)
        spikes.take({"loss": value})
    assert found > 3
    assert spikes.find({"gradient norm": 1e9}) == ""  # a number without a past
    spikes.clear()
    assert spikes.find({"loss": 1e9}) == ""


class Spiking(ToyObjective):
    """A loss of many times its size on rows with the key -1."""

    def forward(self, model: Any, batch: Any, state: Any = None) -> Any:
        output = super().forward(model, batch, state)
        factor = 100.0 if bool((batch.key == -1).any()) else 1.0
        term = output.terms["mlm"]
        output.terms["mlm"] = replace(term, total=term.total * factor)
        return output


class Without(ToyBatches):
    """The updates of ToyBatches, without some of them."""

    gone: tuple[int, ...] = ()

    def __next__(self) -> Any:
        while self.place in self.gone:
            self.place += 1
        return super().__next__()


def train(folder: Path, *, poison: tuple[int, ...], back: bool, **settings: Any) -> Trainer:
    spikes = Spikes(back=back, window=8, deviations=30.0)
    settings = {"log_every": 1, "save_every": 5, **settings}
    return make_trainer(
        folder,
        steps=14,
        dropout=0.0,
        objective=Spiking(),
        poison=poison,
        spikes=spikes,
        settings=settings,
    )


def train_without(folder: Path, gone: tuple[int, ...]) -> Trainer:
    def open_batches() -> Without:
        batches = Without()
        batches.gone = gone
        return batches

    stages = [Stage(batches=open_batches)]
    trainer = make_trainer(folder, steps=14, dropout=0.0, objective=Spiking(), stages=stages)
    trainer.fit()
    return trainer


@pytest.mark.parametrize(("back", "gone"), [(False, (8,)), (True, (5, 6, 7, 8))])
def test_the_run_is_one_without_those_rows(
    tmp_path: Path, back: bool, gone: tuple[int, ...]
) -> None:
    trainer = train(tmp_path / "spiked", poison=(8,), back=back)
    result = trainer.fit()
    assert (result.progress.step, result.progress.skipped) == (14, 1)
    assert same(weights(trainer), weights(train_without(tmp_path / "clean", gone)))
    (event,) = [record for record in curve(tmp_path / "spiked") if "event" in record]
    assert event["rows"][0] == -1
    assert event["step"] == (5 if back else 8)
    assert "loss" in event["event"]
    assert ("in update 9, went back and left 4 updates out" in event["event"]) == back
    steps = [record["step"] for record in curve(tmp_path / "spiked") if "event" not in record]
    assert steps == list(range(1, 15))  # the curve is that of the weights
    # without the setting, the spike is trained
    plain = make_trainer(
        tmp_path / "plain", steps=14, dropout=0.0, objective=Spiking(), poison=(8,)
    )
    assert plain.fit().progress.skipped == 0
    assert not same(weights(trainer), weights(plain))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("stop", [7, 11])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, back: bool, stop: int) -> None:
    """Before the spike and behind it; the window of the numbers is in the checkpoint."""
    straight = train(tmp_path / "a", poison=(8, 10), back=back)
    straight.fit()
    stopped = stop_at(train(tmp_path / "b", poison=(8, 10), back=back), stop)
    assert stopped.exit_code
    torch.manual_seed(99)
    resumed = train(tmp_path / "b", poison=(8, 10), back=back)
    resumed.resume(stopped.checkpoint)
    resumed.fit()
    assert straight.progress.skipped == 2
    if not back:  # a stop saves, so that the run goes back to another checkpoint
        assert same(weights(straight), weights(resumed))
        assert curve(tmp_path / "a") == curve(tmp_path / "b")


def test_a_kill_after_going_back_changes_nothing(tmp_path: Path) -> None:
    straight = train(tmp_path / "a", poison=(8,), back=True)
    straight.fit()
    killed = train(tmp_path / "b", poison=(8,), back=True)
    real = killed.objective.after_step

    def after_step(model: Any, step: int) -> None:
        real(model, step)
        if killed.progress.skipped and step == 7:
            raise RuntimeError("killed")

    killed.objective.after_step = after_step  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="killed"):
        killed.fit()
    resumed = train(tmp_path / "b", poison=(8,), back=True)
    newest = resumed.checkpoints.newest()
    assert newest is not None
    assert newest.name == "step-5"
    resumed.resume(newest)
    resumed.log.go_back(5)
    resumed.fit()
    assert same(weights(straight), weights(resumed))
    assert curve(tmp_path / "a") == curve(tmp_path / "b")  # the event once


def test_without_a_checkpoint_the_update_alone_is_left_out(tmp_path: Path) -> None:
    trainer = train(tmp_path / "spiked", poison=(3,), back=True)
    trainer.fit()
    assert same(weights(trainer), weights(train_without(tmp_path / "clean", (3,))))


def test_spikes_without_end_stop_the_run(tmp_path: Path) -> None:
    for back in (False, True):
        trainer = train(
            tmp_path / str(back), poison=tuple(range(8, 99)), back=back, max_bad_steps=3
        )
        with pytest.raises(PlmctlError, match=r"far above its median .* in 3 updates in a row"):
            trainer.fit()
