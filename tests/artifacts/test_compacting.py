"""A model without its empty heads and neurons computes the same as with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.compacting import compact_source
from plmctl.artifacts.loading import Source
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.models.units import find_heads, find_neurons, list_cells
from tests.artifacts.test_shrinking import batch, built, source


def emptied(found: Source, share: float, *, rows: bool = False) -> Source:
    """`found` without a share of its heads and neurons: the next map does not read them.

    Args:
        found: The source.
        share: The share.
        rows: Neurons have no weights instead, only biases.
    """
    model = built(found)
    tensors = {name: tensor.clone() for name, tensor in found.tensors.items()}
    draws = torch.Generator().manual_seed(5)
    for path, cell in list_cells(model.backbone):
        for name, tensor in tensors.items():
            if name.startswith(f"backbone.{path}.") and name.endswith("bias"):
                tensor.copy_(torch.randn(tensor.shape, generator=draws))
        for units in filter(None, (find_heads(cell), find_neurons(cell))):
            gone = torch.randperm(units.count, generator=draws)[: round(share * units.count)]
            inner = next(n for n, part in cell.named_modules() if part is units.output)
            weight = tensors[f"backbone.{path}.{inner}.weight"]
            if rows and inner == "down":
                for name in {"up", "gate"} & set(cell._modules):
                    tensors[f"backbone.{path}.{name}.weight"][gone] = 0
                continue
            weight.view(len(weight), units.count, units.width)[:, gone] = 0
    return replace(found, tensors=tensors)


def states(found: Source, *names: str) -> Tensor:
    return built(found).backbone(batch(*names)).last.detach()


CASES = {
    "encoder": ("bert",),
    "shared layers": ("albert",),
    "decoder": ("gpt",),
    "cross-attention": ("transformer", "model.start=2"),
    "gated": ("modern_decoder",),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gates_of_0_and_removed_units_are_the_same(name: str, rows: bool) -> None:
    full, _ = source(*CASES[name], "size.num_layers=2")
    found = emptied(full, 0.5, rows=rows)
    compact, line = compact_source(found)
    fields = ("source", "target") if name == "cross-attention" else ("text",)
    torch.testing.assert_close(states(compact, *fields), states(found, *fields))
    assert "neurons" in line
    before, after = (sum(t.numel() for t in each.tensors.values()) for each in (found, compact))
    assert after < before
    heads = [find_heads(cell) for _, cell in list_cells(built(compact).backbone)]
    assert {own.count for own in heads if own} == {1}
    neurons = [find_neurons(cell) for _, cell in list_cells(built(compact).backbone)]
    wide = [find_neurons(cell) for _, cell in list_cells(built(full).backbone)]
    counted = [
        (own.count, whole.count) for own, whole in zip(neurons, wide, strict=True) if own and whole
    ]
    assert counted
    assert all(own == whole // 2 for own, whole in counted)


def test_layers_of_unlike_widths_are_cut_further() -> None:
    full, _ = source("bert", "size.num_layers=2", "size.num_heads=4")
    tensors = dict(full.tensors)
    out = tensors["backbone.stack.blocks.a.1.cell.out.weight"].clone()
    out[:, 4:] = 0
    found = replace(full, tensors=tensors | {"backbone.stack.blocks.a.1.cell.out.weight": out})
    compact, line = compact_source(found)
    assert compact.config["model"]["stack"]["by_layer"] == {
        "a": {"num_heads": [4, 1], "head_width": [4, 4]}
    }
    assert line == "left out, since they add nothing: 3 of 8 heads, 0 of 64 neurons"
    again = emptied(compact, 0.5)
    torch.testing.assert_close(states(compact_source(again)[0]), states(again))


def test_a_layer_without_heads_adds_the_bias_of_its_output() -> None:
    found = emptied(source("bert", "size.num_layers=1")[0], 1.0)
    compact, _ = compact_source(found)  # one head and one neuron stay, which add nothing
    torch.testing.assert_close(states(compact), states(found))
    assert [find.count for _, cell in list_cells(built(compact).backbone)
            if (find := find_heads(cell) or find_neurons(cell))] == [1, 1]  # fmt: skip


def test_no_published_class_holds_it_and_the_error_names_what_is_unlike() -> None:
    compact, _ = compact_source(emptied(source("bert", "size.num_layers=1")[0], 0.5))
    with pytest.raises(ConfigError, match=r"model.stack.by_layer.a=\{'num_heads'"):
        hf.export(compact.config, compact.tensors, pad=0)


def test_what_cannot_be_left_out_is_said() -> None:
    with pytest.raises(ConfigError, match="here each adds something"):
        compact_source(source("bert")[0])
    cases: dict[str, tuple[Any, str]] = {
        "t5": (("t5",), "position='RelativeBuckets': parts that are the same for all heads"),
        "xl": (("transformer_xl",), "RelativeAttention has content_bias"),
        "general": (("bert", "model.stack.cells.a.scores=general"), "has score.between"),
    }
    for words, message in cases.values():
        with pytest.raises(ConfigError, match=message):
            compact_source(emptied(source(*words)[0], 0.5))
