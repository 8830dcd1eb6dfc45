"""Funnel-Transformer against sums over tokens, heads and pairs, one row at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.models.base import Model
from plmctl.models.funnel import PairPooling, split_layers
from plmctl.nn.cells.base import RowSize
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY

W, HEADS, D = 8, 2, 4
SMALL = ["size=tiny", f"size.width={W}", "size.inner_width=12", f"size.num_heads={HEADS}"]
SMALL += ["size.num_layers=3", "model.blocks=[1,1,1]", "data.path=x", "train.steps=1"]
SMALL += ["format.max_length=24", "model.embedding.dropout=0"]


def make(*words: str, **heads: Any) -> Model:
    cfg = compose("pretrain", "funnel", [*SMALL, *words])
    model = build_model(cfg, vocab_size=20, vocab=TINY, seed=0, heads=heads or None).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator).double()
    return model


def read(model: Model, ids: Tensor, segment: Tensor | None = None, **how: Any) -> Any:
    full = Seq(ids, torch.full((len(ids),), ids.shape[1]), {}, True)
    text = full if segment is None else full.with_tracks(segment=segment)
    return model(Batch(torch.arange(len(ids)), {"text": text}), **how)


def sinusoid(distance: float) -> Tensor:
    half = W // 2
    angles = [distance / 10000 ** (i / half) for i in range(half)]
    return torch.tensor(angles, dtype=torch.float64).sin(), torch.tensor(
        angles, dtype=torch.float64
    ).cos()


def layer(block: Any, inner: Any, q_at: list[int], k_at: list[int], **of: Any) -> Tensor:
    """One layer of one row; `q_at`, `k_at`: the places of queries and keys in the text."""
    cell, queries, keys = block.cell, of["queries"], of["keys"]
    k, v = cell.kv(keys).chunk(2, -1)
    seen = torch.zeros(len(queries), HEADS * D, dtype=torch.float64)
    for h in range(HEADS):
        own = slice(h * D, (h + 1) * D)
        u, place, s = (
            each[h, 0] for each in (cell.content_bias, cell.place_bias, cell.segment_bias)
        )
        for i, x in enumerate(queries):
            q, scores = cell.q(x)[own], []
            for j in range(len(keys)):
                score = (q + u) @ k[j, own]
                if i and j:  # the first token has neither a distance nor a segment
                    r = cell.place(torch.cat(sinusoid(q_at[i] - k_at[j])))[own]
                    apart = of["q_segment"][i] != of["k_segment"][j]
                    score = score + (q + place) @ r + (q + s) @ cell.segments[int(apart), h, 0]
                scores.append(score / D**0.5)
            seen[i, own] = torch.stack(scores).softmax(0) @ v[:, own]
    x = block.norm_sum(queries + cell.out(seen))
    return inner.norm_sum(x + inner.cell.down(F.gelu(inner.cell.up(x), approximate="tanh")))


def pool(x: list[Any]) -> list[list[Any]]:
    """The pairs of a row without its first and its last token."""
    rest = x[1:-1]
    return [[x[0]], *(rest[n : n + 2] for n in range(0, len(rest), 2))]


@torch.no_grad()
@pytest.mark.parametrize("length", [5, 8, 9])
def test_a_row_is_the_sum_over_heads_and_tokens(length: int) -> None:
    model = make()
    backbone, stack = model.backbone, model.backbone.stack
    ids = torch.randint(5, 20, (1, length), generator=torch.Generator().manual_seed(2))
    segment = (torch.arange(length) > 2).long()[None]
    x = backbone.embedding.norm(backbone.embedding.token(ids))[0]
    places, kinds = list(range(length)), segment[0].tolist()
    states: list[Tensor] = []
    for number in range(3):
        keys, at, kind = x, places, kinds
        if number:
            x = torch.stack([torch.stack(pair).mean(0) for pair in pool(list(x))])
            places, kinds = ([pair[0] for pair in pool(each)] for each in (places, kinds))
        x = layer(
            stack.blocks["a"][number],
            stack.blocks["f"][number],
            places,
            at,
            queries=x,
            keys=keys,
            q_segment=kinds,
            k_segment=kind,
        )
        states.append(x)
    last = torch.zeros(length, W, dtype=torch.float64)
    last[0] = x[0]
    for n in range(1, length):
        if 1 + (n - 1) // 4 < len(x):
            last[n] = x[1 + (n - 1) // 4]
    x, whole, kinds = last + states[0], list(range(length)), segment[0].tolist()
    for number in range(2):
        above = backbone.decoder.blocks
        of = {"queries": x, "keys": x, "q_segment": kinds, "k_segment": kinds}
        x = layer(above["a"][number], above["f"][number], whole, whole, **of)
    found = read(model, ids, segment, record=frozenset({"hidden"}))
    torch.testing.assert_close(found.last[0], x)
    assert len(found.recorded["hidden"]) == backbone.num_layers + 1
    torch.testing.assert_close(found.recorded["hidden"][3][0], last)


def test_pooling_halves_and_keeps_the_first() -> None:
    x = torch.arange(7.0).view(1, 7, 1)
    mean = PairPooling("mean", first=True, truncate=True)
    assert mean.states(x).flatten().tolist() == [0, 1.5, 3.5, 5]
    assert mean.count(16) == 8
    assert mean.count(mean.count(17)) == 5
    assert PairPooling("max", first=True, truncate=False).states(x).flatten().tolist() == [
        0,
        2,
        4,
        6,
    ]
    assert PairPooling("mean", first=False, truncate=True).states(x).flatten().tolist() == [
        0.5,
        2.5,
        4.5,
        6,
    ]


def test_blocks_are_as_equal_as_layers_allow() -> None:
    assert split_layers(3, 12) == [4, 4, 4]
    assert split_layers(3, 8) == [3, 3, 2]
    assert split_layers(3, 2) == [1, 1]
    assert split_layers([2, 1], 3) == [2, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.blocks=[1,1]"], "3 together"),
        (["model.blocks=0"], "numbers of layers"),
        (["model.pooling=meen"], "did you mean mean|mean, max"),
        (["position=learned"], "position=none"),
        (["pattern=causal"], "pattern=full"),
        (["format=sentence_pair", "format.packed=true"], "one document"),
    ],
)
def test_what_does_not_fit_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_contract(compose("pretrain", "funnel", [*SMALL, *words]))


def test_packed_rows_are_refused_where_they_are_read() -> None:
    model, ids = make(), torch.full((1, 6), 7)
    text = Seq(ids, torch.tensor([6]), {"document": torch.tensor([[0, 0, 0, 1, 1, 1]])})
    with pytest.raises(UsageError, match="one document"):
        model(Batch(torch.arange(1), {"text": text}))


@torch.no_grad()
def test_heads_of_rows_read_the_last_block() -> None:
    head = {"_target_": "plmctl.heads.classify.Classify", "num_classes": 3, "dense": True}
    head["dropout"] = 0.0
    model = make(**{"class": head})
    assert not model.backbone.decodes
    assert make().backbone.decodes
    ids = torch.randint(5, 20, (2, 9), generator=torch.Generator().manual_seed(2))
    without = make("model.decoder=null", **{"class": head})
    mine = dict(model.named_parameters())
    for name, weight in without.named_parameters():
        weight.copy_(mine[name])
    assert read(model, ids).last.equal(read(without, ids).last)


def test_every_weight_learns_and_layers_run_again() -> None:
    ids = torch.randint(5, 20, (2, 9), generator=torch.Generator().manual_seed(2))
    grads = []
    for again in (False, True):
        model = make().train()
        model.backbone.stack.checkpointed = model.backbone.decoder.checkpointed = again
        segment = (torch.arange(9) > 2).long().expand(2, 9)
        read(model, ids, segment).last.square().sum().backward()
        grads.append([weight.grad for weight in model.backbone.parameters()])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_shorter_rows_cost_less() -> None:
    backbone = make().backbone
    sizes = [row for _, row in backbone.stacks(16, 0)]
    assert sizes == [RowSize(16), RowSize(8, keys=16.0), RowSize(4, keys=8.0), RowSize(16)]
    whole = make("model.blocks=1").backbone
    assert [stack.num_layers for stack, _ in whole.stacks(16, 0)] == [3, 2]
