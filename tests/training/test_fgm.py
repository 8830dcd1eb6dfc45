"""FGM against its equations, written as a loop over rows; and what holds for every regulariser."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.training.regularisers.fgm import FastGradient
from plmctl.training.regularisers.freelb import FreeLargeBatch
from plmctl.training.regularisers.pgd import ProjectedGradient
from plmctl.training.regularisers.smart import Smart
from tests.training.regularised import (
    Asked,
    compare,
    find_gradient,
    learn,
    lose,
    make,
    make_micro_batches,
)
from tests.training.toy import curve, make_trainer, same, weights


def step_uphill(model: Any, vectors: Tensor, batch: Batch, epsilon: float) -> Tensor:
    """`r` of each row, as its own loop."""
    leaf = vectors.detach().clone().requires_grad_()
    gradient = torch.autograd.grad(lose(model, leaf, batch), leaf)[0]
    shift = torch.zeros_like(leaf)
    for row, own in enumerate(gradient):
        size = math.sqrt(sum(float(value) ** 2 for value in own.flatten()))
        shift[row] = epsilon * own / size
    return shift.detach()


def test_fgm_is_its_equations(tmp_path: Path, monkeypatch: Any) -> None:
    trainer = make(tmp_path, FastGradient(epsilon=0.7, weight=0.5))
    model = trainer.model
    steps = []

    def of_batch(vectors: Tensor, batch: Batch) -> Tensor:
        steps.append(step_uphill(model, vectors, batch, 0.7))
        return lose(model, vectors, batch) + 0.5 * lose(model, vectors + steps[-1], batch)

    expected = find_gradient(model, of_batch)
    found, shifts, _ = learn(trainer, monkeypatch)
    compare(found, expected)
    for (shift,), step in zip(shifts[1::2], steps, strict=True):
        torch.testing.assert_close(shift, step, rtol=1e-9, atol=1e-12)
        assert float(shift.flatten(1).norm(dim=1).max()) == pytest.approx(0.7)
    assert [float(shift.abs().max()) for (shift,) in shifts[::2]] == [0, 0]
    # what is logged is the loss of the text as it stands
    clean = find_logged(make(tmp_path / "plain", None))
    assert find_logged(trainer) == pytest.approx(clean)
    assert dict(clean)["loss/row"] > 0


def find_logged(trainer: Any) -> dict[str, float]:
    trainer.optimizer.zero_grad()
    sums: dict[str, float] = {}
    for name, total, _ in learn(trainer)[2]:
        sums[name] = sums.get(name, 0.0) + total
    return sums


def test_padding_stays_as_it_is(tmp_path: Path, monkeypatch: Any) -> None:
    _, shifts, _ = learn(make(tmp_path, FastGradient()), monkeypatch)
    for row, tokens in ((1, 5), (2, 4)):  # of the first micro-batch
        assert float(shifts[1][0][row, tokens:].abs().max()) == 0
        assert float(shifts[1][0][row, :tokens].abs().min()) > 0


def test_all_passes_drop_the_same_values_and_draw_as_much_as_one(
    tmp_path: Path, monkeypatch: Any
) -> None:
    masks: list[Tensor] = []
    states = []
    for regulariser in (FastGradient(), None):
        trainer = make(tmp_path / str(regulariser), regulariser, dropout=0.5)
        drop = trainer.model.backbone.block[2]
        drop.register_forward_hook(lambda module, args, out: masks.append(out.detach() == 0))
        torch.manual_seed(3)
        torch.randint(1 << 62, ())  # the seed of the regulariser's own draws
        if regulariser:
            torch.manual_seed(3)
        learn(trainer)
        states.append(torch.get_rng_state())
    first, again, second, again2, alone, _ = masks
    assert torch.equal(first, again)
    assert torch.equal(second, again2)
    assert torch.equal(first, alone)  # the first micro-batch is read as without
    assert bool(first.any())


def test_every_second_update_is_plain(tmp_path: Path, monkeypatch: Any) -> None:
    trainer = make_trainer(tmp_path, steps=4, dropout=0.0, regulariser=FastGradient(every=2))
    counted = []
    trainer.model.backbone.register_forward_hook(lambda *each: counted.append(1))
    trainer.fit()
    assert len(counted) == 2 + 1 + 2 + 1
    with pytest.raises(ConfigError, match="1 \\(each update\\) or more"):
        FastGradient(every=0)


def test_micro_batches_change_nothing(tmp_path: Path) -> None:
    runs = []
    for micro in (16, 4):
        folder = tmp_path / str(micro)
        trainer = make_trainer(
            folder, dropout=0.0, rows=16, micro=micro, steps=4, regulariser=FastGradient()
        )
        trainer.fit()
        runs.append(weights(trainer))
    for name, value in runs[0].items():
        torch.testing.assert_close(value, runs[1][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path, precision: str) -> None:
    how: dict[str, Any] = {"precision": precision, "micro": 4}
    whole = make_trainer(tmp_path / "whole", steps=6, regulariser=FastGradient(every=2), **how)
    whole.fit()
    half = make_trainer(tmp_path / "half", steps=3, regulariser=FastGradient(every=2), **how)
    folder = half.fit().checkpoint
    again = make_trainer(tmp_path / "half", steps=6, regulariser=FastGradient(every=2), **how)
    assert folder is not None
    again.resume(folder)
    again.fit()
    assert same(weights(whole), weights(again))
    assert len(curve(tmp_path / "whole")) > 1


def test_a_model_without_vectors_of_words_is_refused(tmp_path: Path) -> None:
    trainer = make(tmp_path, FastGradient())
    trainer.model.backbone.token_embedding = torch.nn.Embedding(3, 3)  # nothing reads it
    trainer.model.backbone.embed = lambda batch, state=None: torch.zeros(
        *batch.text.ids.shape, 8, dtype=torch.float64
    )
    with pytest.raises(ConfigError, match="looks up no vectors"):
        learn(trainer)


def test_relative_lengths_are_shares_of_the_row(tmp_path: Path, monkeypatch: Any) -> None:
    parts: dict[str, Any] = {
        "fgm": FastGradient(epsilon=0.2, relative=True),
        "freelb": FreeLargeBatch(steps=3, rate=0.2, radius=0.3, start=0.1, relative=True),
        "pgd": ProjectedGradient(steps=3, rate=0.2, radius=0.3, start=0.1, relative=True),
        "smart": Smart(question=Asked(), rate=0.3, radius=0.2, sigma=0.1, relative=True),
    }
    for name, part in parts.items():
        trainer = make(tmp_path / name, part)
        table = trainer.model.backbone.token_embedding.weight.detach()
        largest: list[dict[str, float]] = []
        passes = learn(trainer, monkeypatch)[1]
        for number, ((shift,), batch) in enumerate(
            (each, batch)
            for batch, own in zip(make_micro_batches(), halve(passes), strict=True)
            for each in own
        ):
            for row, tokens in enumerate(batch.text.length.tolist()):
                words = table[batch.text.ids[row, :tokens]].double()
                own = shift[row, :tokens]
                length, mean = float(own.norm() / words.norm()), words.square().mean().sqrt()
                largest.append(
                    {"pass": number, "length": length, "value": float(own.abs().max() / mean)}
                )
        monkeypatch.undo()
        lengths = [each["length"] for each in largest]
        if name == "fgm":
            assert sorted({round(length, 9) for length in lengths}) == [0, 0.2]
        elif name == "smart":
            assert max(each["value"] for each in largest) == pytest.approx(0.3, abs=0.1)
        else:
            first = [each["length"] for each in largest if each["pass"] == 0]
            assert 0 < min(first) <= max(first) < 0.1
            assert max(lengths) == pytest.approx(0.3)
    absolute = [learn(make(tmp_path / f"{r}", FastGradient(relative=r)))[0] for r in (False, True)]
    assert any(not torch.equal(absolute[0][name], absolute[1][name]) for name in absolute[0])


def halve(passes: list[list[Tensor]]) -> list[list[list[Tensor]]]:
    """The passes of each of the two micro-batches."""
    middle = len(passes) // 2
    return [passes[:middle], passes[middle:]]
