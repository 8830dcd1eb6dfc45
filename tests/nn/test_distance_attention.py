"""Attention by distances in one product is Transformer-XL's, in float64, under any pattern."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.cells.base import RowSize
from plmctl.nn.cells.distance_attention import DistanceAttention
from plmctl.nn.cells.relative_attention import RelativeAttention
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import NoPosition
from plmctl.nn.relations import RelativeOp, make_relations
from plmctl.runs.contract.stand_in import TINY

W, H, D, B, T = 8, 2, 3, 2, 6
WORDS = ["size=tiny", "size.width=8", "size.num_heads=2", "data.path=x", "position=none"]
WORDS += ["model.stack.layout=ef*2", "model.embedding.dropout=0"]
GAPS = ["pattern=windows", "pattern.causal=true", "pattern.reach=[2,3]"]
GAPS += ["pattern.dilation=[1,[1,3]]"]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def pair() -> tuple[DistanceAttention, RelativeAttention]:
    """The cell and Transformer-XL's, with the same weights."""
    torch.manual_seed(0)
    settings = {"width": W, "num_heads": H, "head_width": D, "dropout": 0.0}
    made, wanted = DistanceAttention(**settings).double(), RelativeAttention(**settings).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    wanted.load_state_dict(made.state_dict())
    return made.eval(), wanted.eval()


def model(*words: str) -> Model:
    spec = compose("pretrain", "gpt2", [*WORDS, *words])
    made = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


def batch(ids: Tensor, **tracks: Tensor) -> Batch:
    return Batch(
        torch.arange(len(ids)), {"text": Seq(ids, torch.tensor([ids.shape[1]] * len(ids)), tracks)}
    )


def test_is_the_attention_of_transformer_xl() -> None:
    made, wanted = pair()
    x, allowed = (
        draw(B, T, W),
        torch.rand(B, T, T, generator=torch.Generator().manual_seed(2)) < 0.6,
    )
    allowed[0, 1] = False  # a query that sees nothing
    plan, positions = Mask(allowed[:, None]), torch.arange(T)[None]
    relations = make_relations(width=W, first=0, rows=T, like=x)
    streams = Streams({"text": x})
    found = made(streams, Env({"text": BoundOp(plan, NoPosition(), positions)}))
    op = RelativeOp(plan, NoPosition(), positions, relations=relations)
    right = wanted(streams, Env({"text": op}))
    torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)
    gradients = [
        torch.autograd.grad(y.square().sum(), list(part.parameters()))
        for y, part in ((found, made), (right, wanted))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


def test_only_distances_count() -> None:
    made, _ = pair()
    x, plan = draw(B, T, W), Mask(None)
    one, other = (
        made(Streams({"text": x}), Env({"text": BoundOp(plan, NoPosition(), places[None])}))
        for places in (torch.arange(T), torch.arange(T) + 30_000)
    )
    torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@torch.no_grad()
def test_windows_with_gaps_in_every_kernel() -> None:
    """Heads and layers differ; a kernel that leaves scores out has the same answer."""
    ids = torch.randint(5, TINY.size, (2, 21), generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    dense = model(*GAPS, "kernel=dense")
    banded = model(*GAPS, "kernel=banded", "kernel.block=4")
    banded.load_state_dict(dense.state_dict())
    right = dense(batch(ids)).last
    torch.testing.assert_close(banded(batch(ids)).last, right, rtol=1e-10, atol=1e-10)
    moved = ids.clone()
    moved[:, 0] = (moved[:, 0] - 4) % (TINY.size - 5) + 5
    far = dense(batch(moved)).last
    assert torch.equal(far[:, 15:], right[:, 15:])  # 2 + 3 x 3 = 11 tokens back, at most
    assert not torch.equal(far[:, 11], right[:, 11])


@torch.no_grad()
def test_a_cache_reads_on() -> None:
    torch.manual_seed(0)
    made = model(*GAPS)
    ids = torch.randint(5, TINY.size, (2, 9), generator=torch.Generator().manual_seed(4))
    whole, cache = made(batch(ids)).last, made.backbone.fresh_cache(batch(ids))
    parts = [made(batch(part), cache).last for part in ids.split([4, 1, 3, 1], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-10, atol=1e-10)


def test_it_counts_its_scores() -> None:
    made, _ = pair()
    whole, half = (made.work(RowSize(8, keys=keys)) for keys in (None, 4))
    assert whole.scores == 8 * 8 * H * (2 * D + W) == 2 * half.scores
    assert whole.macs == half.macs == 8 * (4 * H * D * W + H * D * W)


@pytest.mark.parametrize("position", ["rotary", "alibi"])
def test_positions_of_another_kind_are_refused(position: str) -> None:
    with pytest.raises(ConfigError, match=r"position=.*DistanceAttention \(e\)"):
        model(f"position={position}")
