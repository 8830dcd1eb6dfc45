"""Stop and continue: bit for bit, and only with every piece of the state."""

import dataclasses
import os
import signal

import pytest
import torch

from plmctl.training import checkpoint
from plmctl.training.budget import Budget
from plmctl.training.evaluation import measure
from plmctl.training.log import cut_back
from plmctl.training.stages import Stage
from tests.training.toy import Recurrent, ToyBatches, curve, make_trainer, same, weights

N, K = 9, 5


def stop_at(trainer, step, number=signal.SIGTERM):
    """As if the signal came while `step` was computed."""
    real = trainer.objective.after_step

    def after_step(model, now):
        if now == step - 1:
            os.kill(os.getpid(), number)
        real(model, now)

    trainer.objective.after_step = after_step
    return trainer.fit()


def straight_and_resumed(tmp_path, **kwargs):
    a, b = tmp_path / "a", tmp_path / "b"
    straight = make_trainer(a, steps=N, **kwargs)
    straight.fit()
    result = stop_at(make_trainer(b, steps=N, **kwargs), K)
    assert (result.progress.step, result.exit_code) == (K, 143)
    torch.manual_seed(99)  # another process begins elsewhere
    resumed = make_trainer(b, steps=N, **kwargs)
    resumed.resume(result.checkpoint)
    assert resumed.fit().progress.step == N
    return straight, resumed


@pytest.mark.sampled(2)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("micro", [8, 2])
def test_bit_for_bit(tmp_path, precision, micro):
    straight, resumed = straight_and_resumed(tmp_path, precision=precision, micro=micro)
    assert same(weights(straight), weights(resumed))
    assert curve(tmp_path / "a") == curve(tmp_path / "b")


def test_a_run_in_parts_is_the_whole_run(tmp_path):
    """Paused after 2 and 5 of 9 updates: the schedule is that of all nine, and so are all bits."""
    straight = make_trainer(tmp_path / "a", steps=N)
    straight.fit()
    checkpoint, part = None, None
    for pause, end in ((2, 2), (5, 5), (0, N)):
        part = make_trainer(tmp_path / "b", steps=N, settings={"pause_at": pause})
        if checkpoint:
            part.resume(checkpoint)
        result = part.fit()
        assert (result.progress.step, result.exit_code) == (end, 0)
        checkpoint = result.checkpoint
        assert checkpoint.name == f"step-{end}"
    assert same(weights(straight), weights(part))
    again = make_trainer(tmp_path / "b", steps=N, settings={"pause_at": 5})
    again.resume(checkpoint)
    said: list[str] = []
    again.log.say = said.append
    assert again.fit().progress.step == N  # behind its pause, nothing is trained
    assert f"train.pause_at=5 lies behind this run, which has {N} updates" in said[-1]


def test_bit_for_bit_with_memory(tmp_path):
    straight, resumed = straight_and_resumed(tmp_path, backbone=Recurrent, micro=4)
    assert same(weights(straight), weights(resumed))
    assert curve(tmp_path / "a") == curve(tmp_path / "b")


def test_bit_for_bit_with_stages_that_freeze(tmp_path):
    stages = [
        Stage(batches=lambda: ToyBatches(8, 8), share=0.4, frozen=["backbone.block"]),
        Stage(batches=lambda: ToyBatches(4, 4), share=0.6, trainable=["backbone.*"]),
    ]
    straight, resumed = straight_and_resumed(tmp_path, stages=stages)
    assert resumed.progress.stage == 1
    assert same(weights(straight), weights(resumed))
    assert curve(tmp_path / "a") == curve(tmp_path / "b")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "withheld",
    ["model", "objective", "optimizer", "random", "reader", "progress", "meter", "memory"],
)
def test_with_one_piece_withheld_the_result_differs(tmp_path, monkeypatch, withheld):
    """The negative control of bit_for_bit: every piece is there for a reason."""
    real = checkpoint.read

    def read(folder, *world):
        saved = real(folder, *world)
        fresh = make_trainer(tmp_path / "fresh", steps=N, backbone=Recurrent)
        if withheld == "model":
            return dataclasses.replace(saved, model=checkpoint.tensors_of(fresh.model))
        if withheld == "objective":
            return dataclasses.replace(saved, objective=checkpoint.tensors_of(fresh.objective))
        if withheld == "optimizer":
            return dataclasses.replace(saved, optimizer={})
        if withheld == "random":
            return dataclasses.replace(
                saved, random={**saved.random, "0/cpu": torch.get_rng_state()}
            )
        if withheld == "memory":
            return dataclasses.replace(
                saved, random={k: v for k, v in saved.random.items() if "memory" not in k}
            )
        empty = {
            "reader": {"place": 0},
            "progress": {**saved.trainer["progress"], "step": 0},
            "meter": {},
        }
        return dataclasses.replace(saved, trainer={**saved.trainer, withheld: empty[withheld]})

    monkeypatch.setattr(checkpoint, "read", read)
    straight, resumed = straight_and_resumed(tmp_path, backbone=Recurrent)
    weights_agree = same(weights(straight), weights(resumed))
    assert weights_agree == (withheld == "meter")
    assert curve(tmp_path / "a") != curve(tmp_path / "b")


