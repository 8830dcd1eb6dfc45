"""MASS: the length, the place and the look of the span, and a target that is the span alone with its positions."""

import numpy as np
import pytest
from moving_rows import MASK, make_rows, make_vocab
from scipy import stats

from plmctl.errors import ConfigError
from plmctl.noise.draws import Draws
from plmctl.noise.sequence_span import SequenceSpan

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
        place = target.tracks["position"][r, :k]
        assert (np.diff(place) == 1).all()
        assert 1 <= place[0] <= place[-1] <= n
        assert np.array_equal(target.ids[r, :k], before.ids[r, place])
        outside = np.setdiff1d(np.arange(41), place)
        assert np.array_equal(source.ids[r, outside], before.ids[r, outside])
        assert np.array_equal(source.tracks["origin"][r], before.tracks["origin"][r])
        assert (target.ids[r, k:] == 0).all()


def test_places_and_looks():
    """Beginning 0.2 + 0.6 / (n - k + 1), the same at the end, the rest uniform; 80% mask, 10% random, 10% kept."""
    n, rows = 20_000, make_rows(20_000, 22)
    after = MASS(rows, Draws(0, 0))
    start = after.seqs["target"].tracks["position"][:, 0] - 1
    wanted = np.full(11, 0.6 / 11)
    wanted[[0, 10]] += 0.2
    assert stats.chisquare(np.bincount(start, minlength=11), wanted * n).pvalue > 1e-3
    row, place = np.arange(n)[:, None], after.seqs["target"].tracks["position"][:, :10]
    shown, old = after.seqs["source"].ids[row, place], after.seqs["target"].ids[:, :10]
    total = shown.size
    assert abs((shown == MASK).mean() - 0.8 - 0.1 / 1000) < 4 * np.sqrt(0.16 / total)
    assert abs((shown == old).mean() - 0.1 - 0.1 / 1000) < 4 * np.sqrt(0.09 / total)
    flat = SequenceSpan(vocab=V, rate=0.5, edge_share=0.0)(rows, Draws(0, 0)).seqs["target"].tracks["position"][:, 0] - 1
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
            place = target.tracks["position"][r, mine]
            assert (np.diff(place) == 1).all()
            whole = before.ids[r, document[r] == d]
            assert np.array_equal(target.ids[r, mine], whole[place])


def test_wrong_settings_and_what_it_reads():
    assert MASS.reads == {"text"}
    for options, message in [
        ({"rate": 1}, "0 < rate < 1"),
        ({"edge_share": 0.6}, "0 to 0.5"),
        ({"mask_share": 2}, "mask_share"),
    ]:
        with pytest.raises(ConfigError, match=message):
            SequenceSpan(vocab=V, **({"rate": 0.5, "edge_share": 0.2} | options))
