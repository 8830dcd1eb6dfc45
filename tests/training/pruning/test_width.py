"""Residual columns: their importance against explicit gates, and norms that count the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.counted_norms import count_columns
from plmctl.nn.norm import CountedLayerNorm, CountedRMSNorm
from plmctl.training.pruning.width import ResidualWidth
from tests.objectives.contrastive import W
from tests.training.pruning.driven import SCALE, loss_of, make_batch, take_up, update

HOW: Any = {"sparsity": 0.5, "begin_at": 0.0, "end_at": 1.0, "every": 3, "importance": "taylor"}
# of the encoder of these tests, by the end of a name: where its W columns stand
PLACES = {
    **dict.fromkeys(("token.weight", "position.table.weight"), (0, 1)),
    **dict.fromkeys(("qkv.weight", "up.weight"), (0, 1)),
    **dict.fromkeys(("qkv.bias", "up.bias"), (0,)),
    **dict.fromkeys(("out.weight", "down.weight"), (1, 0)),
    **dict.fromkeys(("out.bias", "down.bias"), (1,)),
    **dict.fromkeys(("norm.weight", "norm.bias", "norm_sum.weight", "norm_sum.bias"), (1,)),
}


def axes_of(model: Model) -> dict[str, tuple[int, ...]]:
    return {
        name: next(own for end, own in PLACES.items() if name.endswith(end))
        for name in dict(model.named_parameters())
    }


def begun(layers: int = 1, **how: Any) -> tuple[ResidualWidth, Model]:
    axes: dict[str, tuple[int, ...]] = {}
    part = ResidualWidth(**HOW | how, find_axes=lambda: axes)
    axes |= axes_of(take_up(type("Nothing", (), {"begin": lambda self, given: None})(), layers))
    return part, take_up(part, layers)


def slopes(model: Model, row: int, seed: int) -> Tensor:
    """[W] dL/dgate of one row, with one gate of a column in all norms."""
    gates = torch.ones(W, dtype=torch.float64, requires_grad=True)
    norms = [part for part in model.modules() if isinstance(part, nn.LayerNorm)]
    handles = [n.register_forward_hook(lambda norm, given, out: out * gates) for n in norms]
    batch = make_batch(seed)
    last = model(batch).last
    for handle in handles:
        handle.remove()
    ramp = torch.linspace(-1, 1, W, dtype=last.dtype)
    loss = ((last * ramp).sum(-1).square() * batch.text.real)[row].sum() / SCALE
    return torch.autograd.grad(loss, gates)[0]


def test_importance_is_the_sum_of_slopes_of_gates() -> None:
    part, model = begun(layers=2)
    for step in (1, 2):
        with part.reading(model):
            loss = loss_of(model, make_batch(step))
        loss.backward()
        optimizer: Any = None
        part.before_step(model, optimizer, step / 10)
    wanted = torch.zeros(W, dtype=torch.float64)
    for seed in (1, 2):
        for row in range(4):
            wanted += slopes(model, row, seed).abs()
    torch.testing.assert_close(part.kept.of("importance"), wanted, rtol=1e-5, atol=1e-7)
    part.share.set(0.5)
    part.after_step(model, 3)
    gone = wanted.argsort()[: round(W * 0.5 * (1 - 0.5**3))]
    assert sorted((~part.kept.of("kept")).nonzero().flatten().tolist()) == sorted(gone.tolist())
    assert not part.kept.of("importance").any()
    assert not any(norm._forward_hooks for norm in part.norms.values())


def test_magnitude_is_the_length_of_all_weights_of_a_column() -> None:
    part, model = begun(sparsity=0.25, end_at=0.0, importance="magnitude")
    squares = [0.0] * W
    for name, weight in model.named_parameters():
        places = axes_of(model)[name]
        for column in range(W) if weight.dim() == 2 else ():
            for axis, times in enumerate(places):
                if times:
                    squares[column] += float((weight.detach().select(axis, column) ** 2).sum())
    part.share.set(1.0)
    part.after_step(model, 1)
    gone = sorted(sorted(range(W), key=lambda column: squares[column])[:2])
    assert (~part.kept.of("kept")).nonzero().flatten().tolist() == gone


def test_removed_columns_stay_0_in_every_tensor_and_their_share_is_exact() -> None:
    part, model = begun(layers=2, sparsity=0.25, end_at=0.6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    gone: set[int] = set()
    for step in range(1, 11):
        update(part, model, optimizer, share=step / 10, step=step)
        now = set((~part.kept.of("kept")).nonzero().flatten().tolist())
        assert gone <= now
        gone = now
    assert len(gone) == 2
    assert part.figures() == {"sparsity": 0.25}
    columns = sorted(gone)
    for name, weight in model.named_parameters():
        for axis, times in enumerate(axes_of(model)[name]):
            assert not times or not bool(weight.index_select(axis, torch.tensor(columns)).any())
    assert not bool(model(make_batch()).last[..., columns].any())


def test_one_column_stays() -> None:
    part, model = begun(sparsity=0.99, end_at=0.0)
    update(part, model, torch.optim.SGD(model.parameters(), lr=0.1), share=1.0, step=1)
    assert int(part.kept.of("kept").sum()) == 1


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_a_norm_that_counts_columns_is_the_norm_of_these_columns(kind: Any) -> None:
    draws = torch.Generator().manual_seed(0)
    wide = nn.ModuleDict({"n": kind(6, eps=1e-3)}).double()
    for weight in wide.parameters():
        weight.data.copy_(torch.randn(6, generator=draws))
    narrow, kept = kind(4, eps=1e-3).double(), torch.tensor([0, 2, 3, 5])
    for weight, full in zip(narrow.parameters(), wide.parameters(), strict=True):
        weight.data.copy_(full[kept])
    x = torch.randn(3, 6, generator=draws, dtype=torch.float64)
    (norm,) = count_columns(wide, ["n", "absent"]).values()
    torch.testing.assert_close(wide["n"](x), kind.forward(norm, x))  # at first all count
    norm.get_buffer("counted")[[1, 4]] = False
    assert isinstance(norm, CountedLayerNorm | CountedRMSNorm)
    out = wide["n"](x)
    torch.testing.assert_close(out[:, kept], narrow(x[:, kept]))
    assert not bool(out[:, [1, 4]].any())
    assert count_columns(wide, ["n"])["n"] is norm  # it keeps what it counts


def test_a_model_with_unknown_parts_is_refused() -> None:
    part = ResidualWidth(**HOW, find_axes=lambda: {})
    with pytest.raises(ConfigError, match="residual columns that are known"):
        take_up(part)
