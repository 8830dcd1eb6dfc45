"""LUKE against transformers' classes with the same random weights, and its noise by a loop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.heads.entity_lm import EntityLMHead
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.models.luke import Luke
from plmctl.nn.cells.convolution import DepthwiseConvolution
from plmctl.nn.cells.entity_aware_attention import EntityAwareAttention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.entity_tokens import FIRST, MASKED, EntityTokens
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned, Rotary
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from plmctl.noise.entity_tokens import EntityTokenMask
from plmctl.objectives.entity_mlm import EntityMLM
from tests.knowledge.tables import write_knowledge

W, INNER, HEADS, V, COUNT, ENTITY, PLACES = 16, 24, 2, 40, 9, 8, 12
EPS = 1e-5


def build(
    aware: bool = True, layout: str = "af*2", attention: Any = None, asked: int = 0, **settings: Any
) -> Luke:
    norm = partial(layer_norm, width=W, eps=EPS)
    given: dict[str, Any] = {
        "position": Learned(width=W, max_length=PLACES),
        "pattern": Full(),
        **settings,
    }
    torch.manual_seed(0)
    return Luke(
        embedding=Embedding(vocab_size=V, width=W, dropout=0.0, norm=norm),
        stack=Stack(
            layout=layout,
            cells={
                "a": partial(
                    EntityAwareAttention, width=W, num_heads=HEADS, dropout=0.0, aware=aware,
                    **attention or {},
                ),
                "s": partial(DepthwiseConvolution, width=W, kernel=3, causal=False, adjacent=0.2),
                "f": partial(FeedForward, width=W, inner_width=INNER, activation="gelu"),
            },
            residual=PostNorm(norm=norm, dropout=0.0),
        ),
        entities=EntityTokens(
            count=COUNT, entity_width=ENTITY, width=W, max_length=PLACES,
            norm=partial(layer_norm, eps=EPS), dropout=0.0, asked=asked,
        ),
        **given,
    ).eval()  # fmt: skip


def batch_of() -> Batch:
    """Rows of 10, 7 and 9 tokens with 3, 1 and 0 entities."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, V, (3, 10), generator=generator)
    entities = Seq(
        torch.tensor([[FIRST + 4, MASKED, FIRST], [FIRST + 8, 0, 0], [0, 0, 0]]),
        torch.tensor([3, 1, 0]),
        {
            "mention_start": torch.tensor([[0, 3, 7], [2, 0, 0], [0, 0, 0]]),
            "mention_size": torch.tensor([[2, 4, 1], [1, 0, 0], [0, 0, 0]]),
        },
    )
    seqs = {"text": Seq(ids, torch.tensor([10, 7, 9])), "entities": entities}
    return Batch(torch.arange(3), seqs)


