"""TSDAE against transformers' BERT with cross-attention, and the noise before it."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertLMHeadModel

from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.causal import Causal
from plmctl.core.batch import Batch, Rows
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from plmctl.noise.base import Chain
from plmctl.noise.source_text import SourceText
from plmctl.noise.word_drop import WordDrop
from plmctl.objectives.tsdae import TSDAE
from tests.objectives.contrastive import VOCAB, V, W, cells_of, encoder

LENGTHS = [10, 7, 9, 4]


def make_decoder(pattern: object = None) -> Encoder:
    norm = partial(layer_norm, width=W, eps=1e-12)
    cells = {
        "a": partial(Attention, width=W, num_heads=2, dropout=0.0),
        "c": partial(CrossAttention, width=W, num_heads=2, dropout=0.0),
        "f": partial(FeedForward, width=W, inner_width=16, activation="gelu"),
    }
    return Encoder(
        embedding=Embedding(vocab_size=V, width=W, dropout=0.0, norm=norm),
        position=Learned(width=W, max_length=16),
        pattern=pattern or Causal(),
        stack=Stack(layout="acf*2", cells=cells, residual=PostNorm(norm=norm, dropout=0.0)),
    ).double()


def make_model() -> Model:
    model = Model(backbone=encoder(0.0, layers=2).backbone, heads={})
    table = model.backbone.token_embedding
    settings = {"tied": True, "transform": True, "bias": True}
    head = LMHead(width=W, vocab_size=V, token_embedding=table, **settings)
    model.heads["mlm"] = head.double()
    for weights in model.parameters():
        weights.data += 0.2 * torch.randn_like(weights)
    return model


def make_words(lengths: list[int], width: int = 10) -> Rows:
    """Rows in which each token is a word."""
    rows = cells_of(lengths, width)
    text = rows.seqs["text"]
    starts = {"word_start": np.ones(text.ids.shape, bool)}
    return replace(rows, seqs={"text": replace(text, tracks=starts)})


def make_batch(objective: TSDAE) -> Batch:
    noise = Chain([WordDrop(vocab=VOCAB, rate=0.6), SourceText()])
    rows = noise(make_words(LENGTHS), Draws(0, 0))
    rows.targets.update(objective.labels(rows))
    return collate(rows, {})


def copy_layers(ours: Encoder, head: LMHead, theirs: BertLMHeadModel) -> None:
    """The weights of a decoder of ours, in transformers' model."""

    def take(to: nn.Module, weight: torch.Tensor, bias: torch.Tensor) -> None:
        to.weight.data, to.bias.data = weight.detach().clone(), bias.detach().clone()

    def attend(to: nn.Module, norm: nn.Module, maps: list[tuple[torch.Tensor, ...]]) -> None:
        for part, values in zip((to.self.query, to.self.key, to.self.value), maps, strict=True):
            take(part, *values)
        take(to.output.LayerNorm, norm.weight, norm.bias)

    def thirds(part: nn.Linear, count: int) -> list[tuple[torch.Tensor, ...]]:
        return list(zip(part.weight.chunk(count), part.bias.chunk(count), strict=True))

    embeddings = theirs.bert.embeddings
    embeddings.word_embeddings.weight.data = ours.embedding.token.weight[:V].detach().clone()
    embeddings.position_embeddings.weight.data = ours.position.table.weight.detach().clone()
    embeddings.token_type_embeddings.weight.data.zero_()
    take(embeddings.LayerNorm, ours.embedding.norm.weight, ours.embedding.norm.bias)
    for number, layer in enumerate(theirs.bert.encoder.layer):
        a, c, f = (ours.stack.blocks[letter][number] for letter in "acf")
        attend(layer.attention, a.norm_sum, thirds(a.cell.qkv, 3))
        query = (c.cell.q.weight, c.cell.q.bias)
        attend(layer.crossattention, c.norm_sum, [query, *thirds(c.cell.kv, 2)])
        take(layer.attention.output.dense, a.cell.out.weight, a.cell.out.bias)
        take(layer.crossattention.output.dense, c.cell.out.weight, c.cell.out.bias)
        take(layer.intermediate.dense, f.cell.up.weight, f.cell.up.bias)
        take(layer.output.dense, f.cell.down.weight, f.cell.down.bias)
        take(layer.output.LayerNorm, f.norm_sum.weight, f.norm_sum.bias)
    predictions = theirs.cls.predictions
    take(predictions.transform.dense, head.dense.weight, head.dense.bias)
    take(predictions.transform.LayerNorm, head.norm.weight, head.norm.bias)
    take(predictions.decoder, head.table[:V], head.bias[:V])


@pytest.mark.parametrize("tied", [True, False])
def test_a_decoder_writes_the_text_from_one_vector(tied: bool) -> None:
    torch.manual_seed(1)
    model = make_model()
    objective = TSDAE(decoder=make_decoder(), model=model, pooling="first", tied=tied)
    batch = make_batch(objective)
    config = BertConfig(
        vocab_size=V,
        hidden_size=W,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        is_decoder=True,
        add_cross_attention=True,
        attn_implementation="eager",
        tie_word_embeddings=False,
    )
    theirs = BertLMHeadModel(config).double().eval()
    copy_layers(objective.decoder, model.heads["mlm"], theirs)
    target = batch.seqs["target"]
    vectors = model(batch).last[:, 0]
    with torch.no_grad():
        logits = theirs(input_ids=target.ids, encoder_hidden_states=vectors[:, None]).logits
    wanted = sum(
        float(-logits[row, place].log_softmax(-1)[target.ids[row, place + 1]])
        for row, length in enumerate(LENGTHS)
        for place in range(length - 1)
    )
    found = objective(model, batch)
    assert float(found.terms["tsdae"].total.detach()) == pytest.approx(wanted, rel=1e-9)
    assert objective.counts(batch) == {"tsdae": sum(LENGTHS) - len(LENGTHS)}
    found.terms["tsdae"].total.backward()
    shared = model.backbone.stack.blocks["a"][0].cell.qkv.weight
    assert (objective.decoder.stack.blocks["a"][0].cell.qkv.weight is shared) == tied
    assert shared.grad.abs().max() > 0


def test_words_are_deleted_from_the_text_alone() -> None:
    objective = TSDAE(decoder=make_decoder(), model=make_model())
    batch, clean = make_batch(objective), cells_of(LENGTHS).seqs["text"]
    assert {*batch.seqs} == {"text", "target"}
    assert batch.seqs["target"].ids.tolist() == clean.ids.tolist()
    assert all(2 < n <= m for n, m in zip(batch.text.length.tolist(), LENGTHS, strict=True))
    long = make_words([400] * 20, 400)
    noised = WordDrop(vocab=VOCAB, rate=0.6)(long, Draws(0, 0)).seqs["source"]
    assert 1 - np.mean(noised.length - 2) / 398 == pytest.approx(0.6, abs=0.02)


def test_a_decoder_that_sees_later_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match="a causal pattern"):
        TSDAE(decoder=make_decoder(Full()), model=make_model())
    other = copy.deepcopy(make_model())
    other.backbone.stack = encoder(0.0, layers=1).backbone.stack
    with pytest.raises(ConfigError, match=r"objective\.tsdae\.tied"):
        TSDAE(decoder=make_decoder(), model=other)
