"""T5's span corruption against its published numbers, a literal reading of its two sequences,
and random segmentation.
"""

from collections import Counter
from itertools import pairwise
from math import comb

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.span_sentinel import SpanSentinel
from tests.noise.moving_rows import EOS, PAD, SEP, make_rows, make_vocab

V = make_vocab()
T5 = SpanSentinel(vocab=V, rate=0.15, mean_length=3.0)


def plain(n: int, length: int, seed: int = 0) -> Rows:
    """Rows without special tokens, as T5's are."""
    ids = np.random.default_rng(seed).integers(200, 1000, (n, length)).astype(np.int32)
    return Rows(np.arange(n), {"text": Seq(ids, np.full(n, length))})


def spans_of(target: list[int], closing: int) -> list[list[int]]:
    """What the target says: the tokens behind each sentinel, which come in their order."""
    assert target[-1] == closing
    found: list[list[int]] = []
    for token in target[:-1]:
        if token in V.sentinels:
            assert token == V.sentinels[len(found)]
            found.append([])
        else:
            found[-1].append(token)
    return found


def filled(source: list[int], spans: list[list[int]]) -> list[int]:
    out: list[int] = []
    for token in source:
        out += spans[V.sentinels.index(token)] if token in V.sentinels else [token]
    return out


def test_published_lengths():
    """568 raw tokens make 512 in the source and 114 in the target (random_spans_helper)."""
    assert T5.input_length(512) == 568
    after = T5(plain(5, 568), Draws(0, 0))
    assert after.seqs["source"].ids.shape == (5, 512)
    assert after.seqs["target"].ids.shape == (5, 114)
    assert (after.seqs["source"].length == 512).all()
    assert (after.seqs["target"].length == 114).all()
    # 32-bit rounding
    assert [int(T5.counts(np.array([n]))[0][0]) for n in (190, 350, 390)] == [29, 53, 59]
    assert (after.values["cut"] == 0).all()


@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.5, 3.0), (0.3, 8.0)])
def test_input_length_as_the_published_search(rate, mean):
    noise = SpanSentinel(vocab=V, rate=rate, mean_length=mean)

    def helper(tokens: int) -> int:
        cut = round(tokens * rate)
        return tokens - cut + round(cut / mean) + 1

    agree = 0
    for wanted in range(16, 700):
        tokens = wanted - 1
        while helper(tokens + 1) <= wanted:
            tokens += 1
        agree += noise.input_length(wanted) == tokens
        assert abs(noise.input_length(wanted) - tokens) <= 2  # 64-bit there, 32-bit in the sampler
        assert noise._widths(noise.input_length(wanted))[0] <= wanted
    assert agree >= 660


@pytest.mark.parametrize("length", [2, 3, 7, 19, 100])
def test_source_and_target_give_the_text_back(length):
    rows = plain(200, length)
    after = T5(rows, Draws(1, 1))
    source, target = after.seqs["source"], after.seqs["target"]
    noise = min(max(round(np.float32(length) * np.float32(0.15)), 1), length - 1)
    for r in range(200):
        spans = spans_of(target.ids[r, : target.length[r]].tolist(), EOS)
        assert len(spans) == max(1, round(noise / 3))
        assert sum(map(len, spans)) == noise
        shown = source.ids[r, : source.length[r]].tolist()
        assert shown[-2:] == [V.sentinels[len(spans) - 1], EOS]  # the text ends in noise ...
        assert shown[0] >= 200  # ... and begins clean
        assert not any(a in V.sentinels and b in V.sentinels for a, b in pairwise(shown))
        assert filled(shown[:-1], spans) == rows.seqs["text"].ids[r].tolist()