def published(aware: bool, kind: str = "LukeForMaskedLM", **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LukeConfig(
        vocab_size=V,
        entity_vocab_size=COUNT + FIRST,
        hidden_size=W,
        entity_emb_size=ENTITY,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        max_position_embeddings=PLACES + 2,
        type_vocab_size=1,
        layer_norm_eps=EPS,
        hidden_act="gelu",
        use_entity_aware_attention=aware,
        pad_token_id=1,
        **settings,
    )
    torch.manual_seed(2)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


def names_of(aware: bool) -> dict[str, str]:
    """{our tensor: transformers' name}; `*` where several of theirs are one of ours."""
    names = {
        "embedding.token.weight": "embeddings.word_embeddings.weight",
        "embedding.norm": "embeddings.LayerNorm",
        "entities.table.weight": "entity_embeddings.entity_embeddings.weight",
        "entities.project.weight": "entity_embeddings.entity_embedding_dense.weight",
        "entities.kind.weight": "entity_embeddings.token_type_embeddings.weight",
        "entities.norm": "entity_embeddings.LayerNorm",
    }
    for n in range(2):
        layer, a, f = f"encoder.layer.{n}", f"stack.blocks.a.{n}", f"stack.blocks.f.{n}"
        names |= {
            f"{a}.cell.out": f"{layer}.attention.output.dense",
            f"{a}.norm_sum": f"{layer}.attention.output.LayerNorm",
            f"{f}.cell.up": f"{layer}.intermediate.dense",
            f"{f}.cell.down": f"{layer}.output.dense",
            f"{f}.norm_sum": f"{layer}.output.LayerNorm",
        }
    return names


def copy(theirs: Any, ours: Luke, aware: bool) -> None:
    """The weights of theirs into ours."""
    state = {name.removeprefix("luke."): tensor for name, tensor in theirs.state_dict().items()}
    own = dict(ours.named_parameters())
    with torch.no_grad():
        for ours_name, name in names_of(aware).items():
            ends = [""] if ours_name.endswith("weight") else [".weight", ".bias"]
            for end in ends:
                rows = state[name + end]
                own[ours_name + end][: len(rows)] = rows
        # RoBERTa's positions begin behind the padding; its only kind of token is added to all
        kind = state["embeddings.token_type_embeddings.weight"]
        places = state["embeddings.position_embeddings.weight"][2:] + kind
        own["position.table.weight"].copy_(places[:PLACES])
        # the positions of mentions are given by number, from 0
        places = state["entity_embeddings.position_embeddings.weight"][:PLACES]
        own["entities.position.weight"].copy_(places)
        for n in range(2):
            for end in ("weight", "bias"):
                parts = [
                    state[f"encoder.layer.{n}.attention.self.{part}.{end}"]
                    for part in ("query", "key", "value")
                ]
                own[f"stack.blocks.a.{n}.cell.qkv.{end}"].copy_(torch.cat(parts))
                if aware:
                    parts = [
                        state[f"encoder.layer.{n}.attention.self.{part}_query.{end}"]
                        for part in ("w2e", "e2w", "e2e")
                    ]
                    own[f"stack.blocks.a.{n}.cell.queries.{end}"].copy_(torch.cat(parts))


def ask(theirs: Any, batch: Batch, ids: Tensor | None = None) -> Any:
    """What theirs says of a batch, whose entities have other `ids` there."""
    entities, text = batch.seqs["entities"], batch.text
    start, size = (entities.tracks[f"mention_{name}"] for name in ("start", "size"))
    places = torch.full((*entities.ids.shape, 5), -1)
    for row in range(len(places)):
        for e in range(int(entities.length[row])):
            for k in range(int(size[row, e])):
                places[row, e, k] = start[row, e] + k
    with torch.no_grad():
        return theirs(
            input_ids=torch.where(text.real, text.ids, 1),
            attention_mask=text.real.long(),
            entity_ids=entities.ids if ids is None else ids,
            entity_attention_mask=entities.real.long(),
            entity_position_ids=places,
            output_hidden_states=True,
        )


@pytest.mark.parity
@pytest.mark.parametrize("aware", [True, False])
def test_states_and_predictions_are_those_of_transformers(aware: bool) -> None:
    theirs, ours, batch = published(aware), build(aware), batch_of()
    copy(theirs, ours, aware)
    wanted = ask(theirs, batch)
    with torch.no_grad():
        hidden = ours(batch, record=frozenset({"hidden"}))
    real, entities = batch.text.real, batch.seqs["entities"].real
    assert_close(hidden.last[real], wanted.hidden_states[-1][real], atol=1e-5, rtol=1e-4)
    found = hidden.streams["entities"][entities]
    assert_close(found, wanted.entity_hidden_states[-1][entities], atol=1e-5, rtol=1e-4)
    assert_close(
        hidden.recorded["hidden"][1][real], wanted.hidden_states[1][real], atol=1e-5, rtol=1e-4
    )
    state, head = theirs.state_dict(), EntityLMHead(
        width=W, entity_width=ENTITY, count=COUNT, activation="gelu", eps=EPS
    )  # fmt: skip
    with torch.no_grad():
        for part, name in (("dense", "dense"), ("norm", "LayerNorm")):
            for end in ("weight", "bias"):
                tensor = state[f"entity_predictions.transform.{name}.{end}"]
                getattr(getattr(head, part), end).copy_(tensor)
        head.bias.copy_(state["entity_predictions.bias"][FIRST:])
        scores = head.score(found, ours.entities.table.weight[FIRST:])
    assert_close(scores, wanted.entity_logits[entities][:, FIRST:], atol=1e-4, rtol=1e-4)


def test_without_entities_it_is_an_encoder() -> None:
    model, batch = build(), batch_of()
    text = Batch(batch.key, {"text": batch.text})
    alone = model(text).last
    assert not model(text).streams
    with_them = model(batch).last
    assert_close(alone[2, :9], with_them[2, :9])  # the third row has none
    assert (alone[0] - with_them[0]).abs().max() > 1e-3
    control = build(read_entities=False)
    control.load_state_dict(model.state_dict())
    assert torch.equal(control(batch).last, alone)
    with pytest.raises(ConfigError, match=r"objective=\[mlm\]"):
        EntityMLM(model=Model(backbone=control, heads={}))


def test_documents_of_a_packed_row_do_not_see_each_others_entities() -> None:
    model, batch = build(), batch_of()
    document = torch.tensor([[0] * 5 + [1] * 5] * 3)
    position = torch.tensor([[*range(5), *range(5)]] * 3)
    seq = Seq(batch.text.ids, batch.text.length, {"document": document, "position": position})
    packed = Batch(batch.key, {**batch.seqs, "text": seq})
    other = batch.seqs["entities"]
    changed = Seq(other.ids.clone(), other.length, other.tracks)
    changed.ids[0, 2] = FIRST + 5  # mentioned at token 7, in the second document
    before = model(packed).last
    after = model(Batch(batch.key, {"text": seq, "entities": changed})).last
    assert_close(before[0, :5], after[0, :5])
    assert (before[0, 5:] - after[0, 5:]).abs().max() > 1e-4


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="words and entities all see each other"):
        build(pattern=Causal())
    with pytest.raises(ConfigError, match="queries have maps of their own"):
        EntityAwareAttention(width=W, num_heads=HEADS, dropout=0.0, projections="shared")


