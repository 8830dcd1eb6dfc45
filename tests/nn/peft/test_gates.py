"""Gates of methods, against a loop over rows and tokens."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.models.base import Model
from plmctl.nn.peft.base import fold
from plmctl.nn.peft.bottleneck import Bottleneck
from plmctl.nn.peft.gates import GatedMethod
from plmctl.nn.peft.ia3 import LearnedScales
from plmctl.nn.peft.lora import LowRank
from plmctl.nn.peft.prefix import PrefixTuning
from plmctl.nn.peft.routed import Routes, graft
from tests.nn.peft.test_prompt import build, make_batch

ADAPTER = {"cells": ["feed-forward"], "inner_width": 4, "activation": "relu"}
PARTS: dict[str, Any] = {
    "prefix": lambda: PrefixTuning(length=3),
    "adapter": lambda: Bottleneck(**ADAPTER, normed=True),
    "lora": lambda: LowRank(maps=["query", "value"], rank=2, alpha=2.0),
}
LENGTHS = [6, 4]


def add_gates(model: Model, *parts: str) -> GatedMethod:
    method = GatedMethod(parts={name: PARTS[name]() for name in parts or PARTS})
    method.add_to(model.backbone)
    model.double()
    generator = torch.Generator().manual_seed(3)
    for name in method.trains(model.backbone):
        model.backbone.get_parameter(name).data.normal_(std=0.5, generator=generator)
    return method


def find_gate(gate: Any, x: Tensor) -> float:
    """The mean over the tokens [T, W] of a row alone."""
    each = [torch.sigmoid(gate.weight[0] @ token + gate.bias[0]).item() for token in x]
    return sum(each) / len(each)


def keep_read(read: dict[str, Tensor], place: str, _: Any, inputs: Any) -> None:
    read[place] = inputs[0]["text"][0].detach()


def put_constants(model: Model, read: dict[str, Tensor]) -> None:
    """Replace the gates by their numbers for a row: LoRA and adapters by scaled matrices, a prefix
    by a scaled table, in a model without gates.
    """
    gated, backbone = read.pop("gated"), model.backbone
    for layer in range(2):
        own, other = (each.stack.blocks["a"][layer].cell for each in (gated, backbone))
        for name, rows in own.qkv.lora.gates.items():
            other.qkv.lora.up[name].data.mul_(find_gate(rows, read[f"a{layer}"]))
        other.prefix.vectors.data.mul_(find_gate(own.prefix.gate, read[f"a{layer}"]))
        change, cell = (each.stack.blocks["f"][layer].cell.adapter for each in (gated, backbone))
        factor = find_gate(change.gates["cell"], read[f"f{layer}"])
        cell.up.data.mul_(factor)
        cell.up_bias.data.mul_(factor)


def test_gates_are_means_over_the_real_tokens_of_a_row() -> None:
    """Each row alone, without padding, in a model whose methods are multiplied by numbers."""
    model, given = build("bert"), make_batch(LENGTHS)
    method = add_gates(model)
    found = model(given).last
    names = method.trains(model.backbone)
    assert sum("gate" in name for name in names) == 2 * 2 * (2 + 1 + 1)  # w and b, of 2 layers
    for row, length in enumerate(LENGTHS):
        seq = Seq(given.text.ids[row : row + 1, :length], torch.tensor([length]), full=True)
        plain = build("bert")
        for make in PARTS.values():
            make().add_to(plain.backbone)
        plain.double()
        for name in names:
            if ".gate" not in name:
                weight = plain.backbone.get_parameter(name.replace(".inner.", "."))
                weight.data.copy_(model.backbone.get_parameter(name))
        read: dict[str, Any] = {"gated": model.backbone}
        hooks = []
        for layer in range(2):
            for letter in "af":
                blocks: Any = model.backbone.stack.blocks
                cell = blocks[letter][layer].cell
                keep = partial(keep_read, read, f"{letter}{layer}")
                hooks.append(cell.register_forward_pre_hook(keep))
        one = Batch(torch.arange(1), {"text": seq})
        model(one)
        for layer in range(2):  # the adapter reads the normed sum of the layer
            block: Any = model.backbone.stack.blocks["f"][layer]  # type: ignore[union-attr, index]
            x = read[f"f{layer}"]
            y = block.cell.down(block.cell.activation(block.cell.up(x)))
            read[f"f{layer}"] = block.norm_sum(x + y)
        for hook in hooks:
            hook.remove()
        put_constants(plain, read)
        torch.testing.assert_close(plain(one).last[0], found[row, :length])


def test_gates_go_with_copies_and_let_go_of_what_they_read() -> None:
    model, given = build("bert"), make_batch(LENGTHS)
    add_gates(model)
    twin = copy.deepcopy(model)
    found = model(given).last
    torch.testing.assert_close(twin(given).last, found, rtol=0, atol=0)
    found.sum().backward()
    cell: Any = model.backbone.stack.blocks["a"][0].cell  # type: ignore[union-attr, index]
    gate = cell.prefix.gate
    assert gate.reading.text is None
    assert gate.weight.grad.abs().sum() > 0
    assert model.backbone.read_at(given, torch.tensor([0, 6])) is None  # type: ignore[operator]


def test_what_gates_cannot_multiply_is_named() -> None:
    for part, words in (
        (LearnedScales(maps=["key"], inputs=["down"]), "adds to results"),
        (LowRank(maps=["query"], rank=99, alpha=1.0), r"unipelt\.parts\.own\.rank=16"),
    ):
        with pytest.raises(ConfigError, match=words):
            GatedMethod(parts={"own": part}).add_to(build("bert").backbone)
    with pytest.raises(ConfigError, match="one method at least"):
        GatedMethod(parts={"lora": None})
    with pytest.raises(ConfigError, match="see later ones"):
        GatedMethod(parts={"lora": PARTS["lora"]()}).add_to(build("gpt2").backbone)
    model = build("xlnet")
    GatedMethod(parts={"lora": PARTS["lora"]()}).add_to(model.backbone)
    with pytest.raises(ConfigError, match="know padding"):
        model(make_batch(LENGTHS))
    model = build("bert")
    method = add_gates(model)
    with pytest.raises(ConfigError, match="gates, which differ from row to row"):
        fold(model.backbone, [method])
    with pytest.raises(UsageError, match="one row of a batch alone"):
        graft(build("bert").backbone, [model.backbone], Routes())
