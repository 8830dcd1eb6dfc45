"""A model without the residual columns that are 0 computes the same as with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plmctl.artifacts.compacting import compact_source
from plmctl.artifacts.loading import Source
from plmctl.artifacts.narrowing import find_axes
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.models.units import list_cells
from plmctl.training.pruning.width import ResidualWidth
from plmctl.training.stabilisers.base import Beginning
from tests.artifacts.test_compacting import emptied
from tests.artifacts.test_shrinking import batch, built, source

HOW: Any = {"sparsity": 0.3, "begin_at": 0.0, "end_at": 0.0, "every": 1, "importance": "magnitude"}


def pruned(found: Source, sparsity: float = 0.3) -> Source:
    """`found` after one choice of columns, with other numbers than 0 and 1 in every tensor."""
    model = built(found)
    draws = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn(weight.shape, generator=draws, dtype=weight.dtype)
    part = ResidualWidth(**HOW | {"sparsity": sparsity}, find_axes=lambda: find_axes(found.config))
    nothing: Any = None
    part.begin(Beginning(model, nothing, frozenset(), 1, False, lambda: iter(())))
    part.share.set(1.0)
    part.after_step(model, 1)
    from plmctl.training.checkpoint import tensors_of

    return replace(found, tensors=tensors_of(model))


def answers(found: Source) -> list[Tensor]:
    """The states of a batch, and what each head makes of them."""
    model, rows = built(found), batch()
    last = model.backbone(rows).last.detach()
    return [last, *(head(last[:, 0] if name == "pair" else last).detach()
                    for name, head in model.heads.items() if name == "mlm")]  # fmt: skip


CASES = {
    "after norms": ("bert", "size.num_heads=4"),
    "before norms": ("modern_encoder",),
    "shared layers": ("albert",),
    "narrow table": ("albert", "model.embedding.table_width=8"),
    "decoder": ("gpt",),
    "gated": ("modern_decoder",),
}


@pytest.mark.parametrize("name", CASES)
def test_the_narrow_model_computes_the_same(name: str) -> None:
    found = pruned(source(*CASES[name], "size.num_layers=2")[0])
    compact, line = compact_source(found)
    assert "5 of 16 residual columns" in line
    assert compact.config["size"]["width"] == 11
    assert not any(n.endswith(".counted") for n in compact.tensors)
    before, after = answers(found), answers(compact)
    kept = next(t for n, t in found.tensors.items() if n.endswith(".counted"))
    assert not bool(before[0][..., ~kept].any())
    torch.testing.assert_close(after[0], before[0][..., kept], rtol=1e-9, atol=1e-9)
    for own, other in zip(after[1:], before[1:], strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-9)
    widths = {type(p).__name__ for p in built(compact).modules() if "Counted" in type(p).__name__}
    assert not widths