@pytest.mark.parametrize("settings", [{}, {"qk_norm": True, "bias": False}, {"scores": "dot"}])
def test_entities_stand_where_they_are_mentioned_by_a_loop(settings: dict[str, Any]) -> None:
    """Scores of each pair by its own query map, queries and keys turned by their places."""
    model, batch = build(position=Rotary(), layout="a", attention=settings), batch_of()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model = model.double()
    entities, block = batch.seqs["entities"], model.stack.blocks["a"][0]  # type: ignore[index]
    cell: Any = block.cell
    words = model.embed(batch)
    both = torch.cat([words, model.entities(entities, 10)], 1)[0]  # the first row is full
    # mentions of 2, 4 and 1 tokens, from 0, 3 and 7
    places = torch.tensor([*range(10), 0, 4, 7])[None]
    named = [(cell.qkv, 0), (cell.queries, 0), (cell.queries, 1), (cell.queries, 2)]
    queries = [
        torch.nn.functional.linear(
            both, part.weight.chunk(3)[n], None if part.bias is None else part.bias.chunk(3)[n]
        )
        for part, n in named
    ]
    _, k, v = cell.qkv(both).chunk(3, -1)
    columns, mixed = W // HEADS, torch.zeros(13, W, dtype=torch.float64)
    for head in range(HEADS):
        own = slice(head * columns, (head + 1) * columns)
        key = k[:, own] if cell.k_norm is None else cell.k_norm(k[:, own])
        _, key = Rotary().rotate(key[None, None], key[None, None], places, places)
        scores = torch.zeros(13, 13, dtype=torch.float64)
        for i in range(13):
            for j in range(13):
                query = queries[2 * (i >= 10) + (j >= 10)][i, own]
                query = query if cell.q_norm is None else cell.q_norm(query)
                turned, _ = Rotary().rotate(
                    query[None, None, None], key[:, :, :1], places[:, i, None], places[:, :1]
                )
                scale = 1 if settings.get("scores") == "dot" else columns**-0.5
                scores[i, j] = turned[0, 0, 0] @ key[0, 0, j] * scale
        mixed[:, own] = scores.softmax(-1) @ v[:, own]
    wanted = block.norm_sum(both + cell.out(mixed))
    found = model(batch)
    assert_close(found.last[0], wanted[:10], rtol=1e-9, atol=1e-9)
    assert_close(found.streams["entities"][0], wanted[10:], rtol=1e-9, atol=1e-9)


