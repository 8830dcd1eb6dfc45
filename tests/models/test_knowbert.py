"""KnowBERT: the cell by loops in float64, its start as an inverse, rows without mentions, what
mentions are, candidates and their controls, both losses of linking.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from plmctl.attention.patterns.base import Full
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.knowledge.candidates import CandidateTable
from plmctl.models.base import Model
from plmctl.models.knowbert import KnowBert, KnowledgeBase
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.cells.knowledge_attention import KnowledgeAttention, name_stream
from plmctl.nn.embeddings import Embedding
from plmctl.nn.entities import EntityVectors
from plmctl.nn.env import Env, Streams
from plmctl.nn.init import truncated_normal
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from plmctl.noise.entity_drop import EntityDrop
from plmctl.objectives.entity_linking import EntityLinking
from tests.models.test_encoder import encoder, perturbed

W, E, K = 16, 8, 3


def build(layout: str = "afk af", *, two: bool = False, **settings: Any) -> KnowBert:
    norm = partial(layer_norm, width=W, eps=1e-12)
    cells = {
        "a": partial(Attention, width=W, num_heads=2, dropout=0.0),
        "f": partial(FeedForward, width=W, inner_width=32, activation="gelu"),
        "k": partial(
            KnowledgeAttention, width=W, entity_width=E, entity_heads=2, entity_inner=12,
            dropout=0.0, **settings,
        ),
        "w": partial(
            KnowledgeAttention, width=W, entity_width=4, entity_heads=2, entity_inner=6,
            dropout=0.0, base="sense",
        ),
    }  # fmt: skip
    model = KnowBert(
        embedding=Embedding(vocab_size=50, width=W, dropout=0.0, segments=2, norm=norm),
        position=Learned(width=W, max_length=16),
        stack=Stack(layout=layout, cells=cells, residual=PostNorm(norm=norm, dropout=0.0)),
        pattern=Full(),
        entities=EntityVectors(entity_width=E, count=20, seed=3),
        candidates=CandidateTable(most=K, count=20),
        further={"sense": second()} if two else {},
    )
    perturbed(model)
    return model.double()


def second() -> KnowledgeBase:
    """Another base: more entities with narrower vectors and more candidates."""
    vectors = EntityVectors(entity_width=4, count=30, seed=8, marks="sense")
    return KnowledgeBase(entities=vectors, candidates=CandidateTable(most=5, count=30))


def batch_of(*, document: bool = False, track: Any = None) -> Batch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 50, (3, 9), generator=generator)
    if track is None:
        track = torch.zeros(3, 9, dtype=torch.int64)
        track[0, 2:4], track[0, 4], track[0, 6:9], track[1, 3] = 7, 12, 20, 3
    tracks = {"entity": track}
    if document:
        tracks["document"] = torch.tensor([[0] * 5 + [1] * 4] * 3)
        tracks["position"] = torch.tensor([[*range(5), *range(4)]] * 3)
    return Batch(torch.arange(3), {"text": Seq(ids, torch.tensor([9, 7, 9]), tracks)})


def test_mentions_are_runs_of_a_number() -> None:
    choices = build().find_choices(batch_of().text)
    assert choices.mentions[:, :3].tolist() == [[0, 2, 2], [0, 4, 1], [0, 6, 3], [1, 3, 1]]
    assert choices.gold.tolist() == [6, 11, 19, 2]
    assert choices.ids.tolist() == [[6, 7, 8], [9, 10, 11], [18, 19, -1], [0, 1, 2]]
    two = torch.zeros(3, 9, dtype=torch.int64)
    two[0, 4:6] = 5  # of two documents
    split = build().find_choices(batch_of(document=True, track=two).text)
    assert split.mentions[:, :3].tolist() == [[0, 4, 1], [0, 5, 1]]


def read_by_hand(x: Tensor, y: list[Tensor], part: Any) -> Tensor:
    """One vector that reads others."""
    columns = len(x) // part.heads
    q, mixed = part.q(x), torch.zeros_like(x)
    for head in range(part.heads):
        own = slice(head * columns, (head + 1) * columns)
        keys = [part.kv(each)[: len(x)][own] for each in y]
        values = [part.kv(each)[len(x) :][own] for each in y]
        scores = torch.stack([q[own] @ key / math.sqrt(columns) for key in keys])
        shares = scores.softmax(0)
        mixed[own] = torch.stack([s * v for s, v in zip(shares, values, strict=True)]).sum(0)
    x = part.norms[0](x + part.out(mixed))
    return part.norms[1](x + part.down(torch.nn.functional.gelu(part.up(x))))


@pytest.mark.parametrize("threshold", [None, 0.05])
@pytest.mark.parametrize("document", [False, True])
def test_the_cell_by_loops(document: bool, threshold: Any) -> None:
    model, batch = build("k", threshold=threshold), batch_of(document=document)
    block: Any = model.stack.blocks["k"][0]  # type: ignore[index]
    cell, x = block.cell, model.embed(batch)
    hidden = model(batch)
    choices, vectors = model.find_choices(batch.text), model.entities.vectors.double()
    mentions, priors = choices.mentions.tolist(), choices.priors.double()
    p = cell.maps.there(x)
    pooled = []
    for row, start, length, _ in mentions:
        tokens = p[row, start : start + length]
        shares = cell.pool(tokens)[:, 0].softmax(0)
        pooled.append(cell.norm((shares[:, None] * tokens).sum(0)))
    chosen, scores = [], []
    for number, (*_, home) in enumerate(mentions):
        near = [s for s, each in zip(pooled, mentions, strict=True) if each[3] == home]
        s, psi = read_by_hand(pooled[number], near, cell.among), []
        own = [e for e in choices.ids[number].tolist() if e >= 0]
        for place, entity in enumerate(own):
            dot = s @ vectors[entity + 1] / math.sqrt(E)
            both = torch.stack([dot, priors[number, place]])
            psi.append(cell.score(torch.relu(cell.hidden(both)))[0])
        scores.append(torch.stack(psi))
        kept = [n for n, one in enumerate(psi) if threshold is None or one > threshold]
        if kept:
            shares = torch.stack([psi[n] for n in kept]).softmax(0)
            entity = sum(w * vectors[own[n] + 1] for w, n in zip(shares, kept, strict=True))
        else:
            entity = cell.nothing
        chosen.append(cell.chosen_norm(s + entity))
    noted = hidden.noted[cell][0]
    for found, psi in zip(noted, scores, strict=True):
        torch.testing.assert_close(found[: len(psi)], psi, rtol=1e-9, atol=1e-9)
    documents = batch.text.tracks.get("document", torch.zeros(3, 9, dtype=torch.int64))
    for row in range(3):
        for column in range(int(batch.text.length[row])):
            home = row * 9 + int(documents[row, column])
            near = [c for c, each in zip(chosen, mentions, strict=True) if each[3] == home]
            out = torch.zeros(W, dtype=torch.float64)
            if near:
                out = cell.maps.back(read_by_hand(p[row, column], near, cell.reader))
            wanted = block.norm_sum(x[row, column] + out)
            torch.testing.assert_close(hidden.last[row, column], wanted, rtol=1e-8, atol=1e-8)


def with_senses(batch: Batch) -> Batch:
    """It, with mentions of a second base, which overlap those of the first."""
    track = torch.zeros(3, 9, dtype=torch.int64)
    track[0, 1:3], track[1, 5], track[2, 0] = 28, 3, 9
    text = replace(batch.text, tracks={**batch.text.tracks, "sense": track})
    return Batch(batch.key, {"text": text})


def test_each_cell_chooses_in_its_own_base() -> None:
    """A cell of the second base does what it does where that is the only one, whatever else is
    marked; and so does a cell of the first.
    """
    model, batch = build("k w", two=True), with_senses(batch_of())
    blocks: Any = model.stack.blocks
    first, other = (blocks[letter][0].cell for letter in "kw")
    choices = model.find_choices(batch.text, "sense")
    assert choices.mentions[:, :3].tolist() == [[0, 1, 2], [1, 5, 1], [2, 0, 1]]
    assert choices.gold.tolist() == [27, 2, 8]
    assert choices.ids[0].tolist() == [25, 26, 27, 28, 29]
    hidden = model(batch)
    alone = build("k")
    alone.load_state_dict(
        {name: x for name, x in model.state_dict().items() if name in alone.state_dict()}
    )
    wanted = alone(batch_of()).noted[alone.linkers[0]][0]
    torch.testing.assert_close(hidden.noted[first][0], wanted)
    # the second base in the place of the first, before the same states
    x = torch.randn(3, 9, W, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    base, found = model.find_base("sense"), model.find_choices(batch.text, "sense")
    rows = base.find_rows(found)
    streams = {
        "mentions": found.mentions,
        "candidates": base.entities.vectors[rows].double(),
        "priors": found.priors.double(),
        "possible": (rows > 0).double(),
    }
    plain = KnowledgeAttention(
        width=W, entity_width=4, entity_heads=2, entity_inner=6, dropout=0.0
    ).double()
    plain.load_state_dict(other.state_dict())
    env = Env({}, [])
    named = {name_stream(name, "sense"): each for name, each in streams.items()}
    one = other(Streams({"text": x, **named}, {}), env)
    torch.testing.assert_close(one, plain(Streams({"text": x, **streams}, {}), env))
    assert one[2].abs().sum() > 0  # the row in which nothing else is marked


def test_each_base_has_a_loss_of_its_own() -> None:
    model, batch = Model(backbone=build("k w", two=True), heads={}), with_senses(batch_of())
    backbone: Any = model.backbone
    objective = EntityLinking(model=model, loss="softmax", base="sense")
    assert objective.facts.terms == {"sense_linking"}
    assert {"tracks.sense", "targets.sense"} <= objective.facts.needs
    (cell,) = (cell for cell in backbone.linkers if cell.base == "sense")
    total = 0.0
    noted, gold = model(batch).noted[cell][0].tolist(), [27, 2, 8]
    for psi, own, entity in zip(noted, [range(25, 30), range(5), range(5, 10)], gold, strict=True):
        total -= psi[own.index(entity)] - math.log(sum(map(math.exp, psi)))
    out = objective(model, batch)
    assert out.terms["sense_linking"].total.item() == pytest.approx(total, rel=1e-9)
    assert objective.counts(batch) == {"sense_linking": 3}
    assert EntityLinking(model=model).counts(batch) == {"entity_linking": 4}
    with pytest.raises(ConfigError, match="a base that a cell reads: sense"):
        EntityLinking(model=model, base="sens")
    with pytest.raises(ConfigError, match=r"one of model\.further: none"):
        build("k w")
    with pytest.raises(
        ConfigError, match=r"size\.num_layers=1: at least 2: .*\n  fix: size\.num_la"
    ):
        build("akwf", two=True)


def test_the_way_back_begins_as_the_pseudo_inverse() -> None:
    model = build()
    truncated_normal(model, std=0.02, generator=torch.Generator().manual_seed(0))
    maps = model.linkers[0].maps
    there, back = maps.there.weight, maps.back.weight
    torch.testing.assert_close(there @ back, torch.eye(E, dtype=torch.float64))
    wanted = there.T @ torch.linalg.inv(there @ there.T)
    torch.testing.assert_close(back, wanted)


def test_without_mentions_nothing_is_added() -> None:
    model, plain = build(), build("af*2")
    own = {n: x for n, x in model.state_dict().items() if ".k." not in n}
    plain.load_state_dict(own)
    with torch.no_grad():  # the norm of the cell, as if it were not there
        norm: Any = model.stack.blocks["k"][0].norm_sum  # type: ignore[index]
        norm.weight.fill_(1.0), norm.bias.zero_()
        for part in (model, plain):
            last: Any = part.stack.blocks["f"][0].norm_sum  # type: ignore[index]
            last.weight.fill_(1.0), last.bias.zero_()
    nobody = batch_of(track=torch.zeros(3, 9, dtype=torch.int64))
    torch.testing.assert_close(model(nobody).last, plain(nobody).last, rtol=1e-8, atol=1e-8)
    bare = Batch(nobody.key, {"text": replace(nobody.text, tracks={})})
    torch.testing.assert_close(model(bare).last, model(nobody).last)


def test_candidates_of_a_knowledge_directory(tmp_path: Path) -> None:
    entities = [
        {"name": "Paris", "aliases": [["Paris", 9], ["capital", 1]]},
        {"name": "Paris, Texas", "aliases": [["Paris", 3]]},
        {"name": "London", "aliases": []},
        {"name": "Rome", "aliases": [["capital", 3]]},
    ]
    (tmp_path / "knowledge.json").write_text('{"version": 1}')
    lines = "".join(json.dumps(each) + "\n" for each in entities)
    (tmp_path / "entities.jsonl").write_text(lines)
    table = CandidateTable(path=str(tmp_path), most=2)
    ids, priors = table.tables
    assert ids.tolist() == [[0, 1], [0, 1], [2, -1], [3, 0]]
    np.testing.assert_allclose(priors, [[0.75, 0.25], [0.75, 0.25], [1, 0], [0.75, 0.25]])
    shuffled = CandidateTable(path=str(tmp_path), most=2, control="shuffled", seed=2).tables[0]
    assert sorted(shuffled.tolist()) == sorted(ids.tolist())
    assert shuffled.tolist() != ids.tolist()


@pytest.mark.parametrize("kind", ["margin", "softmax"])
def test_linking_by_a_loop(kind: Any) -> None:
    model = Model(backbone=build(), heads={})
    objective = EntityLinking(model=model, loss=kind, margin=0.2)
    batch = batch_of()
    backbone: Any = model.backbone
    noted = model(batch).noted[backbone.linkers[0]][0].tolist()
    gold = [6, 11, 19, 2]
    candidates = [[6, 7, 8], [9, 10, 11], [18, 19], [0, 1, 2]]
    total, right = 0.0, 0
    for scores, own, entity in zip(noted, candidates, gold, strict=True):
        psi, place = scores[: len(own)], own.index(entity)
        if kind == "softmax":
            total -= psi[place] - math.log(sum(map(math.exp, psi)))
        else:
            each = [max(0, 0.2 - s) if n == place else max(0, 0.2 + s) for n, s in enumerate(psi)]
            total += sum(each) / len(each)
        right += psi[place] == max(psi)
    out = objective(model, batch)
    assert out.terms["entity_linking"].total.item() == pytest.approx(total, rel=1e-9)
    assert float(out.logs["acc/entity_linking"][0]) == right
    assert objective.counts(batch) == {"entity_linking": 4}
    nobody = batch_of(track=torch.zeros(3, 9, dtype=torch.int64))
    assert objective.counts(nobody) == {"entity_linking": 0}
    assert not objective(model, nobody).terms
    with pytest.raises(ConfigError, match="model=knowbert"):
        EntityLinking(model=Model(backbone=encoder(), heads={}))


def test_mentions_with_a_masked_token_are_not_shown() -> None:
    text = Seq(np.full((2, 8), 9, np.int32), np.array([8, 8]))
    target = np.full((2, 8), IGNORE)
    target[0, 3], target[1, 0] = 5, 5
    spans = np.array([[0, 2, 2, 4], [0, 5, 1, 6], [1, 1, 3, 4]])
    rows = Rows(np.arange(2), {"text": text}, {"mlm": target}, spans={"entity": spans})
    noise = EntityDrop(replaced=0, dropped=0, hide_masked=True)
    track = noise(rows, Draws(0, 0)).seqs["text"].tracks["entity"]
    assert track.tolist() == [[0, 0, 0, 0, 0, 7, 0, 0], [0, 5, 5, 5, 0, 0, 0, 0]]
    assert collate(noise(rows, Draws(0, 0)), {}).counts["entity"] == 6
