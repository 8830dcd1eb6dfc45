"""Quantisation-aware training against the integer computation, torch's own rounding, and loops."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.models.base import Backbone, Model
from plmctl.storage.reading import read_tensors
from plmctl.training.stabilisers.base import Beginning
from plmctl.training.stabilisers.quantised import Quantised
from plmctl.training.stabilisers.rounded import fake_round, find_scale, to_steps
from tests.command import plmctl

SMALL = [
    *("task=classification", "train.precision=fp32", "train.threads=1", "train.batch_size=8"),
    *("train.epochs=null", "train.steps=6", "task.max_length=32", "optim.lr=1e-2"),
    *("checkpoint=null", "size=tiny", "size.width=32", "size.inner_width=64", "tokenizer=char"),
]


class Two(Backbone):
    """A table, a map, and a map with the weights of the table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(7, 5), nn.Linear(5, 5)
        self.tied = nn.Linear(5, 7)
        self.tied.weight = self.table.weight

    def run(self, ids: Tensor) -> Tensor:
        return self.tied(torch.tanh(self.inner(self.table(ids))))


def begun(part: Any) -> Any:
    torch.manual_seed(0)
    model: Any = Model(backbone=Two(), heads={})
    task: Any = None
    part.begin(Beginning(model, task, frozenset(), 0, False, lambda: iter(())))
    return model


@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_is_that_of_torch(bits: int) -> None:
    x, most = 3 * torch.randn(500, generator=torch.Generator().manual_seed(0)), 2 ** (bits - 1) - 1
    scale = torch.tensor(2.0 / most)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    found = fake_round(ours, scale, bits)
    wanted = torch.fake_quantize_per_tensor_affine(theirs, float(scale), 0, -most, most)
    torch.testing.assert_close(found, wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    inside = x.abs() <= 2.0  # torch's range ends half a step later
    torch.testing.assert_close(ours.grad[inside], theirs.grad[inside])  # type: ignore[index]
    assert bool((ours.grad[~inside] == 0).all())  # type: ignore[index]
    assert float(find_scale(torch.zeros(()), bits)) == 1


def test_a_layer_is_the_integer_computation_to_one_step() -> None:
    """Whole numbers of 8 bits, sums and bias of 32, one scale at the end."""
    part = Quantised(bits=8, decay=0.9, freeze_at=1.0)
    model, draws = begun(part), torch.Generator().manual_seed(1)
    layer = model.backbone.inner
    for _ in range(3):  # ranges follow the inputs
        with part.reading(model):
            layer(torch.randn(40, 5, generator=draws))
    x = 2 * torch.randn(40, 5, generator=draws)  # some beyond the range
    part.exchange(model)
    found = layer(x)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    s_w = weight.abs().max() / 127
    s_x = part.ranges.of("backbone.inner.weight") / 127
    whole_w = to_steps(weight, s_w, 8).to(torch.int8)
    whole_x = to_steps(x, s_x, 8).to(torch.int8)
    whole_b = torch.round(bias / (s_x * s_w)).to(torch.int32)
    sums = torch.zeros(40, 5, dtype=torch.int32)
    for row in range(40):
        for column in range(5):
            products = whole_x[row].to(torch.int32) * whole_w[column].to(torch.int32)
            sums[row, column] = products.sum() + whole_b[column]
    step = float(s_x * s_w)
    assert float((found.detach() / step - sums).abs().max()) <= 1
    torch.testing.assert_close(whole_w * s_w, weight)  # the saved weights are whole steps


def test_ranges_are_moving_averages_until_they_are_frozen() -> None:
    part = Quantised(bits=8, decay=0.8, freeze_at=0.5)
    model, draws, wanted = begun(part), torch.Generator().manual_seed(1), 0.0
    for step in range(1, 9):
        x = step * torch.randn(6, 5, generator=draws)
        with part.reading(model):
            model.backbone.inner(x)
        part.before_step(model, None, step / 8)  # type: ignore[arg-type]
        largest = float(x.abs().max())
        if step <= 4:
            wanted = largest if step == 1 else 0.8 * wanted + 0.2 * largest
        model.backbone.inner(x)  # evaluation changes nothing
        assert float(part.ranges.of("backbone.inner.weight")) == pytest.approx(wanted, rel=1e-5)


def test_tied_weights_are_rounded_once_and_learn_from_both_sides() -> None:
    part = Quantised(bits=3, decay=0.9, freeze_at=1.0)
    model, ids = begun(part), torch.tensor([1, 4, 4, 2])
    before = model.backbone.table.weight.detach().clone()
    with part.reading(model):
        assert model.backbone.tied.weight is model.backbone.table.weight
        read = model.backbone.table.weight
        model.backbone.run(ids).square().sum().backward()
    assert len(read.unique()) <= 7
    assert bool((model.backbone.table.weight == before).all())
    assert model.backbone.tied.weight is model.backbone.table.weight
    assert bool((model.backbone.table.weight.grad.abs().sum(1) > 0).all())
    part.exchange(model)
    assert bool((model.backbone.table.weight == read).all())
    part.exchange(model)
    assert bool((model.backbone.table.weight == before).all())


def test_a_model_of_which_nothing_is_trained_is_refused() -> None:
    part, model = Quantised(bits=8, decay=0.9, freeze_at=1.0), begun(Quantised(
        bits=8, decay=0.9, freeze_at=1.0))  # fmt: skip
    model.requires_grad_(False)
    task: Any = None
    given = Beginning(model, task, frozenset(), 0, False, lambda: iter(()))
    with pytest.raises(ConfigError, match="trains linear maps or embeddings"):
        part.begin(given)


def test_a_run_goes_on_bit_for_bit_and_saves_whole_steps(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        lines = [f"a {'fine' if n % 2 else 'dull'} film\t{n % 2}" for n in range(24)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    whole, half = tmp_path / "whole", tmp_path / "half"
    own = ("stabiliser=[quantised]", "train.save_every=3", "train.keep_best=false")
    more = (f"task.path={tmp_path}", f"run.dir={whole}", "train.keep_last=9")
    plmctl("finetune", *SMALL, *own, *more)
    shutil.copytree(whole, half)
    shutil.rmtree(half / "checkpoints/step-6")
    plmctl("finetune", "--resume", f"run.dir={half}")
    for name in ("model", "objective", "optimizer"):
        one, other = (
            read_tensors(run / f"checkpoints/step-6/{name}.safetensors") for run in (whole, half)
        )
        assert set(one) == set(other)
        assert all(bool((one[n] == other[n]).all()) for n in one), name
    saved = read_tensors(whole / "checkpoints/step-6/model.safetensors")
    for name in ("backbone.embedding.token.weight", "backbone.stack.blocks.f.0.cell.up.weight"):
        steps = saved[name] / (saved[name].abs().max() / 127)
        torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-4)
    said = plmctl("finetune", *SMALL, *more, "stabiliser=[quantised,ema]", code=2)
    assert "one of quantised, ema" in said
    bad = "stabiliser.quantised.bits=9"
    assert "2 to 8" in plmctl("finetune", *SMALL, *more, "stabiliser=[quantised]", bad, code=2)
