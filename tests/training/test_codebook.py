"""Weights that share values: gradients against a loop, and runs that lose nothing when packed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.models.base import Backbone, Model
from plmctl.nn.tables import TokenTable
from plmctl.storage.reading import read_tensors
from plmctl.training.stabilisers.base import Beginning
from plmctl.training.stabilisers.codebook import Codebook
from tests.command import plmctl

SMALL = [
    *("task=classification", "train.precision=fp32", "train.threads=1", "train.batch_size=8"),
    *("train.epochs=null", "train.steps=6", "task.max_length=32", "optim.lr=1e-2"),
    *("checkpoint=null", "size=tiny", "size.width=32", "size.inner_width=64", "tokenizer=char"),
]


class Two(Backbone):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.map = TokenTable(vocab_size=40, width=32), nn.Linear(32, 40)
        self.small = nn.Linear(4, 4)


def begun(bits: int, *, zeros: bool = False, begin_at: float = 0.0) -> tuple[Codebook, Any]:
    torch.manual_seed(0)
    model: Any = Model(backbone=Two(), heads={})
    if zeros:
        model.backbone.map.weight.data.view(-1)[::3] = 0
    part = Codebook(bits=bits, begin_at=begin_at)
    task: Any = None
    part.begin(Beginning(model, task, frozenset(), 0, False, lambda: iter(())))
    return part, model


@pytest.mark.parametrize("zeros", [False, True])
def test_an_entry_learns_from_all_its_weights(zeros: bool) -> None:
    part, model = begun(3, zeros=zeros)
    weight = model.backbone.map.weight
    assert set(part.names) == {"backbone.table.weight", "backbone.map.weight"}
    pull = torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in (1, 2):  # the first of them finds the codes, with its gradient
        first = weight.detach().clone()
        (weight * pull).sum().backward()
        part.before_step(model, optimizer, step / 2)
        if step == 1:
            first = weight.detach().clone()
            part.after_step(model, 0)
            assert bool((weight == first).all())  # a mean of equal numbers is that number
        optimizer.step()
        part.after_step(model, step)
        optimizer.zero_grad()
        codes = part.codes.of("backbone.map.weight")
        for entry in range(8):
            own = codes == entry
            value = first[own].unique()
            assert len(value) <= 1
            moved = value - 0.01 * pull[own].mean() if float(value.sum()) or not zeros else value
            torch.testing.assert_close(weight.detach()[own], moved.expand(int(own.sum())))
        assert bool((weight.detach()[first == 0] == 0).all())


def fit(begin_at: float) -> float:
    """The loss of new weights that learn a map, in the end; that of no map is 1."""
    part, model = begun(4, begin_at=begin_at)
    drawn = torch.Generator().manual_seed(1)
    inputs, wanted = torch.randn(200, 32, generator=drawn), torch.randn(32, 40, generator=drawn)
    aims = inputs @ wanted
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(1, 101):
        loss = (model.backbone.map(inputs) - aims).square().mean()
        loss.backward()
        part.before_step(model, optimizer, step / 100)
        optimizer.step()
        part.after_step(model, step)
        optimizer.zero_grad()
    assert len(model.backbone.map.weight.unique()) <= 16
    with torch.no_grad():
        return float((model.backbone.map(inputs) - aims).square().mean() / aims.square().mean())


def test_new_weights_learn_before_they_have_codes() -> None:
    """Codes of weights at random leave 16 numbers to learn, too few for any map."""
    assert fit(begin_at=0.7) < 0.05
    assert fit(begin_at=0) > 0.8


def test_codes_and_their_time_are_saved() -> None:
    part, model = begun(3, begin_at=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    part.before_step(model, optimizer, 0.5)
    assert part.unfinished
    early = {name: tensor.clone() for name, tensor in part.state_dict().items()}
    part.before_step(model, optimizer, 0.6)
    assert not part.unfinished
    codes = part.codes.of("backbone.map.weight").clone()
    for state, unfinished in ((early, True), (part.state_dict(), False)):
        other, _ = begun(3, begin_at=0.5)
        other.load_state_dict(state)
        assert other.unfinished is unfinished
        assert bool((other.codes.of("backbone.map.weight") == codes).all()) is not unfinished


def test_spare_rows_of_tables_stay_0_whatever_the_optimizer_does() -> None:
    part, model = begun(2)
    table = model.backbone.table.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for step in range(3):
        (table[:40].sum(1) * torch.arange(40)).sum().backward()
        part.before_step(model, optimizer, 0.5)
        optimizer.step()
        optimizer.zero_grad()
        part.after_step(model, step)
        assert len(table[:40].unique()) <= 4
        assert bool((table[40:] == 0).all())


def test_a_model_without_large_matrices_is_refused() -> None:
    part, model = begun(3)
    model.requires_grad_(False)
    task: Any = None
    given = Beginning(model, task, frozenset(), 0, False, lambda: iter(()))
    with pytest.raises(ConfigError, match="trains a matrix of 1024 numbers or more"):
        part.begin(given)


def test_a_run_goes_on_bit_for_bit_and_is_packed_without_an_error(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        lines = [f"a {'fine' if n % 2 else 'dull'} film\t{n % 2}" for n in range(24)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    whole, half, packed = tmp_path / "whole", tmp_path / "half", tmp_path / "packed"
    early = "stabiliser.codebook.begin_at=0.2"  # the half run has codes
    own = ("stabiliser=[codebook]", early, "train.save_every=3", "train.keep_best=false")
    plmctl(
        "finetune", *SMALL, *own, f"task.path={tmp_path}", f"run.dir={whole}", "train.keep_last=9"
    )
    shutil.copytree(whole, half)
    shutil.rmtree(half / "checkpoints/step-6")
    plmctl("finetune", "--resume", f"run.dir={half}")
    one, other = (
        read_tensors(run / "checkpoints/step-6/model.safetensors") for run in (whole, half)
    )
    assert all(bool((one[n] == other[n]).all()) for n in one)
    plmctl("convert", str(whole), "--bits", "4", "--out", str(packed))
    small = packed / "model.safetensors"
    full = whole / "checkpoints/step-6/model.safetensors"
    assert small.stat().st_size < full.stat().st_size / 3
    found = read_tensors(small)
    assert set(found) == set(one)
    assert all(bool((found[n] == one[n]).all()) for n in one)
    same = ("task=classification", f"task.path={tmp_path}", f"out={tmp_path / 'scores'}")
    plmctl("eval", f"checkpoint={packed}", *same)
    again = tmp_path / "again"
    words = [word for word in SMALL if not word.startswith(("checkpoint", "size", "tokenizer"))]
    plmctl("finetune", *words, f"checkpoint={packed}", f"task.path={tmp_path}", f"run.dir={again}")
    said = plmctl("convert", str(whole), "--bits", "4", "--to", "hf", "--out", "x", code=2)
    assert "--to hf has no layout for --bits" in said
    assert "--group is of --bits" in plmctl(
        "convert", str(whole), "--group", "32", "--out", "x", code=2
    )
