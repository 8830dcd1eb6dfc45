"""StructBERT's shuffled trigrams: counts, disjointness, labels, and orders that are not the old
one.
"""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.base import Chain
from plmctl.noise.token_mask import TokenMask
from plmctl.noise.token_shuffle import TokenShuffle
from tests.noise.moving_rows import CLS, SEP, make_rows, make_vocab

V = make_vocab()


def literal_heads(rows: Rows, size: int) -> list[list[int]]:
    """By row: where a run of `size` tokens begins that is free of special and masked tokens and
    of document ends.
    """
    seq, masked = (
        rows.seqs["text"],
        rows.targets.get("mlm", np.full(rows.seqs["text"].ids.shape, IGNORE)) != IGNORE,
    )
    document = seq.tracks.get("document", np.zeros_like(seq.ids))
    found = []
    for ids, hidden, doc in zip(seq.ids, masked, document, strict=True):
        free = [bool(i >= 200 and not h) for i, h in zip(ids, hidden, strict=True)]
        starts = range(len(ids) - size + 1)
        found.append(
            [
                a
                for a in starts
                if all(free[a : a + size])
                and len(set(doc[a : a + size])) == 1
                and len(set(ids[a : a + size])) > 1
            ]
        )
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("packed", [False, True])
def test_runs_are_disjoint_unmasked_shuffled_and_as_many_as_asked(size, packed):
    rows = TokenMask(vocab=V, rate=0.15)(
        make_rows(200, 120, packed=packed, short=True), Draws(0, 0)
    )
    noise = TokenShuffle(vocab=V, rate=0.05, size=size)
    after = noise(rows, Draws(0, 1))
    before, ids, labels = rows.seqs["text"].ids, after.seqs["text"].ids, after.targets["shuffle"]
    assert np.array_equal(after.targets["mlm"], rows.targets["mlm"])
    asked = labels != IGNORE
    assert not (asked & (rows.targets["mlm"] != IGNORE)).any()
    assert np.array_equal(labels[asked], before[asked])
    assert np.array_equal(ids[~asked], before[~asked])
    for r, heads in enumerate(literal_heads(rows, size)):
        wanted = min(max(1, round(0.05 * len(heads))), len(heads))
        places = np.flatnonzero(asked[r])
        assert len(places) == size * wanted
        origin = after.seqs["text"].tracks["origin"][r] - 120 * r
        a = 0
        while a < len(places):  # runs that touch are told apart by where their tokens come from
            run = places[a : a + size]
            assert run[0] in heads
            assert sorted(origin[run].tolist()) == run.tolist()
            assert not np.array_equal(ids[r, run], before[r, run])
            a += size
    assert asked.sum(1).max() <= noise.capacity(120)["shuffle"]


def test_every_new_order_is_as_likely():
    ids = np.tile([CLS, 300, 301, 302, SEP], (10_000, 1)).astype(np.int32)
    rows = Rows(np.arange(10_000), {"text": Seq(ids, np.full(10_000, 5))})
    found = Counter(
        map(
            tuple,
            TokenShuffle(vocab=V, rate=0.05)(rows, Draws(0, 0)).seqs["text"].ids[:, 1:4].tolist(),
        )
    )
    assert len(found) == 5
    assert (300, 301, 302) not in found
    assert stats.chisquare(list(found.values())).pvalue > 1e-3


def test_equal_tokens():
    """Of a a b only a b a and b a a are new, and three equal tokens are left alone."""
    ids = np.tile([CLS, 300, 300, 302, SEP, 300, 300, 300, SEP], (9000, 1)).astype(np.int32)
    rows = Rows(np.arange(9000), {"text": Seq(ids, np.full(9000, 9))})
    after = TokenShuffle(vocab=V, rate=0.9)(rows, Draws(0, 0))
    found = Counter(map(tuple, after.seqs["text"].ids[:, 1:4].tolist()))
    assert found.keys() == {(300, 302, 300), (302, 300, 300)}
    assert stats.chisquare(list(found.values())).pvalue > 1e-3
    assert (after.targets["shuffle"][:, 5:] == IGNORE).all()


def test_runs_are_drawn_one_after_the_other():
    """High rates: as many runs as the literal loop finds before it meets no free place, or the
    budget ends.
    """
    rows, rng = make_rows(3000, 14), np.random.default_rng(0)
    after = TokenShuffle(vocab=V, rate=0.3)(rows, Draws(0, 0))
    ours = np.bincount((after.targets["shuffle"] != IGNORE).sum(1) // 3, minlength=5)
    theirs = np.zeros(5, int)
    for _ in range(3000):
        taken: list[int] = []
        for a in rng.permutation(10).tolist():
            if len(taken) < 3 and all(abs(a - b) >= 3 for b in taken):
                taken.append(a)
        theirs[len(taken)] += 1
    table = np.array([ours, theirs])
    assert stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 1e-3


def test_a_share_of_the_tokens_instead():
    after = TokenShuffle(vocab=V, rate=0.06, count="tokens")(make_rows(50, 102), Draws(0, 0))
    assert ((after.targets["shuffle"] != IGNORE).sum(1) == 6).all()


def test_in_a_chain_and_wrong_settings():
    chain = Chain([TokenMask(vocab=V, rate=0.15), TokenShuffle(vocab=V, rate=0.05)])
    assert chain.writes == {"targets.mlm", "targets.shuffle"}
    assert chain.capacity(128) == {"mlm": 19, "shuffle": 18}
    for options, message in [
        ({"rate": 0}, "0 < rate < 1"),
        ({"rate": 0.1, "size": 6}, "2 to 5"),
        ({"rate": 0.1, "count": "x"}, "tri"),
    ]:
        with pytest.raises(ConfigError, match=message):
            TokenShuffle(vocab=V, **options)