def test_neighbours_are_words_alone() -> None:
    """A convolution reads no entity beside a word, and an entity reads itself alone."""
    model, batch = build(layout="s"), batch_of()
    without = Batch(batch.key, {"text": batch.text})
    found, real = model(batch), batch.text.real
    assert_close(found.last[real], model(without).last[real])
    entities = batch.seqs["entities"]
    changed = Seq(entities.ids.clone(), entities.length, entities.tracks)
    changed.ids[0, 1] = FIRST + 2
    after = model(Batch(batch.key, {**batch.seqs, "entities": changed})).streams["entities"]
    same = (after == found.streams["entities"]).all(-1)
    assert same[0].tolist() == [True, False, True]


def test_tokens_beyond_the_last_position_have_none() -> None:
    part = build().entities
    ids = torch.tensor([[FIRST, FIRST + 1]])
    tracks = {
        "mention_start": torch.tensor([[PLACES - 1, PLACES + 1]]),
        "mention_size": torch.tensor([[2, 1]]),
    }
    found = part(Seq(ids, torch.tensor([2]), tracks), PLACES + 3)
    plain = part.project(part.table(ids)) + part.kind.weight[0]
    last = part.position.weight[PLACES - 1] / 2
    wanted = torch.stack([plain[0, 0] + last, plain[0, 1]])
    assert_close(found[0], part.norm(wanted))


def test_query_maps_begin_as_the_trained_one() -> None:
    cell = EntityAwareAttention(width=W, num_heads=HEADS, dropout=0.0)
    cell.fit_in()
    assert isinstance(cell.qkv, torch.nn.Linear)
    assert cell.queries is not None
    for part in cell.queries.weight.chunk(3):
        assert torch.equal(part, cell.qkv.weight[:W])
    assert torch.equal(cell.queries.bias[W : 2 * W], cell.qkv.bias[:W])


def cells_of(spans: list[tuple[int, int, int, int]], n: int = 3) -> Rows:
    ids = np.arange(n * 20, dtype=np.int32).reshape(n, 20) + 10
    table = np.array(spans, np.int64).reshape(-1, 4)
    seq = Seq(ids, np.full(n, 20))
    return Rows(np.arange(n) + 7, {"text": seq}, spans={"entity": table})


def test_entities_of_rows_by_a_loop() -> None:
    spans = [(0, 2, 3, 5), (0, 9, 1, 0), (0, 12, 2, 99), (2, 4, 1, 8)]
    noise = EntityTokenMask(count=COUNT, most=2, rate=0.0)
    rows = noise(cells_of(spans), Draws(0, 0))
    sequence = rows.seqs["entities"]
    assert sequence.ids.tolist() == [[FIRST + 5, FIRST], [0, 0], [FIRST + 8, 0]]
    assert sequence.length.tolist() == [2, 0, 1]
    assert sequence.tracks["mention_start"].tolist() == [[2, 9], [0, 0], [4, 0]]
    assert sequence.tracks["mention_size"].tolist() == [[3, 1], [0, 0], [1, 0]]
    assert (rows.targets["entities"] == IGNORE).all()
    hidden = EntityTokenMask(count=COUNT, most=4, rate=1.0)(cells_of(spans), Draws(0, 0))
    assert hidden.seqs["entities"].ids[0].tolist() == [MASKED, MASKED, 1, 0]  # 99 is unknown
    assert hidden.targets["entities"][0].tolist() == [5, 0, IGNORE, IGNORE]


