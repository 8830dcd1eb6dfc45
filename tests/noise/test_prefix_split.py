"""A text in two: both parts give it back, and every place is as likely."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.prefix_split import PrefixSplit
from tests.noise.moving_rows import CLS, EOS, PAD, SEP, make_rows, make_vocab
from tests.noise.test_span_sentinel import plain

NOISE = PrefixSplit(vocab=make_vocab())


@pytest.mark.parametrize("framed", [False, True])
def test_both_parts_give_the_text_back(framed: bool) -> None:
    rows = make_rows(200, 20, short=True) if framed else plain(200, 20)
    rows.seqs["text"].tracks.pop("document", None)
    after = NOISE(rows, Draws(0, 0))
    assert set(after.seqs) == {"source", "target"}
    text, source, target = rows.seqs["text"], after.seqs["source"], after.seqs["target"]
    assert source.ids.shape[1] == target.ids.shape[1] == NOISE.columns(20)["source"] == 20
    for r in range(200):
        read = source.ids[r, : source.length[r]].tolist()
        written = target.ids[r, : target.length[r]].tolist()
        assert read[-1] == written[-1] == EOS
        assert min(len(read), len(written)) > 1
        was = text.ids[r, : text.length[r]].tolist()
        assert read[:-1] + written[:-1] == (was[:-1] if framed else was)
        assert (was[0], was[-1]) == (CLS, SEP) or not framed
        assert (source.ids[r, source.length[r] :] == PAD).all()
        assert (target.ids[r, target.length[r] :] == PAD).all()


def test_every_place_is_as_likely() -> None:
    length = NOISE(plain(12_000, 7), Draws(0, 0)).seqs["source"].length
    count = np.bincount(length, minlength=8)[2:]
    assert len(count) == 6  # one to six tokens, and the end
    assert stats.chisquare(count).pvalue > 1e-3


def test_what_is_too_short_has_no_target() -> None:
    after = NOISE(plain(3, 1), Draws(0, 0))
    assert after.seqs["source"].length.tolist() == [1, 1, 1]
    assert after.seqs["target"].length.tolist() == [0, 0, 0]


def test_packed_documents_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"several documents\n  fix: format.crossing=true"):
        NOISE(make_rows(2, 20, packed=True), Draws(0, 0))
