"""T5's single tokens behind sentinels, or dropped: a literal reading of both sequences, and where
tokens are taken.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws
from plmctl.noise.token_sentinel import TokenSentinel
from tests.noise.moving_rows import EOS, PAD, SEP, make_rows, make_vocab
from tests.noise.test_span_sentinel import filled, plain, spans_of

V = make_vocab()


@pytest.mark.parametrize("length", [1, 2, 7, 40])
@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_source_and_target_give_the_text_back(length: int, rate: float) -> None:
    rows = plain(100, length)
    noise = TokenSentinel(vocab=V, rate=rate, sentinels=True)
    after = noise(rows, Draws(1, 1))
    source, target = after.seqs["source"], after.seqs["target"]
    assert source.ids.shape[1] == noise.columns(length)["source"]
    assert noise.columns(noise.input_length(length + 1))["source"] <= max(2, length + 1)
    for r in range(100):
        asked = target.ids[r, : target.length[r]].tolist()
        spans = spans_of(asked, EOS) if asked else []
        assert sum(map(len, spans)) == (max(1, round(rate * length)) if length > 1 else 0)
        shown = source.ids[r, : source.length[r]].tolist()
        assert shown[0] == rows.seqs["text"].ids[r, 0]
        # neighbours make one span, so no two sentinels are neighbours
        places = np.flatnonzero(np.isin(shown, V.sentinels))
        assert len(places) == len(spans)
        assert (np.diff(places) > 1).all()
        assert filled(shown, spans) == [*rows.seqs["text"].ids[r].tolist(), EOS]


def test_tokens_are_dropped() -> None:
    rows = plain(100, 30)
    after = TokenSentinel(vocab=V, rate=0.2, sentinels=False)(rows, Draws(0, 0))
    marked = TokenSentinel(vocab=V, rate=0.2, sentinels=True)(rows, Draws(0, 0))
    for name in ("source", "target"):
        own, other = after.seqs[name], marked.seqs[name]
        for r in range(100):
            kept = [t for t in other.ids[r, : other.length[r]].tolist() if t not in V.sentinels]
            assert own.ids[r, : own.length[r]].tolist() == kept
            assert (own.ids[r, own.length[r] :] == PAD).all()
    assert (after.seqs["source"].length == 24 + 1).all()
    assert (after.seqs["target"].length == 6 + 1).all()


def test_every_token_but_the_first_is_as_likely() -> None:
    rows = plain(20_000, 9)
    rows.seqs["text"].ids[:] = 200 + np.arange(9)
    after = TokenSentinel(vocab=V, rate=1 / 3, sentinels=False)(rows, Draws(0, 0))
    count = np.bincount(after.seqs["target"].ids[:, :3].ravel() - 200, minlength=9)
    assert count[0] == 0
    assert stats.chisquare(count[1:]).pvalue > 1e-3


def test_special_tokens_and_packed_documents_stay_apart() -> None:
    rows = make_rows(100, 60, packed=True)
    before = rows.seqs["text"]
    after = TokenSentinel(vocab=V, rate=0.15, sentinels=True)(rows, Draws(0, 0))
    source, target = after.seqs["source"], after.seqs["target"]
    checked = 0
    for r in np.flatnonzero(after.values["cut"] == 0):
        for d in range(before.tracks["document"][r].max() + 1):
            asked = target.ids[r, target.tracks["document"][r] == d].tolist()
            shown = source.ids[r, source.tracks["document"][r] == d].tolist()
            spans = spans_of(asked, SEP) if asked else []
            was = before.ids[r, before.tracks["document"][r] == d].tolist()
            assert filled(shown, spans) == was
            checked += len(spans)
    assert checked > 300
