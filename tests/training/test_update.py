"""One update: exact for any split, and honest about what is not finite."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from plmctl.core.errors import PlmctlError
from plmctl.objectives.base import Objective, Output, Term
from plmctl.training.budget import Budget
from plmctl.training.log import METRICS, Log, read_metrics
from plmctl.training.progress import Progress
from plmctl.training.stages import Stage
from tests.training.toy import (
    Recurrent,
    ToyBatches,
    ToyObjective,
    curve,
    make_batch,
    make_model,
    make_trainer,
    weights,
)


def test_gradient_is_the_sum_of_means_written_as_a_loop(tmp_path):
    trainer = make_trainer(tmp_path, dropout=0.0, rows=16, micro=4, settings={"clip": 0.0})
    micro_batches = next(ToyBatches(16, 4))
    counts = trainer.update.count(micro_batches, {})
    norm, _ = trainer.update.gradient(micro_batches, counts)
    found = {name: p.grad.double() for name, p in trainer.parameters}

    model, objective = make_model(0.0).double(), ToyObjective().double()
    losses, rows = [], []
    for key in range(16):
        output = objective(model, make_batch([key]))
        losses.append(output.terms["mlm"].total)
        rows.append(output.terms["row"].total)
    hidden = sum(1 + key % 3 for key in range(16))
    (sum(losses) / hidden + 0.5 * sum(rows) / 16).backward()
    named = [*model.named_parameters(), ("objective.scale", objective.scale)]
    for name, p in named:
        torch.testing.assert_close(found[name], p.grad, rtol=1e-4, atol=1e-6)
    assert float(norm) == pytest.approx(
        sum(float(p.grad.square().sum()) for _, p in named) ** 0.5, rel=1e-4
    )


def test_a_spare_batch_only_names_what_is_counted(tmp_path):
    trainer = make_trainer(tmp_path, dropout=0.0, rows=4, micro=4, settings={"clip": 0.0})
    update, batch = trainer.update, make_batch([0, 1, 2, 3])
    spare = replace(make_batch([5]), spare=True)
    assert update.count([spare], {}) == dict.fromkeys(update.count([batch], {}), 0)
    counts = update.count([batch, spare], {})
    assert counts == update.count([batch], {})
    norm, _ = update.gradient([spare], counts)
    assert float(norm) == 0
    assert all(p.grad is None for _, p in trainer.parameters)


def test_1x16_is_16x1(tmp_path):
    runs = []
    for micro in (16, 4, 1):
        trainer = make_trainer(tmp_path / str(micro), dropout=0.0, rows=16, micro=micro, steps=5)
        trainer.fit()
        runs.append((weights(trainer), curve(tmp_path / str(micro))))
    for other, lines in runs[1:]:
        for name, value in runs[0][0].items():
            torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-5)
        for a, b in zip(runs[0][1], lines, strict=True):
            assert a == pytest.approx(b, rel=1e-4)


def test_a_term_that_nothing_counts_is_left_out(tmp_path):
    class Empty(ToyObjective):
        def counts(self, batch):
            return {"mlm": batch.targets["mlm"].count, "row": 0}

    trainer = make_trainer(tmp_path, objective=Empty(), steps=2)
    before = weights(trainer)
    trainer.fit()
    after = weights(trainer)
    assert torch.equal(before["heads.row.weight"], after["heads.row.weight"])
    assert not torch.equal(before["heads.mlm.bias"], after["heads.mlm.bias"])
    assert all("loss/row" not in record for record in curve(tmp_path))


class Explodes(ToyObjective):
    def forward(self, model, batch, state=None):
        output = super().forward(model, batch, state)
        bad = bool((batch.key == -1).any())
        return Output(
            {
                name: Term(t.total * (float("nan") if bad else 1), t.weight)
                for name, t in output.terms.items()
            },
            output.logs,
        )

    def counts(self, batch):
        return super().counts(batch)


@pytest.fixture(autouse=True)
def _rows_of_minus_one(monkeypatch):
    from tests.training import toy

    real = toy.make_batch

    def fake(keys):
        batch = real([abs(k) for k in keys])
        object.__setattr__(batch, "key", torch.tensor(keys))
        return batch

    monkeypatch.setattr(toy, "make_batch", fake)


def test_a_step_that_is_not_finite_changes_nothing_and_is_logged_with_its_rows(tmp_path):
    trainer = make_trainer(tmp_path, objective=Explodes(), poison=(0, 3), steps=4)
    result = trainer.fit()
    assert (result.progress.step, result.progress.skipped, trainer.batches.place) == (4, 2, 6)
    events = [r for r in curve(tmp_path) if "event" in r]
    assert [r["rows"] for r in events] == [
        [-1, 1, 2, 3, 4, 5, 6, 7],
        [-1, 25, 26, 27, 28, 29, 30, 31],
    ]
    assert all(p.isfinite().all() for _, p in trainer.parameters)
    losses = [r["loss"] for r in curve(tmp_path) if "loss" in r]
    assert len(losses) == 3
    assert all(loss < 10 for loss in losses)


def test_too_many_bad_steps_end_the_run_and_name_the_last_good_checkpoint(tmp_path):
    trainer = make_trainer(
        tmp_path,
        objective=Explodes(),
        poison=tuple(range(2, 99)),
        settings={"max_bad_steps": 3, "save_every": 1},
    )
    with pytest.raises(PlmctlError, match=r"3 updates in a row after update 2.*checkpoints/step-2"):
        trainer.fit()


def test_budget_in_tokens_and_minutes(tmp_path):
    # 24 tokens an update
    trainer = make_trainer(tmp_path / "tokens", budget=Budget(tokens=100), rows=4)
    assert trainer.fit().progress.step == 5
    trainer = make_trainer(tmp_path / "minutes", budget=Budget(minutes=0.005))
    result = trainer.fit()
    assert 0.3 <= result.progress.seconds < 10
    assert trainer.progress.rate < 0.01 * 0.2  # the schedule has followed the time


@pytest.mark.parametrize(("took", "steps"), [(0.5, [*range(20, 210, 20)]), (15, [20, 200])])
def test_validation_leaves_the_time_of_a_run_to_training(took, steps, tmp_path, monkeypatch):
    """Updates of a second and validations of `took` seconds, by a clock that only they move."""
    clock, found, said = [0.0], [], []
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    class Batches(ToyBatches):
        def __next__(self):
            clock[0] += 1
            return super().__next__()

    def evaluate(model, progress):
        found.append(round(clock[0]))
        clock[0] += took
        return {}

    log = Log(quiet=True)
    log.say = lambda line, level=0: said.append(line)
    trainer = make_trainer(
        tmp_path,
        budget=Budget(minutes=200 / 60),
        stages=[Stage(batches=Batches)],
        evaluate=evaluate,
        log=log,
        settings={"eval_every": None, "eval_share": 0.1},
    )
    trainer.fit()
    assert [round(at, -1) for at in found] == steps
    lines = [line for line in said if "validation took" in line]
    assert len(lines) == (took == 15)
    assert not lines or "validation took 38% of the time so far" in lines[0]


def test_a_run_of_tokens_is_validated_and_saved_at_its_tenths(tmp_path):
    updates = []

    def evaluate(model, progress):
        updates.append(progress.step)
        return {}

    settings = {"eval_every": None, "save_every": None}
    trainer = make_trainer(
        tmp_path, budget=Budget(tokens=1000), rows=4, evaluate=evaluate, settings=settings
    )
    trainer.fit()
    # 24 tokens an update: the first one at or behind 100, 200, ... 1,000
    assert updates == [-(-100 * tenth // 24) for tenth in range(1, 11)]
    assert len(trainer.checkpoints.steps()) >= 1


def test_epochs_become_updates():
    assert Budget.of(epochs=2.5, updates_per_epoch=4) == Budget(steps=10)
    assert Budget.of(epochs=3, updates_per_epoch=10 / 3) == Budget(steps=10)
    assert Budget.of(epochs=3, updates_per_epoch=4, least_steps=50) == Budget(steps=50)
    assert Budget.of(epochs=3, updates_per_epoch=40, least_steps=50) == Budget(steps=120)
    assert Budget.of(steps=3, least_steps=50) == Budget(steps=3)  # it is said how many
    with pytest.raises(PlmctlError, match="exactly one of"):
        Budget.of(steps=1, tokens=2)
    with pytest.raises(PlmctlError, match=r"train.steps=0"):
        Budget.of(steps=0)


def test_total_of_a_token_run_is_seen_from_the_share():
    budget = Budget(tokens=1000)
    share = budget.done(Progress(step=10, tokens=100))
    assert budget.total(10, share) == pytest.approx(100)
    assert budget.done(Progress(tokens=2000)) == 1
    assert Budget(words=40).done(Progress(words=10, tokens=2000)) == 0.25


def test_first_and_last_step_are_always_logged_and_do_not_disturb_the_sums(tmp_path):
    make_trainer(tmp_path / "a", steps=7, settings={"log_every": 3}).fit()
    assert [r["step"] for r in curve(tmp_path / "a")] == [1, 3, 6, 7]
    make_trainer(tmp_path / "b", steps=7, settings={"log_every": 1}).fit()
    every = [r["loss"] for r in curve(tmp_path / "b")]
    assert curve(tmp_path / "a")[1]["loss"] == pytest.approx(sum(every[:3]) / 3, rel=1e-6)
    assert {"loss/mlm", "loss/row", "acc/mlm", "grad_norm", "lr", "tokens"} <= curve(
        tmp_path / "a"
    )[0].keys()


def test_clipping(tmp_path):
    trainer = make_trainer(tmp_path, settings={"clip": 1e-3})
    micro_batches = next(ToyBatches())
    norm, _ = trainer.update.gradient(micro_batches, trainer.update.count(micro_batches, {}))
    assert float(norm) > 1e-2
    trainer.update.apply([0.0] * len(trainer.group_names), float(norm))
    assert float(nn.utils.get_total_norm([p.grad for _, p in trainer.parameters])) == pytest.approx(
        1e-3, rel=1e-3
    )


def test_after_step_is_called_with_the_step(tmp_path):
    seen = []

    class Watches(ToyObjective):
        def after_step(self, model, step):
            seen.append(step)

    make_trainer(tmp_path, objective=Watches(), steps=3).fit()
    assert seen == [1, 2, 3]


def test_memory_flows_from_update_to_update_by_slot_without_its_graph(tmp_path):
    states = []

    class Watches(ToyObjective):
        def forward(self, model: nn.Module, batch, state=None):
            states.append(state["mean"].clone())
            assert not state["mean"].requires_grad
            return super().forward(model, batch, state)

    make_trainer(tmp_path, objective=Watches(), backbone=Recurrent, micro=4, steps=3).fit()
    assert [bool(s.any()) for s in states] == [False, False, True, True, True, True]
    assert not torch.equal(states[2], states[3])


def test_fp16_scaler_skips_and_recovers(tmp_path):
    trainer = make_trainer(tmp_path, precision="fp16", steps=4)
    trainer.precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    result = trainer.fit()
    assert result.progress.step == 4
    assert result.progress.skipped > 0
    saved = json.loads((tmp_path / "checkpoints/step-4/trainer.json").read_text())
    assert saved["scaler"]["scale"] < 2.0**20


def test_the_trainer_asks_objectives_only_through_their_interface():
    assert issubclass(ToyObjective, Objective)


def test_a_long_run_shows_about_thirty_lines_and_records_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    log = Log(tmp_path, tensorboard=False)
    for step in range(1, 1001):
        spaced = 1 < step < 1000
        log.record({"step": step, "loss/mlm": 1.0}, share=step / 1000, spaced=spaced)
        if step % 500 == 0:
            log.record({"step": step, "valid/loss/mlm": 1.0})
    log.close()
    assert len([*read_metrics(tmp_path / METRICS)]) == 1002
    lines = [each.getMessage() for each in caplog.records]
    assert 30 <= len(lines) <= 34
    assert sum("valid" in line for line in lines) == 2
    assert lines[0].startswith("step 1 ")
    assert lines[-2].startswith("step 1000 ")
