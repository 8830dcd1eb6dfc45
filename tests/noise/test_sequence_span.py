"""MASS: the length, the place and the look of the span; a target that is the span alone, and
what the decoder reads of it.
"""

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.sequence_span import SequenceSpan
from tests.noise.moving_rows import MASK, make_rows, make_vocab

V = make_vocab()
MASS = SequenceSpan(vocab=V, rate=0.5, edge_share=0.2)


def test_the_source_hides_what_the_target_holds():
    rows = make_rows(300, 41, short=True)
    before, after = rows.seqs["text"], MASS(rows, Draws(0, 0))
    source, target = after.seqs["source"], after.seqs["target"]
    assert set(after.seqs) == {"source", "target"}
    assert after.targets == {}
    assert target.ids.shape[1] == 20
    for r in range(300):
        k, n = target.length[r], before.length[r] - 2
        assert k == round(0.5 * n)
        place = target.tracks["position"][r, :k] + 1  # the decoder stands at the token before
        assert (np.diff(place) == 1).all()
        assert 1 <= place[0] <= place[-1] <= n
        assert np.array_equal(target.ids[r, :k], before.ids[r, place])
        assert np.array_equal(target.tracks["previous"][r, :k], before.ids[r, place - 1])
        outside = np.setdiff1d(np.arange(41), place)
        assert np.array_equal(source.ids[r, outside], before.ids[r, outside])
        assert np.array_equal(source.tracks["origin"][r], before.tracks["origin"][r])
        assert (target.ids[r, k:] == 0).all()


@pytest.mark.slow  # lengths and labels stay
def test_places_and_looks():
    """Beginning 0.2 + 0.6 / (n - k + 1), the same at the end, the rest uniform; 80% mask, 10%
    random, 10% kept.
    """
    n, rows = 20_000, make_rows(20_000, 22)
    after = MASS(rows, Draws(0, 0))
    start = after.seqs["target"].tracks["position"][:, 0]
    wanted = np.full(11, 0.6 / 11)
    wanted[[0, 10]] += 0.2
    assert stats.chisquare(np.bincount(start, minlength=11), wanted * n).pvalue > 1e-3
    row, place = np.arange(n)[:, None], after.seqs["target"].tracks["position"][:, :10] + 1
    shown, old = after.seqs["source"].ids[row, place], after.seqs["target"].ids[:, :10]
    total = shown.size
    assert abs((shown == MASK).mean() - 0.8 - 0.1 / 1000) < 4 * np.sqrt(0.16 / total)
    assert abs((shown == old).mean() - 0.1 - 0.1 / 1000) < 4 * np.sqrt(0.09 / total)
    flat = (
        SequenceSpan(vocab=V, rate=0.5, edge_share=0.0)(rows, Draws(0, 0))
        .seqs["target"]
        .tracks["position"][:, 0]
    )
    assert stats.chisquare(np.bincount(flat, minlength=11)).pvalue > 1e-3


def test_packed_documents_have_a_span_each():
    rows = make_rows(300, 64, packed=True, short=True)
    before, after = rows.seqs["text"], MASS(rows, Draws(0, 0))
    target, document = after.seqs["target"], before.tracks["document"]
    for r in range(300):
        ordinary = before.ids[r] >= 200
        assert target.length[r] == round(0.5 * ordinary.sum())
        for d in range(document[r].max() + 1):
            mine = target.tracks["document"][r] == d
            size = (ordinary & (document[r] == d)).sum()
            assert abs(mine.sum() - target.length[r] * size / max(1, ordinary.sum())) < 1 + 1e-6
            place = target.tracks["position"][r, mine] + 1
            assert (np.diff(place) == 1).all()
            whole = before.ids[r, document[r] == d]
            assert np.array_equal(target.ids[r, mine], whole[place])


def test_wrong_settings_and_what_it_reads():
    assert MASS.reads == {"text"}
    for options, message in [
        ({"rate": 1.5}, "0 < rate <= 1"),
        ({"tokens": 0}, "at least 1"),
        ({"edge_share": 0.6}, "0 to 0.5"),
        ({"mask_share": 2}, "mask_share"),
    ]:
        with pytest.raises(ConfigError, match=message):
            SequenceSpan(vocab=V, **({"rate": 0.5, "edge_share": 0.2} | options))


