"""InfoWord against its formula: n-grams as rows of their own, dot products, negatives from the
other rows.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, UsageError
from plmctl.models.base import Model
from plmctl.noise.ngram_hole import NgramHole
from plmctl.objectives.infoword import InfoWord
from plmctl.runs.contract.contract import check_contract
from tests.objectives.contrastive import VOCAB, States, W, batch_of, cells_of, encoder, holed

CLEAN = cells_of([10, 7, 9, 4])
ONE_EACH = [(0, 2, 5), (1, 1, 3), (2, 6, 2), (3, 1, 1)]
SEVERAL = [(0, 1, 2), (0, 5, 3), (2, 1, 4), (2, 6, 1), (3, 1, 2)]


def infoword(temperature: float = 1.0, max_tokens: int = 6) -> InfoWord:
    return InfoWord(vocab=VOCAB, temperature=temperature, max_tokens=max_tokens)


def literal(
    model: Model, batch: Batch, spans: list[tuple[int, int, int]], temperature: float, most: int = 6
) -> torch.Tensor:
    """n-grams encoded one by one, each cls ... sep from place 0 on; sentences as the batch shows
    them.
    """
    ids = CLEAN.seqs["text"].ids
    grams = [[2, *ids[r, s : s + min(n, most)].tolist(), 3] for r, s, n in spans]
    alone = [
        model(Batch(torch.zeros(1), {"text": Seq(torch.tensor([g]), torch.tensor([len(g)]))})).last[
            0, 0
        ]
        for g in grams
    ]
    whole = []
    for r, _, _ in spans:
        row = batch.text.ids[r : r + 1, : int(batch.text.length[r])]
        whole.append(
            model(Batch(torch.zeros(1), {"text": Seq(row, batch.text.length[r : r + 1])})).last[
                0, 0
            ]
        )
    total = torch.zeros((), dtype=torch.float64)
    for i, (row, *_) in enumerate(spans):
        others = [
            j for j in range(len(spans)) if j == i or (spans[j][0] != row and grams[j] != grams[i])
        ]
        own = (whole[i] @ alone[i]) / temperature
        total = (
            total
            - own
            + torch.log(sum(torch.exp(whole[i] @ alone[j] / temperature) for j in others))
        )
    return total


@pytest.mark.parametrize("temperature", [1.0, math.sqrt(W)])
@pytest.mark.parametrize("spans", [ONE_EACH, SEVERAL], ids=["one", "several"])
def test_is_the_formula(spans: list[tuple[int, int, int]], temperature: float) -> None:
    model, batch = encoder(0.0), batch_of(holed(CLEAN, spans))
    objective = infoword(temperature)
    total = objective(model, batch).terms["infoword"].total
    torch.testing.assert_close(
        total, literal(model, batch, spans, temperature), atol=1e-10, rtol=1e-10
    )
    assert objective.counts(batch) == {"infoword": len(spans)}


def test_long_spans_are_cut() -> None:
    model, batch = encoder(0.0), batch_of(holed(CLEAN, ONE_EACH))
    total = infoword(max_tokens=3)(model, batch).terms["infoword"].total
    torch.testing.assert_close(
        total, literal(model, batch, ONE_EACH, 1.0, most=3), atol=1e-10, rtol=1e-10
    )


def test_the_ngram_is_hidden_from_the_sentence_and_alone_in_its_row() -> None:
    batch = batch_of(holed(CLEAN, ONE_EACH))
    ngrams = infoword().ngrams(batch)
    ids = CLEAN.seqs["text"].ids
    for (row, start, length), shown, size in zip(
        ONE_EACH, ngrams.text.ids.tolist(), ngrams.text.length.tolist(), strict=True
    ):
        assert shown[:size] == [2, *ids[row, start : start + length].tolist(), 3]
        assert set(shown[size:]) <= {0}
        assert (batch.text.ids[row, start : start + length] == 4).all()
    assert ngrams.text.ids.shape == (4, 6 + 2), "as wide whatever the n-grams are"
    assert not ngrams.text.tracks
    last = batch_of(holed(CLEAN, [(3, 9, 1)]))  # the last place of the batch
    assert infoword().ngrams(last).text.ids[0, :3].tolist() == [2, int(ids[3, 9]), 3]


def test_equal_ngrams_are_no_negatives() -> None:
    clean = cells_of([10, 10, 10])
    clean.seqs["text"].ids[1, 3:5] = clean.seqs["text"].ids[0, 1:3]
    batch = batch_of(holed(clean, [(0, 1, 2), (1, 3, 2), (2, 3, 2)]))
    states = torch.randn(3, 10, W, dtype=torch.float64), torch.randn(3, 8, W, dtype=torch.float64)
    total = infoword()(Model(backbone=States(*states), heads={}), batch).terms["infoword"].total
    scores = states[0][:, 0] @ states[1][:, 0].T
    by_hand = sum(
        -scores[i, i]
        + torch.log(sum(torch.exp(scores[i, j]) for j in range(3) if j == i or {i, j} != {0, 1}))
        for i in range(3)
    )
    torch.testing.assert_close(total, by_hand, atol=1e-10, rtol=1e-10)


def test_only_first_tokens_receive_a_gradient() -> None:
    states = torch.randn(4, 10, W, dtype=torch.float64), torch.randn(5, 8, W, dtype=torch.float64)
    model = Model(backbone=States(*states), heads={})
    infoword()(model, batch_of(holed(CLEAN, SEVERAL))).terms["infoword"].total.backward()
    sentence, alone = (view.grad.abs().sum(-1) > 0 for view in model.backbone.states)
    rows = {row for row, *_ in SEVERAL}
    assert sentence.tolist() == [[row in rows] + [False] * 9 for row in range(4)]
    assert alone.tolist() == [[True] + [False] * 7] * 5


def test_no_ngram_at_all() -> None:
    for batch in (batch_of(holed(CLEAN, [])), batch_of(CLEAN)):
        assert infoword().counts(batch) == {"infoword": 0}
        assert not infoword()(encoder(0.1), batch).terms


def test_what_does_not_fit_is_refused_before_work() -> None:
    words = ["objective=[mlm,infoword]", "format=sentences", "size=tiny", "eval.noise=${noise}"]
    check_contract(compose("pretrain", "roberta", [*words, "noise=[token_mask,ngram_hole]"]))
    with pytest.raises(UsageError, match=r"objective\.infoword: needs 'spans\.chosen'"):
        check_contract(compose("pretrain", "roberta", words))
    with pytest.raises(UsageError, match=r"at least 2: objective\.infoword"):
        check_contract(
            compose("pretrain", "roberta", [*words, "noise=[ngram_hole]", "train.batch_size=1"])
        )
    for wrong in ({"temperature": 0.0}, {"max_tokens": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            infoword(**wrong)


def test_counts_are_those_of_the_noise() -> None:
    """One n-gram a row: as many terms as rows with two tokens, and the slots of the noise
    suffice.
    """
    noise = NgramHole(vocab=VOCAB, mean=5, deviation=1, max_tokens=10)
    batch = collate(noise(cells_of([10, 7, 3, 9]), Draws(0, 0)), noise.capacity(10))
    assert infoword(max_tokens=10).counts(batch) == {"infoword": 3}
    assert np.isfinite(infoword(max_tokens=10)(encoder(0.0), batch).terms["infoword"].total.item())
