"""The gradient of each layer's last linear map in the first update, against autograd by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.last_maps import find_last_maps
from plmctl.runs import pretraining
from plmctl.training.gradients import measure_gradient_norms

SMALL = [
    "size=tiny",
    "size.width=16",
    "size.inner_width=32",
    "format.max_length=16",
    "train.batch_size=4",
]


def made(recipe: str, *words: str) -> Model:
    return build_model(compose("pretrain", recipe, [*SMALL, *words]), vocab_size=30, seed=0)


def test_layers_are_numbered_from_the_embedding_on() -> None:
    model = made("bert", "size.num_layers=3")
    maps = find_last_maps(model)
    assert list(maps) == ["layer.1", "layer.2", "layer.3", "last"]
    for number, block in enumerate(model.backbone.stack.blocks["f"], start=1):
        assert maps[f"layer.{number}"] is block.cell.projection.weight
    assert maps["last"] is maps["layer.3"]
    assert list(find_last_maps(made("albert"))) == ["layer.1", "last"]  # shared by all
    assert list(find_last_maps(made("bart"))) == [
        f"{end}/layer.{n}" for end in ("encoder", "decoder") for n in (1, 2)
    ] + ["last"]


def test_norms_are_those_of_autograd() -> None:
    model = made("gpt").double()
    maps = find_last_maps(model)
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loss = sum(
        (weight @ x.new_ones(weight.shape[1])).pow(2).sum() * n
        for n, weight in enumerate(maps.values(), start=1)
    )
    expected = torch.autograd.grad(loss, list(maps.values()), retain_graph=True)
    assert measure_gradient_norms(maps) == {}
    loss.backward()
    found = measure_gradient_norms(maps)
    for (name, value), grad in zip(found.items(), expected, strict=True):
        assert name.startswith(("start/grad_norm/layer.", "start/grad_norm/last"))
        assert value == pytest.approx(grad.pow(2).sum().sqrt().item(), rel=1e-12)


def test_a_model_without_layers_of_a_stack_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.grad_norms"):
        find_last_maps(torch.nn.Linear(2, 2))


def test_they_are_logged_with_the_first_update_alone(tmp_path: Path) -> None:
    text = "\n\n".join(
        f"the {n} cats of number {n * n} run past the red house of {n}." for n in range(60)
    )
    (tmp_path / "t.txt").write_text(text)
    words = [
        *SMALL,
        "tokenizer.vocab_size=280",
        f"data.path={tmp_path / 't.txt'}",
        f"data.cache_dir={tmp_path / 'cache'}",
        f"run.dir={tmp_path / 'run'}",
        "train.steps=2",
        "train.grad_norms=true",
        "train.eval_every=0",
    ]
    assert pretraining.pretrain(compose("pretrain", "gpt", words)) == 0
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    named = [line for line in lines if any(name.startswith("start/") for name in line)]
    assert len(named) == 1
    assert set(named[0]) == {
        "step",
        "start/grad_norm/layer.1",
        "start/grad_norm/layer.2",
        "start/grad_norm/last",
    }
    assert all(value > 0 for value in named[0].values())
    total = next(
        line["grad_norm"] for line in lines if line.get("step") == 1 and "grad_norm" in line
    )
    assert max(value for name, value in named[0].items() if name != "step") < total