def test_rates_and_the_control() -> None:
    spans = [(n, t, 1, t % COUNT) for n in range(300) for t in range(0, 20, 2)]
    noise = EntityTokenMask(count=COUNT, most=10)
    rows = noise(cells_of(spans, 300), Draws(0, 0))
    share = (rows.targets["entities"] != IGNORE).mean()
    assert share == pytest.approx(0.15, abs=0.02)
    part = noise(cells_of(spans, 300), Draws(0, 0)).targets["entities"]
    assert (part == rows.targets["entities"]).all()
    control = EntityTokenMask(count=COUNT, most=10, rate=0.0, control="random")
    shown = control(cells_of(spans, 300), Draws(0, 0)).seqs["entities"].ids - FIRST
    true = noise(cells_of(spans, 300), Draws(0, 0)).seqs["entities"]
    assert shown.min() == 0
    assert shown.max() == COUNT - 1
    assert (shown == np.arange(0, 20, 2) % COUNT).mean() == pytest.approx(1 / COUNT, abs=0.03)
    assert (true.length == 10).all()


def test_shuffled_entities_are_as_frequent(tmp_path: Path) -> None:
    folder = write_knowledge(tmp_path / "k")
    wanted = np.array([11, 7, 6, 8, 4, 3, 1]) / 40  # mentions by all names
    settings: dict[str, Any] = {"count": 6, "most": 10, "rate": 0.0, "control": "shuffled"}
    spans = [(n, t, 1, 0) for n in range(400) for t in range(0, 20, 2)]
    rows = EntityTokenMask(**settings, home=str(folder))(cells_of(spans, 400), Draws(0, 0))
    ids = rows.seqs["entities"].ids
    shares = np.bincount(np.where(ids == 1, 6, ids - FIRST).ravel(), minlength=7) / ids.size
    np.testing.assert_allclose(shares, wanted, atol=0.025)  # the seventh is unknown
    with pytest.raises(ConfigError, match=r"control=random"):
        EntityTokenMask(**settings)(cells_of(spans, 400), Draws(0, 0))
    # where a dictionary has linked the text, its counts are not those of the text
    (folder / "mentions.txt").write_text("0\n0\n1\n0\n0\n0\n0\n")
    rows = EntityTokenMask(**settings, home=str(folder))(cells_of(spans, 400), Draws(0, 0))
    assert (rows.seqs["entities"].ids == FIRST + 2).all()


def test_hidden_entities_are_asked_for_among_all() -> None:
    model = build()
    head = EntityLMHead(width=W, entity_width=ENTITY, count=COUNT, activation="gelu")
    lm = LMHead(
        width=W, vocab_size=V, token_embedding=model.token_embedding, tied=True,
        transform=False, bias=False,
    )  # fmt: skip
    whole = Model(backbone=model, heads={"entities": head, "mlm": lm}).eval()
    spans = [(0, 2, 3, 5), (0, 6, 1, 0), (2, 4, 1, 8)]
    rows = EntityTokenMask(count=COUNT, most=2, rate=1.0)(cells_of(spans), Draws(0, 0))
    rows.seqs["text"].ids[:] %= V
    rows = rows.with_seq("text", Seq(rows.seqs["text"].ids[:, :12], np.full(3, 12)))
    batch = collate(rows, {})
    objective = EntityMLM(model=whole)
    assert objective.counts(batch) == {"entities": 3}
    out = objective(whole, batch)
    states = model(batch).streams["entities"]
    loss: Tensor = torch.zeros(())
    for (row, place), entity in (((0, 0), 5), ((0, 1), 0), ((2, 0), 8)):
        m = head.norm(head.activation(head.dense(states[row, place])))
        logits = torch.stack(
            [m @ model.entities.table.weight[FIRST + e] + head.bias[e] for e in range(COUNT)]
        )
        loss = loss - torch.log_softmax(logits, 0)[entity]
    assert_close(out.terms["entities"].total, loss)
