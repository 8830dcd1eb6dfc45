"""Supersense prediction and the table of senses against the formulas of SenseBERT, as loops."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import AbsentData, ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.sense import SenseHead
from plmctl.knowledge.senses import Senses, WordNetSenses
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.nn.init import normal
from plmctl.nn.senses import SenseTable
from plmctl.objectives.sense import Sense
from tests.noise.plain_rows import make_vocab

V, W, K = 12, 6, 5
BITS = np.array([0, 0, 0, 0, 0, 1, 2, 3, 16, 9, 7, 31])  # of each token
TEXTS = tuple(map(str, range(V)))
VOCAB = make_vocab(V, specials=5, eos=None, word_start=np.ones(V, bool), texts=TEXTS)


@part_of("senses")
class Numbers(Senses):
    """Each token is the number of its bits."""

    names = tuple("abcde")

    def of_word(self, word: str) -> int:
        return int(BITS[int(word)])


def table_of(**settings: object) -> SenseTable:
    table = SenseTable(vocab_size=V, width=W, senses=Numbers(), vocab=VOCAB, **settings)
    normal(table, std=1.0, generator=torch.Generator().manual_seed(0))
    return table.double()


class _States(Backbone):
    def __init__(self, table: SenseTable) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(2, 7, W, generator=torch.manual_seed(1)))
        self.token_embedding = table

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        return Hidden(self.states)


def model_of(table: SenseTable) -> Model:
    head = SenseHead(width=W, token_embedding=table)
    for parameter in head.parameters():
        nn.init.normal_(parameter, generator=torch.manual_seed(2))
    return Model(backbone=_States(table), heads={"sense": head}).double()


def test_the_vector_of_a_word_is_its_row_and_the_sum_of_its_senses() -> None:
    """Eq. 8, `(W + S M) x`."""
    table = table_of()
    found = table(torch.arange(V)[None])[0]
    for word in range(V):
        wanted = table.weight[word].clone()
        for sense in range(K):
            if BITS[word] >> sense & 1:
                wanted += table.sense.weight[sense]
        torch.testing.assert_close(found[word], wanted, rtol=0, atol=1e-12)
    hidden = table_of(shown=False)
    assert torch.equal(hidden(torch.arange(V)), hidden.weight[:V])


def test_both_losses_as_loops() -> None:
    """Eqs. 4 and 6, for words of one token and for the mean of several (sec. 3.4)."""
    spans = torch.tensor([[0, 1, 1, 3], [0, 4, 1, 16], [1, 2, 3, 9], [1, 5, 2, 31]])
    model = model_of(table_of())
    ids = torch.full((2, 7), 5)
    batch = Batch(
        torch.arange(2), {"text": Seq(ids, torch.tensor([7, 7]))}, spans={"senses": spans}
    )
    objective, head = Sense(), model.heads["sense"]
    out = objective(model, batch)
    allowed = spread = right = 0.0
    for row, start, length, bits in spans.tolist():
        state = sum(model.backbone.states[row, start + n] for n in range(length)) / length
        inner = head.norm(head.activation(head.dense(state)))
        scores = [
            (inner @ model.backbone.token_embedding.sense.weight[s] + head.bias[s]).item()
            for s in range(K)
        ]
        p = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        senses = [s for s in range(K) if bits >> s & 1]
        allowed -= math.log(sum(p[s] for s in senses))
        spread -= sum(math.log(p[s]) for s in senses) / len(senses)
        right += max(range(K), key=p.__getitem__) in senses
    assert objective.counts(batch) == {"sense": 4, "sense_spread": 4}
    assert out.terms["sense"].total.item() == pytest.approx(allowed, abs=1e-10)
    assert out.terms["sense_spread"].total.item() == pytest.approx(spread, abs=1e-10)
    assert out.logs["acc/sense"][0].item() == right
    (out.terms["sense"].total + out.terms["sense_spread"].total).backward()
    touched = model.backbone.states.grad.abs().sum(-1) > 0
    assert touched.nonzero().tolist() == [[0, 1], [0, 4], [1, 2], [1, 3], [1, 4], [1, 5], [1, 6]]


def test_scores_that_overflow_an_exponential() -> None:
    """All senses allowed: the first loss is 0 however large the scores are."""
    head = model_of(table_of()).heads["sense"]
    head.bias.data[:] = torch.tensor([1e4, -1e4, 0, 5e3, 1.0])
    features = torch.randn(1, W, generator=torch.manual_seed(0)).double()
    losses = head.loss(features, torch.tensor([31]))
    assert losses.allowed.item() == pytest.approx(0, abs=1e-9)
    assert math.isfinite(losses.spread.item())


def test_a_batch_without_such_words_has_no_term() -> None:
    batch = Batch(torch.arange(2), {"text": Seq(torch.ones(2, 7, dtype=torch.int64), None)})
    assert not Sense()(model_of(table_of()), batch).terms


def test_the_head_needs_a_table_with_senses() -> None:
    with pytest.raises(ConfigError, match="a table of tokens with senses"):
        SenseHead(width=W, token_embedding=nn.Embedding(V, W))


def test_random_vectors_are_not_learned() -> None:
    table = table_of(learned=False)
    assert not table.sense.weight.requires_grad
    assert table.sense.weight.std() > 0
    assert table.weight.requires_grad


def test_senses_are_saved_with_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table that starts from nothing needs WordNet; one that a checkpoint fills does not."""
    monkeypatch.setattr("plmctl.knowledge.wordnet._USUAL", ())
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    words = replace(VOCAB, texts=("lists",) * V)
    other = SenseTable(vocab_size=V, width=W, senses=WordNetSenses(), vocab=words)
    normal(other, std=1.0, generator=torch.Generator())
    with pytest.raises(AbsentData, match="wordnet-base"):
        other(torch.arange(V))
    other.allowed.table[6, 3] = True
    assert not torch.equal(other(torch.tensor([6])), other.weight[6:7])
    assert "allowed.table" in other.state_dict()


@pytest.mark.parametrize(
    ("words", "shown"), [([], True), (["model.embedding.table.shown=false"], False)]
)
def test_recipe(words: list[str], shown: bool) -> None:
    small = ["size=tiny", "size.width=32", "data.path=x", *words]
    config = compose("pretrain", "sensebert", small)
    vocab = replace(VOCAB, texts=(*VOCAB.texts[:6], "dogs", *VOCAB.texts[7:]))
    model = build_model(config, vocab_size=V, vocab=vocab, seed=0)
    table = model.backbone.token_embedding
    assert table.shown is shown
    assert table.allowed(torch.arange(V)).any(1).nonzero().tolist() == [[6]]
    assert table.sense.weight.shape == (45, 32)
