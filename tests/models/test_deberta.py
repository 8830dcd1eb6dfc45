"""The enhanced mask decoder and the convolution of embeddings against their definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.artifacts.assemble import build_model
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.objectives.mlm import MLM

V, B, T, W = 20, 2, 6, 8
SMALL = [
    "model=deberta",
    "position=disentangled",
    "position.max_distance=4",
    "size=tiny",
    f"size.width={W}",
    "size.inner_width=12",
    "size.num_heads=2",
    "size.num_layers=3",
    f"format.max_length={T}",
    "model.embedding.dropout=0",
]


def make(*words: str) -> Model:
    cfg = compose("pretrain", "bert", ["objective=[mlm]", *SMALL, *words])
    model = build_model(cfg, vocab_size=V, seed=0).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "token" not in name:
                weight += 0.3 * torch.randn(weight.shape, generator=generator).double()
    return model


def one_batch() -> Batch:
    ids = torch.randint(5, V, (B, T), generator=torch.Generator().manual_seed(2))
    index, labels = torch.tensor([1, 3, 7, 0]), torch.tensor([6, 9, 8, IGNORE])
    targets = {"mlm": Targets(index, labels, 3)}
    text = Seq(ids, torch.tensor([T, 4]))
    return Batch(torch.arange(B), {"text": text}, targets, counts={"mlm": 3})


def layer(model: Model, number: int, query: Tensor, content: Tensor) -> Tensor:
    """A layer whose queries and sums are `query`, by formulas, one row at a time."""
    blocks, vectors = model.backbone.stack.blocks, model.backbone.position.vectors.weight
    a, f = blocks.a[number], blocks.f[number]
    cell, rows = a.cell, []
    for b, real in enumerate([T, 4]):
        heads = []
        for h in range(2):
            own = slice(4 * h, 4 * h + 4)
            q, k, v = cell.q(query[b])[:, own], cell.k(content[b])[:, own], cell.v(content[b])
            delta = (torch.arange(T)[:, None] - torch.arange(T) + 4).clamp(0, 7)
            keys, queries = cell.place_key(vectors)[:, own], cell.place_query(vectors)[:, own]
            scores = q @ k.T + (q @ keys.T).gather(1, delta)
            scores = (scores + (k @ queries.T).gather(1, delta.T).T) / 12**0.5
            heads.append(scores[:, :real].softmax(-1) @ v[:real, own])
        rows.append(torch.cat(heads, -1))
    y = a.norm_sum(query + cell.out(torch.stack(rows)))
    return f.norm_sum(y + f.cell.down(F.gelu(f.cell.up(y))))


def test_decoder_is_the_last_layer_twice() -> None:
    model, batch = make(), one_batch()
    backbone = model.backbone
    x = backbone.embedding.norm(backbone.embedding.token(batch.text.ids))
    below = layer(model, 1, layer(model, 0, x, x), layer(model, 0, x, x))
    query = below + backbone.places.weight[:T]
    for _ in range(2):
        query = layer(model, 2, query, below)
    hidden, real = backbone(batch), batch.text.real
    torch.testing.assert_close(hidden.words[real], query[real])
    torch.testing.assert_close(hidden.last[real], layer(model, 2, below, below)[real])
    out = MLM()(model, batch)
    logits = model.heads["mlm"](query.flatten(0, 1)[[1, 3, 7]])
    wanted = F.cross_entropy(logits, torch.tensor([6, 9, 8]), reduction="sum")
    torch.testing.assert_close(out.terms["mlm"].total, wanted, check_dtype=False)


def test_absolute_positions_enter_only_there() -> None:
    model, batch = make(), one_batch()
    before = model.backbone(batch)
    with torch.no_grad():
        model.backbone.places.weight.zero_()
    after, real = model.backbone(batch), batch.text.real
    torch.testing.assert_close(before.last, after.last, atol=0, rtol=0)
    assert (before.words - after.words)[real].abs().min() > 0
    content = model.backbone(batch, record=frozenset({"hidden"})).recorded["hidden"][-2]
    twice = layer(model, 2, layer(model, 2, content, content), content)
    torch.testing.assert_close(after.words[real], twice[real])


def test_a_model_without_words_does_not_decode() -> None:
    cfg: Any = compose("pretrain", "bert", ["objective=[nsp]", *SMALL])
    tags = {"tag": {"_target_": "plmctl.heads.tag.Tag", "num_classes": 3, "dropout": 0.0}}
    model = build_model(cfg, vocab_size=V, heads=tags, seed=0)
    hidden = model.backbone(one_batch())
    assert hidden.words is hidden.last
    assert model.backbone.max_length is None
    assert make().backbone.max_length == T
    assert make("model.decoder_steps=0").backbone.places is None


def test_convolution_of_embeddings() -> None:
    model, batch = make("model.stack.layout='afc af*2'", "model.decoder_steps=0"), one_batch()
    cell = model.backbone.stack.blocks.c[0].cell
    hidden = model.backbone(batch, record=frozenset({"hidden"})).recorded["hidden"]
    embedded = hidden[0] * batch.text.real[..., None]
    y = F.gelu(F.conv1d(embedded.mT, cell.conv.weight, cell.conv.bias, padding=1).mT)
    first = layer(model, 0, hidden[0], hidden[0])
    real = batch.text.real
    torch.testing.assert_close(hidden[1][real], cell.norm(first + y)[real])


def test_packed_documents_are_read_as_if_alone() -> None:
    model = make("model.stack.layout='afc af*2'")
    ids = torch.randint(5, V, (1, T), generator=torch.Generator().manual_seed(2))
    tracks = {"document": torch.tensor([[0, 0, 1, 1, 1, 1]])}
    tracks["position"] = torch.tensor([[0, 1, 0, 1, 2, 3]])
    both = model.backbone(Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([T]), tracks)}))
    for part in (slice(0, 2), slice(2, T)):
        length = torch.tensor([part.stop - part.start])
        alone = model.backbone(Batch(torch.arange(1), {"text": Seq(ids[:, part], length)}))
        torch.testing.assert_close(both.words[:, part], alone.words)
        torch.testing.assert_close(both.last[:, part], alone.last)


def test_wrong_positions_and_layers_are_named() -> None:
    cfg = compose("pretrain", "bert", ["objective=[mlm]", *SMALL])
    learned = compose("pretrain", "bert", ["position=learned"]).position
    with pytest.raises(ConfigError, match="position=disentangled"):
        build_model({**plain(cfg), "position": plain(learned)}, vocab_size=V)
    with pytest.raises(ConfigError, match="decoder_steps"):
        make("model.stack.layout='af*2 f'")
