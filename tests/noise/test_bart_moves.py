"""Deletion, permutation and rotation as the BART paper defines them."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.document_rotate import DocumentRotate
from plmctl.noise.sentence_permute import SentencePermute
from plmctl.noise.token_delete import TokenDelete
from tests.noise.moving_rows import CLS, PAD, SEP, make_rows, make_vocab

V = make_vocab()


def test_deletion_is_exact_and_uniform():
    """512 - ceil(0.3 * 510) = 359 tokens stay, as in the published code."""
    seq = TokenDelete(vocab=V, rate=0.3)(make_rows(400, 512), Draws(0, 0)).seqs["source"]
    assert (seq.length == 359).all()
    left = np.bincount(seq.tracks["origin"][seq.ids >= 200] % 512, minlength=512)[1:-1]
    assert stats.chisquare(left).pvalue > 1e-3
    for width in (3, 5, 23):
        rows = make_rows(50, width)
        assert (
            TokenDelete(vocab=V, rate=0.3)(rows, Draws(0, 0)).seqs["source"].length
            == width - np.ceil(0.3 * (width - 2))
        ).all()


def test_deletion_shares_its_budget_among_documents():
    rows = make_rows(500, 128, packed=True)
    before, seq = (
        rows.seqs["text"],
        TokenDelete(vocab=V, rate=0.3)(rows, Draws(0, 0)).seqs["source"],
    )
    for r in range(500):
        total = np.ceil(0.3 * (before.ids[r] >= 200).sum() - 1e-9)
        for d in range(before.tracks["document"][r].max() + 1):
            was = ((before.tracks["document"][r] == d) & (before.ids[r] >= 200)).sum()
            now = ((seq.tracks["document"][r] == d) & (seq.ids[r] >= 200)).sum()
            assert abs((was - now) - total * was / (before.ids[r] >= 200).sum()) < 1 + 1e-6


def sentences_of(ids: np.ndarray, sentence: np.ndarray) -> list[tuple[int, ...]]:
    return [
        tuple(ids[list(part)].tolist())
        for _, part in itertools.groupby(range(len(ids)), key=lambda i: sentence[i])
    ]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_sentences_stay_whole_and_the_right_number_may_move(packed, rate):
    rows = make_rows(200, 80, packed=packed, short=True)
    before, after = (
        rows.seqs["text"],
        SentencePermute(vocab=V, rate=rate)(rows, Draws(0, 0)).seqs["source"],
    )
    document = before.tracks.get("document", np.zeros_like(before.ids))
    moved = 0
    for r in range(200):
        for d in range(document[r].max() + 1):
            inside = np.flatnonzero((document[r] == d) & (before.ids[r] >= 200))
            was = sentences_of(before.ids[r, inside], before.tracks["sentence"][r, inside])
            now = sentences_of(after.ids[r, inside], after.tracks["sentence"][r, inside])
            assert sorted(was) == sorted(now)
            changed = sum(a != b for a, b in zip(was, now, strict=True))
            assert changed <= np.ceil(rate * len(was))
            moved += changed
    assert moved > 200


def test_every_order_of_sentences_is_as_likely():
    ids = np.tile([CLS, 300, 301, 400, 500, 501, 502, SEP, PAD], (12_000, 1)).astype(np.int32)
    sentence = np.tile([0, 0, 0, 1, 2, 2, 2, 2, 0], (12_000, 1))
    rows = Rows(np.arange(12_000), {"text": Seq(ids, np.full(12_000, 8), {"sentence": sentence})})
    found = Counter(
        map(
            tuple, SentencePermute(vocab=V, rate=1.0)(rows, Draws(0, 0)).seqs["source"].ids.tolist()
        )
    )
    parts = [(300, 301), (400,), (500, 501, 502)]
    wanted = {(CLS, *sum(order, ()), SEP, PAD) for order in itertools.permutations(parts)}
    assert found.keys() == wanted
    assert stats.chisquare(list(found.values())).pvalue > 1e-3
    two = Counter(
        map(
            tuple, SentencePermute(vocab=V, rate=0.6)(rows, Draws(0, 0)).seqs["source"].ids.tolist()
        )
    )
    swaps = {
        (CLS, *sum(order, ()), SEP, PAD)
        for order in itertools.permutations(parts)
        if any(a == b for a, b in zip(order, parts, strict=True))
    }
    assert two.keys() == swaps  # ceil(0.6 * 3) = 2 of them: never all three elsewhere
    assert abs(two[tuple(ids[0].tolist())] / 12_000 - 0.5) < 0.02


@pytest.mark.parametrize("packed", [False, True])
def test_rotation_is_a_rotation_of_every_document(packed):
    rows = make_rows(300, 40, packed=packed, short=True)
    before, after = (
        rows.seqs["text"],
        DocumentRotate(vocab=V, rate=1.0)(rows, Draws(0, 0)).seqs["source"],
    )
    document = before.tracks.get("document", np.zeros_like(before.ids))
    for r in range(300):
        for d in range(document[r].max() + 1):
            inside = np.flatnonzero((document[r] == d) & (before.ids[r] >= 200))
            was, now = before.ids[r, inside].tolist(), after.ids[r, inside].tolist()
            assert any(was[p:] + was[:p] == now for p in range(max(1, len(was))))


def test_pivots_are_uniform_and_a_share_of_documents_rotates():
    rows = make_rows(6000, 12)
    after = DocumentRotate(vocab=V, rate=1.0)(rows, Draws(0, 0)).seqs["source"]
    pivot = after.tracks["origin"][:, 1] % 12 - 1
    assert stats.chisquare(np.bincount(pivot, minlength=10)).pvalue > 1e-3
    half = (
        DocumentRotate(vocab=V, rate=0.5)(rows, Draws(0, 0)).seqs["source"].tracks["origin"][:, 1]
        % 12
        - 1
    )
    assert abs((half > 0).mean() - 0.45) < 3 * np.sqrt(0.25 / 6000)


def test_wrong_rates():
    for noise, rate in ((TokenDelete, 1.0), (SentencePermute, 0.0), (DocumentRotate, 1.1)):
        with pytest.raises(ConfigError, match=r"noise\.rate"):
            noise(vocab=V, rate=rate)
    assert SentencePermute(vocab=V, rate=1.0).reads == {"input", "tracks.sentence"}
