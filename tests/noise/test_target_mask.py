"""Only the second segment is hidden, its end token included, by UniLM's count."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws
from plmctl.noise.target_mask import TargetMask
from tests.noise.worded import chosen_of, worded


@pytest.mark.parametrize("limit", [None, 10])
def test_published_count(vocab_of, limit):
    rows = worded(200, 80, lengths=np.random.default_rng(0).integers(8, 81, 200).tolist())
    seq = rows.seqs["text"]
    noised = TargetMask(vocab=vocab_of(), rate=0.7, max_predictions=limit)(rows, Draws(0, 0))
    chosen, target = chosen_of(noised), (seq.tracks["segment"] == 1) & seq.real
    assert not chosen[~target].any()
    size = target.sum(1) - 1  # without its end token
    assert chosen.sum(1).tolist() == [
        min(limit or 99, max(1, round(0.7 * n))) for n in size.tolist()
    ]
    assert np.array_equal(noised.targets["mlm"][chosen], seq.ids[chosen])


def test_the_end_token_is_a_candidate_like_any_other(vocab_of):
    chosen = chosen_of(TargetMask(vocab=vocab_of(), rate=0.5)(worded(4000, 40), Draws(0, 0)))
    places = chosen.sum(0)
    assert places[:27].sum() == 0
    assert stats.chisquare(places[27:]).pvalue > 1e-3  # tokens 27 .. 38 and the end token 39
    assert (chosen.sum(1) == 6).all()


def test_rows_without_a_target(vocab_of, cells_of):
    rows = cells_of(5, 20)
    seq = rows.seqs["text"]
    rows = rows.with_seq("text", seq.with_tracks(segment=np.zeros_like(seq.ids)))
    assert not chosen_of(TargetMask(vocab=vocab_of(), rate=0.7)(rows, Draws(0, 0))).any()


def test_packed_rows_share_by_target_length(vocab_of):
    rows = worded(200, 128, documents=True)
    seq = rows.seqs["text"]
    chosen = chosen_of(TargetMask(vocab=vocab_of(), rate=0.5)(rows, Draws(0, 0)))
    target = (seq.tracks["segment"] == 1) & seq.real & (seq.ids >= 10)
    wanted = np.maximum(1, np.rint(0.5 * target.sum(1)))
    assert (chosen.sum(1) <= wanted).all()
    for row in range(200):
        for d in range(seq.tracks["document"][row].max() + 1):
            inside = seq.tracks["document"][row] == d
            share = wanted[row] * (target[row] & inside).sum() / target[row].sum()
            assert abs(chosen[row, inside].sum() - share) <= 1


def test_declares_what_it_reads(vocab_of):
    assert TargetMask(vocab=vocab_of(), rate=0.7).reads == {"input", "tracks.segment"}