def test_eval_and_save_change_no_bit(tmp_path):
    plain = make_trainer(tmp_path / "a", steps=N)
    plain.fit()

    def evaluate(model, progress):
        assert not model.training
        torch.rand(5)
        batches = [batch for update in (next(ToyBatches(4, 2)),) for batch in update]
        return measure(model, busy.objective, batches, world=busy.world).means()

    busy = make_trainer(
        tmp_path / "b",
        steps=N,
        evaluate=evaluate,
        settings={"eval_every": 2, "save_every": 2, "keep_best": "loss"},
    )
    busy.fit()
    assert same(weights(plain), weights(busy))
    lines = curve(tmp_path / "b")
    assert [r for r in lines if "valid/loss" not in r] == curve(tmp_path / "a")
    assert [r["step"] for r in lines if "valid/loss" in r] == [2, 4, 6, 8, 9]
    best = min((r for r in lines if "valid/loss" in r), key=lambda r: r["valid/loss"])
    assert (busy.progress.best, busy.progress.best_step) == (
        pytest.approx(best["valid/loss"], rel=1e-6),
        best["step"],
    )
    assert best["step"] in busy.checkpoints.steps()


def test_of_equal_scores_the_lower_loss_is_kept(tmp_path):
    """BLEU is 0 for long when a model begins to write; where the loss says no more either, the
    first one stays.
    """
    losses = iter([3.0, 2.0, 2.5, 2.0])
    trainer = make_trainer(
        tmp_path,
        steps=8,
        evaluate=lambda model, progress: {"bleu": 0.0, "loss": next(losses)},
        settings={"eval_every": 2, "save_every": 2, "keep_best": "bleu", "best_is_largest": True},
    )
    trainer.fit()
    assert (trainer.progress.best, trainer.progress.best_loss, trainer.progress.best_step) == (
        0.0,
        2.0,
        4,
    )


def test_first_signal_saves_and_the_code_is_128_more(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    result = stop_at(make_trainer(tmp_path), 4, signal.SIGINT)
    assert (result.exit_code, result.progress.step, result.checkpoint.name) == (130, 4, "step-4")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("heard", "code", "steps"), [(signal.SIG_DFL, 129, 4), (signal.SIG_IGN, 0, 6)]
)
def test_a_closed_terminal_saves_too_but_not_under_nohup(tmp_path, heard, code, steps):
    # ignored, as nohup has it, also where these tests run under it
    before = signal.signal(signal.SIGHUP, heard)
    try:
        result = stop_at(make_trainer(tmp_path, steps=6), 4, signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (result.exit_code, result.progress.step) == (code, steps)


def test_a_finished_run_says_so(tmp_path, capsys):
    from plmctl.training.log import Log

    trainer = make_trainer(tmp_path, steps=3)
    done = trainer.fit()
    again = make_trainer(tmp_path, steps=3, log=Log())
    again.resume(done.checkpoint)
    result = again.fit()
    assert (result.exit_code, result.checkpoint) == (0, done.checkpoint)
    assert "finished after 3 updates" in capsys.readouterr().err


def test_a_run_can_be_made_longer(tmp_path):
    done = make_trainer(tmp_path, steps=3).fit()
    longer = make_trainer(tmp_path, budget=Budget(tokens=48 * 5))
    longer.resume(done.checkpoint)
    assert longer.fit().progress.step == 5


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    make_trainer(tmp_path, steps=9, settings={"log_every": 1, "save_every": 4}).fit()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "lo')  # a kill in the middle of a line
    cut_back(tmp_path, 4)
    assert [r["step"] for r in curve(tmp_path)] == [1, 2, 3, 4]
    cut_back(tmp_path, 0)
    assert curve(tmp_path) == []