@pytest.mark.slow  # lengths and counts stay
def test_every_segmentation_is_as_likely():
    """9 noise tokens in 3 spans and 6 others in 3: C(8, 2) * C(5, 2) ways."""
    noise, rows = SpanSentinel(vocab=V, rate=0.6, mean_length=3.0), plain(28_000, 15)
    after = noise(rows, Draws(0, 0))
    found: Counter[tuple[int, ...]] = Counter()
    for r in range(28_000):
        spans = spans_of(after.seqs["target"].ids[r].tolist(), EOS)
        shown = after.seqs["source"].ids[r].tolist()
        found[
            tuple(map(len, spans)), tuple(np.flatnonzero(np.isin(shown, V.sentinels)).tolist())
        ] += 1
    assert len(found) == comb(8, 2) * comb(5, 2)
    assert stats.chisquare(list(found.values())).pvalue > 1e-3


@pytest.mark.parametrize("short", [False, True])
def test_packed_documents_are_closed_and_numbered_by_themselves(short):
    rows = make_rows(300, 90, packed=True, short=short)
    before, after = rows.seqs["text"], T5(rows, Draws(0, 0))
    source, target = after.seqs["source"], after.seqs["target"]
    whole = tokens = 0
    for r in np.flatnonzero(after.values["cut"] == 0):
        for d in range(before.tracks["document"][r].max() + 1):
            was = before.ids[r, before.tracks["document"][r] == d].tolist()
            shown = source.ids[r, source.tracks["document"][r] == d].tolist()
            asked = target.ids[r, target.tracks["document"][r] == d].tolist()
            spans = spans_of(asked, SEP) if asked else []
            assert filled(shown, spans) == was
            assert (shown[0], shown[-1]) == (was[0], was[-1])
            whole, tokens = whole + sum(map(len, spans)), tokens + len(was) - 2
            place = target.tracks["position"][r, target.tracks["document"][r] == d]
            assert np.array_equal(place, np.arange(len(place)))
    assert abs(whole / tokens - 0.15) < 0.01
    assert (after.values["cut"] > 0).mean() < 0.1


def test_what_no_longer_fits_is_cut_and_counted():
    """A row full of documents of two tokens cannot shrink."""
    ids = np.random.default_rng(0).integers(200, 1000, (4, 40)).astype(np.int32)
    tracks = {
        "document": np.tile(np.arange(40) // 2, (4, 1)),
        "position": np.tile(np.arange(40) % 2, (4, 1)),
    }
    after = T5(Rows(np.arange(4), {"text": Seq(ids, np.full(4, 40), tracks)}), Draws(0, 0))
    assert after.seqs["source"].ids.shape[1] == 40 - 6 + 2 + 1
    assert (after.values["cut"] > 0).all()
    assert (after.seqs["source"].length == 37).all()


def test_padding_and_an_end_that_is_there():
    rows = make_rows(50, 60, short=True)
    after = T5(rows, Draws(0, 0))
    for r in range(50):
        ids = after.seqs["source"].ids[r]
        assert (ids[after.seqs["source"].length[r] :] == PAD).all()
        assert Counter(ids.tolist())[SEP] == 1
        assert EOS not in ids
        assert after.seqs["target"].ids[r, after.seqs["target"].length[r] - 1] == SEP


def test_wrong_settings():
    for changes, message in [
        ({"rate": 0}, "0 < rate < 1"),
        ({"mean_length": 0.5}, "at least 1"),
        ({"vocab": make_vocab(sentinels=())}, r"no sentinels[\s\S]*tokenizer\.sentinels=100"),
        ({"vocab": make_vocab(eos=None, sep=None)}, "end-of-text"),
    ]:
        with pytest.raises(ConfigError, match=message):
            SpanSentinel(**({"vocab": V, "rate": 0.15, "mean_length": 3.0} | changes))
    few = SpanSentinel(vocab=make_vocab(sentinels=(199, 198)), rate=0.15, mean_length=3.0)
    with pytest.raises(
        ConfigError, match=r"rows of 100 tokens have 5 spans[\s\S]*tokenizer.sentinels=5"
    ):
        few(plain(1, 100), Draws(0, 0))
    assert T5.reads == {"text"}