@pytest.mark.parametrize("tokens", [None, 1, 5])
def test_discrete_hides_as_many_tokens_anywhere(tokens):
    n, rows = 3000, make_rows(3000, 22)
    noise = SequenceSpan(
        vocab=V,
        rate=0.5,
        edge_share=0.2,
        mask_share=1,
        random_share=0,
        tokens=tokens,
        contiguous=False,
    )
    after, before = noise(rows, Draws(0, 0)), rows.seqs["text"].ids
    source, target = after.seqs["source"], after.seqs["target"]
    k = 10 if tokens is None else tokens
    assert (target.length == k).all()
    place = target.tracks["position"][:, :k] + 1
    assert (np.diff(place, axis=1) > 0).all()
    assert np.array_equal(target.ids[:, :k], np.take_along_axis(before, place, 1))
    assert np.array_equal(
        target.tracks["previous"][:, :k], np.take_along_axis(before, place - 1, 1)
    )
    assert np.array_equal(np.sort(np.nonzero(source.ids == MASK)[1].reshape(n, k), 1), place)
    assert stats.chisquare(np.bincount(place.ravel() - 1, minlength=20)).pvalue > 1e-3
    if k > 1:
        assert (np.diff(place, axis=1) > 1).any()


def test_feed_reads_all_of_the_text_and_asks_for_the_span():
    rows = make_rows(200, 41, short=True)
    clean, fed = (
        MASS(rows, Draws(0, 0)),
        SequenceSpan(vocab=V, rate=0.5, edge_share=0.2, feed=True)(rows, Draws(0, 0)),
    )
    text, target, asked = rows.seqs["text"], fed.seqs["target"], fed.targets["seq2seq"]
    assert np.array_equal(fed.seqs["source"].ids, clean.seqs["source"].ids)
    assert np.array_equal(target.ids, text.ids)
    assert np.array_equal(target.tracks["previous"][:, 1:], text.ids[:, :-1])
    assert (target.tracks["previous"][:, 0] == V.eos).all()
    assert np.array_equal(target.tracks["position"][:, 1:], np.tile(np.arange(40), (200, 1)))
    for r in range(200):
        k = clean.seqs["target"].length[r]
        place = clean.seqs["target"].tracks["position"][r, :k] + 1
        assert np.array_equal(np.flatnonzero(asked[r] != -100), place)
        assert np.array_equal(asked[r, place], text.ids[r, place])


def test_the_ends_of_the_family():
    """One token is masked language modelling; all of them, a language model whose encoder sees
    no word.
    """
    rows, sure = (
        make_rows(100, 30, short=True),
        {"vocab": V, "edge_share": 0.2, "mask_share": 1, "random_share": 0},
    )
    one = SequenceSpan(rate=0.5, tokens=1, **sure)(rows, Draws(0, 0)).seqs["target"]
    assert (one.length == 1).all()
    assert one.ids.shape[1] == 1
    whole = SequenceSpan(rate=1, **sure)(rows, Draws(0, 0))
    text, source, target = rows.seqs["text"], whole.seqs["source"], whole.seqs["target"]
    for r in range(100):
        n = text.length[r] - 2
        assert target.length[r] == n
        assert (source.ids[r, 1 : n + 1] == MASK).all()
        assert np.array_equal(target.ids[r, :n], text.ids[r, 1 : n + 1])
        assert np.array_equal(target.tracks["previous"][r, :n], text.ids[r, :n])


@pytest.mark.parametrize(
    "options", [{}, {"feed": True}, {"tokens": 3}, {"rate": 1}, {"contiguous": False}]
)
def test_widths_are_as_promised(options):
    noise = SequenceSpan(**({"vocab": V, "rate": 0.5, "edge_share": 0.2} | options))
    after = noise(make_rows(20, 41, packed=True), Draws(0, 0))
    assert {name: seq.ids.shape[1] for name, seq in after.seqs.items()} == noise.columns(41)
    assert after.seqs["target"].length.max() <= noise.columns(41)["target"]
