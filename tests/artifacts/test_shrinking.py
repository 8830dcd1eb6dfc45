"""A trained model with some of its layers is the very model that runs only those layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.artifacts.loading import Source
from plmctl.artifacts.shrinking import pick_layers, shrink_source
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.training.checkpoint import load_exactly, tensors_of

SIZE = [
    "size=tiny",
    "size.width=16",
    "size.num_heads=2",
    "size.inner_width=32",
    "format.max_length=16",
]
VOCABULARY = 40


def source(recipe: str, *words: str) -> tuple[Source, Model]:
    cfg = compose("pretrain", recipe, [*SIZE, *words])
    model = build_model(cfg, vocab_size=VOCABULARY, seed=3)
    config = settle_lengths(plain(cfg))
    return (
        Source(
            Path("teacher"),
            config,
            {
                name: value.double() if value.is_floating_point() else value
                for name, value in tensors_of(model).items()
            },
        ),
        model.double().eval(),
    )


def built(found: Source) -> Model:
    model = build_model(found.config, vocab_size=VOCABULARY).double().eval()
    load_exactly(model, found.tensors, file=Path("student"))
    return model


def batch(*names: str) -> Batch:
    ids = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    return Batch(torch.arange(2), dict.fromkeys(names or ("text",), Seq(ids, torch.tensor([9, 6]))))


def run_layers(
    model: Model, layers: list[int], rows: Batch, monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    """The last state of `model` when its stack runs only these layers."""
    stack = model.backbone.stack

    def run(streams: Any, env: Any, record: bool) -> tuple[Any, list[torch.Tensor]]:
        for layer in layers:
            streams = stack.layer(layer, streams, env)
        return streams, []

    with monkeypatch.context() as patch:
        patch.setattr(stack, "_run_in_order", run)
        return model.backbone(rows).last


@pytest.mark.parametrize(
    ("layers", "number", "expected"),
    [
        ("spread", 12, [0, 2, 4, 7, 9, 11]),  # DistilBERT
        ("spread3", 12, [0, 6, 11]),  # DistilBART
        ("spread1", 12, [0]),
        ("first", 12, [0, 1, 2, 3, 4, 5]),  # PKD
        ("first3", 12, [0, 1, 2]),
        ("last2", 12, [10, 11]),
        ("first", 1, [0]),
        ([4, 0], 6, [4, 0]),
    ],
)
def test_layers_are_picked(layers: Any, number: int, expected: list[int]) -> None:
    assert pick_layers(layers, number) == expected


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("sprad", r"kept_layers='sprad': .*did you mean 'spread'.*layers are 0 to 3"),
        ("spread9", r"1 to 4 layers; its layers are 0 to 3"),
        ([0, 4, 7], r"there is no layer 4, 7; its layers are 0 to 3, counted from 0"),
        ([-1], "there is no layer -1"),
        ([], "at least one layer"),
    ],
)
def test_what_is_not_there_is_named(layers: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pick_layers(layers, 4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("bert", ["size.num_layers=5"]),
        ("gpt2", ["size.num_layers=5"]),
        ("gpt2", ["model.stack.layout=af*1 a|f*4"]),
        ("gpt2", ["size.num_layers=5", "model.stack.by_layer={f:{inner_width:[8,16,24,32,40]}}"]),
        ("longformer", ["size.num_layers=5", "pattern.parts.0.reach=[1,2,3,4,5]"]),
        ("gpt2", ["size.num_layers=5", "pattern=diet", "pattern.first=2"]),
        ("ernie_thu", ["size.num_layers=5"]),
    ],
)
def test_the_student_is_the_teacher_run_on_those_layers_alone(
    recipe: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher, model = source(recipe, *words)
    student = built(shrink_source(teacher, [0, 3, 4]))
    assert student.backbone.num_layers == 3
    assert torch.equal(
        student.backbone(batch()).last, run_layers(model, [0, 3, 4], batch(), monkeypatch)
    )
    heads = {name for name in teacher.tensors if name.startswith("heads.")}
    assert heads == {
        name for name in shrink_source(teacher, "first").tensors if name.startswith("heads.")
    }


def test_windows_of_the_layers_that_stay_are_a_shorter_list() -> None:
    """So that it stays a Longformer, which can be exported."""
    teacher, _ = source("longformer", "size.num_layers=4", "pattern.parts.0.reach=[1,2,3,4]")
    assert shrink_source(teacher, "last").config["pattern"]["parts"][0]["reach"] == [3, 4]
    alone = shrink_source(teacher, [2]).config["pattern"]["parts"][0]
    assert alone["reach"] == [3]
    same, _ = source("longformer", "size.num_layers=4", "pattern.parts.0.reach=2")
    assert shrink_source(same, "last").config["pattern"] == same.config["pattern"]


def test_layers_that_share_their_weights_are_run_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    teacher, model = source("albert", "size.num_layers=4")
    found = shrink_source(teacher, "spread")
    assert set(found.tensors) == set(teacher.tensors)
    assert torch.equal(
        built(found).backbone(batch()).last, run_layers(model, [0, 1], batch(), monkeypatch)
    )
    layout = replace(
        teacher,
        config={
            **teacher.config,
            "model": {
                **teacher.config["model"],
                "stack": {
                    **teacher.config["model"]["stack"],
                    "layout": "af*4",
                    "share": {"a": 2, "f": 2},
                },
            },
        },
    )
    with pytest.raises(
        ConfigError, match="some of its layers share their weights, and some do not"
    ):
        shrink_source(layout, "spread")


def test_of_two_stacks_one_is_named() -> None:
    teacher, model = source("bart", "size.num_layers=3", "model.start=2")
    with pytest.raises(
        ConfigError,
        match=(
            r"needs the name of a stack: encoder and decoder\n  fix:"
            r" 'kept_layers=\{decoder:first\}'"
        ),
    ):
        shrink_source(teacher, "first")
    with pytest.raises(
        ConfigError,
        match=r"no stack 'decodr' \(did you mean 'decoder'\?\); there is encoder and decoder$",
    ):
        shrink_source(teacher, {"decodr": "first"})
    with pytest.raises(
        ConfigError, match=r"no stack 'decoder'; there is stack\n  fix: 'kept_layers=\[0,2\]'"
    ):
        shrink_source(source("bert")[0], {"decoder": [0, 2]})
    student = built(shrink_source(teacher, {"decoder": [0, 2]}))
    assert (student.backbone.encoder.num_layers, student.backbone.num_layers) == (3, 2)
    rows = batch("source", "target")
    whole, part = model.backbone(rows), student.backbone(rows)
    assert torch.equal(whole.streams["encoder"], part.streams["encoder"])
    assert not torch.equal(whole.last, part.last)


def test_a_model_without_a_stack_is_refused() -> None:
    cfg = compose("pretrain", "elmo")
    with pytest.raises(ConfigError, match="no layers can be taken out of BiLM"):
        shrink_source(Source(Path("x"), plain(cfg), {}), "first")
