"""ERNIE's encoder: the released aggregator as a loop in float64, plain layers as BERT's, zero
entities, packed rows, the table outside of checkpoints.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.attention.patterns.base import Full
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.knowledge.vectors import GraphVectors
from plmctl.models.entity_encoder import EntityEncoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.entity_attention import EntityAttention
from plmctl.nn.cells.entity_fusion import EntityFusion
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.entities import EntityVectors
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from tests.models.test_encoder import encoder, perturbed

W, E, HEADS, INNER = 16, 8, 2, 32
WORDS = partial(FeedForward, width=W, inner_width=INNER, activation="gelu")


def build(layout: str, **settings: Any) -> EntityEncoder:
    norm = partial(layer_norm, width=W, eps=1e-12)
    cells = {
        "a": partial(Attention, width=W, num_heads=2, dropout=0.0),
        "f": WORDS,
        "m": partial(EntityAttention, entity_width=E, entity_heads=HEADS, dropout=0.0),
        "x": partial(
            EntityFusion, width=W, words=WORDS, entity_width=E, norm=norm, dropout=0.0,
        ),
    }  # fmt: skip
    model = EntityEncoder(
        embedding=Embedding(vocab_size=50, width=W, dropout=0.0, segments=2, norm=norm),
        position=Learned(width=W, max_length=16),
        stack=Stack(layout=layout, cells=cells, residual=PostNorm(norm=norm, dropout=0.0)),
        pattern=Full(),
        entities=EntityVectors(**{"entity_width": E, "count": 20, "seed": 3, **settings}),
    )
    perturbed(model)
    return model.double()


def batch_of(*, entity: bool = True, document: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 50, (3, 9), generator=generator)
    tracks = {"segment": (torch.arange(9) > 5).long().expand(3, -1)}
    if entity:
        track = torch.zeros(3, 9, dtype=torch.int64)
        track[0, 2:4], track[0, 6], track[1, 3], track[1, 4] = 7, 12, 3, -5
        tracks["entity"] = track
    if document:
        tracks["document"] = torch.tensor([[0] * 5 + [1] * 4] * 3)
        tracks["position"] = torch.tensor([[*range(5), *range(4)]] * 3)
    return Batch(torch.arange(3), {"text": Seq(ids, torch.tensor([9, 7, 9]), tracks)})


def attend(x: Tensor, cell: Any, seen: Tensor, heads: int) -> Tensor:
    """Self-attention of one row by its definition; seen [T] is what all see."""
    columns = x.shape[1] // heads
    q, k, v = cell.qkv(x).chunk(3, -1)
    out = torch.zeros_like(x)
    for head in range(heads):
        part = slice(head * columns, (head + 1) * columns)
        for t in range(len(x)):
            scores = (q[t, part] @ k[:, part].T) / math.sqrt(columns)
            shares = scores.masked_fill(~seen, -1e30).softmax(0)
            out[t, part] = shares @ v[:, part]
    return cell.out(out)


def test_the_aggregator_by_a_loop() -> None:
    """thunlp/ERNIE: sim, mix, norm, written token by token."""
    model, batch = build("af ax amx"), batch_of()
    blocks = model.stack.blocks
    entities: Any = model.entities
    for row in range(3):
        length = int(batch.text.length[row])
        x = model.embed(batch)[row, :length]
        ids = batch.text.tracks["entity"][row, :length].tolist()
        rows = [1 + (-n - 1) % 20 if n < 0 else n for n in ids]
        e = torch.stack([entities.vectors[n].double() for n in rows])
        mask = torch.tensor([t == 0 or rows[t] > 0 for t in range(length)])
        everything = torch.ones(length, dtype=torch.bool)
        for layer, kind in enumerate(("sim", "mix", "norm")):
            a: Any = blocks["a"][layer]
            x = a.norm_sum(x + attend(x, a.cell, everything, 2))
            if kind == "sim":
                f: Any = blocks["f"][0]
                x = f.norm_sum(x + f.cell.down(torch.nn.functional.gelu(f.cell.up(x))))
                continue
            if kind == "norm":
                m: Any = blocks["m"][0]
                e = m.norm_sum(e + attend(e, m.cell, mask, HEADS))
            e = e * mask[:, None]
            fuse: Any = blocks["x"][layer - 1]
            own, words, beside = fuse.cell, fuse.cell.words, fuse.cell.up_entity["up"]
            h = torch.nn.functional.gelu(
                x @ words.up.weight.T + words.up.bias + e @ beside.weight.T + beside.bias
            )
            x = fuse.norm_sum(x + words.down(h))
            e = own.norm_entity(e + own.down_entity(h))
        torch.testing.assert_close(model(batch).last[row, :length], x, rtol=1e-10, atol=1e-10)


def test_plain_layers_are_those_of_bert() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=W, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=INNER, max_position_embeddings=16, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    bert = transformers.BertModel(config, add_pooling_layer=False).double().eval()
    model, batch = build("af*2"), batch_of()
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, theirs in bert.named_parameters():
            theirs.copy_(_as_ours(name, own)[: len(theirs)])  # tables have spare rows
    text = batch.text
    wanted = bert(
        input_ids=text.ids, attention_mask=text.real.long(), token_type_ids=text.tracks["segment"]
    ).last_hidden_state
    found = model(batch).last
    torch.testing.assert_close(found[text.real], wanted[text.real], rtol=1e-9, atol=1e-9)


def _as_ours(name: str, own: dict[str, Any]) -> Tensor:
    """The tensor of ours that BERT calls `name`."""
    kind = name.rpartition(".")[2]
    if name.startswith("embeddings"):
        tables = {
            "word_embeddings": "embedding.token.weight",
            "position_embeddings": "position.weight",
            "token_type_embeddings": "embedding.segment.weight",
            "LayerNorm": f"embedding.norm.{kind}",
        }
        found = tables[name.split(".")[1]]
        if found not in own:
            found = next(key for key in own if key.startswith("position"))
        return own[found]
    layer = int(name.split(".")[2])
    for place, part in enumerate(("query", "key", "value")):
        if f".{part}." in name:
            return own[f"stack.blocks.a.{layer}.cell.qkv.{kind}"].chunk(3)[place]
    for theirs, ours in (
        ("attention.output.dense", "a.{}.cell.out"),
        ("attention.output.LayerNorm", "a.{}.norm_sum"),
        ("intermediate.dense", "f.{}.cell.up"),
        ("output.dense", "f.{}.cell.down"),
        ("output.LayerNorm", "f.{}.norm_sum"),
    ):
        if theirs in name:
            return own[f"stack.blocks.{ours.format(layer)}.{kind}"]
    raise KeyError(name)


def test_without_entity_weights_it_is_the_plain_model() -> None:
    model, plain = build("ax amx"), encoder().double()
    with torch.no_grad():
        for block in model.stack.blocks["x"]:  # type: ignore[union-attr]
            block.cell.fit_in()
    state = {
        name.replace("blocks.x.", "blocks.f.").replace("cell.words.", "cell."): value
        for name, value in model.state_dict().items()
        if not any(part in name for part in ("entity", ".m.", "entities"))
    }
    plain.load_state_dict(state)
    batch = batch_of()
    torch.testing.assert_close(model(batch).last, plain(batch).last, rtol=1e-12, atol=1e-12)


def test_without_a_track_no_token_has_an_entity() -> None:
    model = build("ax amx")
    batch, without = batch_of(), batch_of(entity=False)
    empty = batch.text.with_tracks(entity=torch.zeros(3, 9, dtype=torch.int64))
    zeros = Batch(batch.key, {"text": empty})
    torch.testing.assert_close(model(without).last, model(zeros).last)
    assert (model(batch).last - model(zeros).last).abs().max() > 1e-3


def test_documents_of_a_packed_row_do_not_see_each_other() -> None:
    model, batch = build("ax amx"), batch_of(document=True)
    changed = batch.text.tracks["entity"].clone()
    changed[:, 6] = 19
    other = Batch(batch.key, {"text": batch.text.with_tracks(entity=changed)})
    before, after = model(batch).last, model(other).last
    assert torch.equal(before[:, :5], after[:, :5])
    assert (before[0, 5:] - after[0, 5:]).abs().min() > 0


def test_the_last_layer_may_have_no_entities() -> None:
    model = build("ax")
    with torch.no_grad():
        model(batch_of())
    norm = partial(layer_norm, width=W, eps=1e-12)
    cell = EntityFusion(
        width=W, words=WORDS, entity_width=E, norm=norm, dropout=0.0, entity_out=False,
    )  # fmt: skip
    assert not any("down_entity" in name for name, _ in cell.named_parameters())
    assert not cell.facts.also_writes


def write(folder: Path, names: list[str], vectors: np.ndarray) -> str:
    GraphVectors(tuple(names), ("r",), vectors, vectors[:1]).write(folder)
    return str(folder)


def test_vectors_and_their_controls(tmp_path: Path) -> None:
    given = np.arange(5 * E, dtype=np.float32).reshape(5, E)
    path = write(tmp_path / "v", list("abcde"), given)
    ids = torch.tensor([[0, 1, 5, -1, -7, 6]])
    found, there = EntityVectors(path=path, entity_width=E)(ids)
    wanted = np.stack([given[0] * 0, given[0], given[4], given[0], given[1], given[0] * 0])
    assert torch.equal(found[0], torch.from_numpy(wanted))
    assert there.tolist() == [[False, True, True, True, True, False]]
    shuffled = EntityVectors(path=path, entity_width=E, control="shuffled", seed=2)
    rows = shuffled.vectors[1:].numpy()
    assert sorted(rows[:, 0].tolist()) == given[:, 0].tolist()
    assert (rows != given).any()
    random = EntityVectors(path=path, entity_width=E, control="random", seed=2)
    assert not np.isin(random.vectors[1:].numpy(), given).any()
    with pytest.raises(ConfigError, match="8, the width of the vectors") as refused:
        EntityVectors(path=path, entity_width=4)
    assert "model.entities.entity_width=8" in str(refused.value)


def test_ids_of_a_knowledge_directory_find_vectors_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    folder.mkdir()
    (folder / "knowledge.json").write_text('{"version": 1}')
    (folder / "entities.jsonl").write_text('{"name": "c"}\n{"name": "none"}\n{"name": "a"}\n')
    given = np.arange(3 * E, dtype=np.float32).reshape(3, E) + 1
    path = write(tmp_path / "v", list("abc"), given)
    table = EntityVectors(path=path, knowledge=str(folder), entity_width=E)
    found, there = table(torch.tensor([1, 2, 3]))
    assert torch.equal(found, torch.from_numpy(given[[2, 2, 0]] * [[1], [0], [1]]).float())
    assert there.tolist() == [True, False, True]
    other = write(tmp_path / "w", list("xyz"), given)
    with pytest.raises(DataError, match="none of its 3 entities has a vector"):
        EntityVectors(path=other, knowledge=str(folder), entity_width=E)


def test_checkpoints_name_the_vectors_and_do_not_hold_them() -> None:
    state = build("ax").state_dict()
    assert {name for name in state if "entities" in name} == {"entities.fingerprint"}
    build("ax").load_state_dict(state)
    with pytest.raises(
        DataError, match="the entity vectors differ from the ones of this model's training"
    ):
        build("ax", seed=4).load_state_dict(state)
