"""XLNet's order and targets: the published visibility rule, and its span sampler as a literal
loop.
"""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import IGNORE
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.factorization_order import FactorizationOrder
from tests.noise.moving_rows import make_rows, make_vocab

V = make_vocab()


def order(**changes) -> FactorizationOrder:
    return FactorizationOrder(vocab=V, **({"context": 6} | changes))


def sample_mask(
    start: list[bool], goal: int, context: int, rng: np.random.Generator, words: bool
) -> np.ndarray:
    """The published sampler over one section, step by step (`words`: as the paper means it, else
    as the code does).
    """
    chosen, done, at, shares = np.zeros(len(start), bool), 0, 0, 1 / np.arange(1, 6)
    while at < len(start) and done < goal:
        n = min(int(rng.choice(5, p=shares / shares.sum())) + 1, goal - done)
        before = int(rng.integers(n * context))
        begin = at + before
        while begin < len(start) and not start[begin]:
            begin += 1
        end, count = begin + 1, 1
        while end < len(start):
            count += start[end] if words else 1
            if count > n:
                break
            end += 1
        if words:
            end = min(end, begin + goal - done)
        if begin >= len(start) or end >= len(start):
            break
        chosen[begin:end] = True
        done, at = done + end - begin, end + n * context - before
    while done < goal:
        place = int(rng.integers(len(start)))
        done, chosen[place] = done + (not chosen[place]), True
    return chosen


@pytest.mark.parametrize("packed", [False, True])
def test_who_sees_whom_as_published(packed):
    """i may not see j iff self_rank[i] <= rank[j] and j is a target or special (perm_mask);
    later blocks see earlier ones.
    """
    rows = make_rows(20, 48, packed=packed)
    after = order(block=16)(rows, Draws(0, 0))
    seq, target = after.seqs["text"], after.targets["plm"] != IGNORE
    document = seq.tracks.get("document", np.zeros_like(seq.ids))
    for r in range(20):
        for d in range(document[r].max() + 1):
            places = np.flatnonzero(document[r] == d)
            block = np.arange(len(places)) // 16
            ids, hit, place = seq.ids[r, places], target[r, places], seq.tracks["order"][r, places]
            special = ids < 200
            for b in range(block[-1] + 1):
                mine = np.flatnonzero(block == b)
                above = place[mine] - b * 17
                assert (above[~hit[mine] & ~special[mine]] == 0).all()
                ranks = above[hit[mine] | special[mine]]
                assert len(set(ranks.tolist())) == len(ranks)
                assert ranks.size == 0 or (ranks.min() >= 1 and ranks.max() <= len(mine))
            rank = np.where(hit | special, place % 17 - 1, -1)
            own = np.where(hit, rank, rank + 1)
            hidden = (own[:, None] <= rank[None]) & (hit | special)[None]
            hidden = np.where(block[:, None] == block[None], hidden, block[:, None] < block[None])
            query, content = place[None] < place[:, None], place[None] <= place[:, None]
            known = ~hit & ~special
            assert np.array_equal(query[hit], ~hidden[hit])
            same = np.eye(len(places), dtype=bool)
            assert np.array_equal(content, ~hidden | same)
            assert content[known][:, known][block[known][:, None] >= block[known][None]].all()


def test_budget_and_targets():
    """One in six: 85 of 512, 42 or 43 in each half; targets are the tokens themselves, never
    special ones.
    """
    rows = make_rows(100, 512, frame=False)
    after = order()(rows, Draws(0, 0))
    chosen = after.targets["plm"] != IGNORE
    assert (chosen.sum(1) == 85).all()
    assert set(chosen[:, :256].sum(1).tolist()) == {42, 43}
    assert np.array_equal(after.targets["plm"][chosen], rows.seqs["text"].ids[chosen])
    assert after.seqs["text"].ids is rows.seqs["text"].ids
    framed = order()(make_rows(100, 512, packed=True, short=True), Draws(0, 0))
    assert not (framed.seqs["text"].ids[framed.targets["plm"] != IGNORE] < 200).any()
    assert (framed.targets["plm"] != IGNORE).sum(1).max() <= order().capacity(512)["plm"] == 85


@pytest.mark.sampled(2)
@pytest.mark.parametrize("words", [False, True])
def test_spans_like_the_literal_loop(words):
    rows = make_rows(1200, 96, frame=False, seed=5, mean_word=2.0)
    start = rows.seqs["text"].tracks["word_start"].copy()
    start[:, 0] = True
    ours = order(block=None, whole_words=words)(rows, Draws(0, 0)).targets["plm"] != IGNORE
    rng = np.random.default_rng(2)
    theirs = np.array([sample_mask(s.tolist(), 16, 6, rng, words) for s in start])
    assert (ours.sum(1) == theirs.sum(1)).all()

    def edges(chosen: np.ndarray, sign: int) -> np.ndarray:
        return np.nonzero(
            np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(np.int8), axis=1) == sign
        )[1]

    measures = [
        lambda c: np.minimum(edges(c, -1) - edges(c, 1), 8),
        lambda c: edges(c, 1) // 8,
        lambda c: edges(c, -1) // 8,
    ]
    for measure in measures:
        table = np.array([np.bincount(measure(x), minlength=13) for x in (ours, theirs)])
        assert stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 1e-3
    assert abs((start & ours).sum() / ours.sum() - (start & theirs).sum() / theirs.sum()) < 0.02


@pytest.mark.sampled(2)
@pytest.mark.parametrize("words", [False, True])
def test_reversed_rows_are_sampled_in_the_order_of_the_text(words):
    """The published sampler turns a reversed section round, chooses there, and turns its choice
    back (`_sample_mask`).
    """
    rows = make_rows(1200, 96, frame=False, seed=5, mean_word=2.0)
    backward = np.arange(1200) % 2 == 1
    seq = rows.seqs["text"]
    starts = seq.tracks["word_start"].copy()  # in the order of the text
    starts[:, 0] = True
    ends = np.roll(starts, -1, axis=1)
    ids = np.where(backward[:, None], seq.ids[:, ::-1], seq.ids)
    # as formats lay it: the first token of a word in the row
    track = np.where(backward[:, None], ends[:, ::-1], starts)
    given = replace(
        rows.with_seq("text", replace(seq, ids=ids).with_tracks(word_start=track)),
        values={"reversed": backward},
    )
    row = order(block=48, whole_words=words)(given, Draws(0, 0)).targets["plm"] != IGNORE
    # sections, as the text has them
    text = np.where(backward[:, None], row[:, ::-1], row).reshape(-1, 48)
    rng, cut = np.random.default_rng(2), starts.reshape(-1, 48)
    theirs = np.array([sample_mask(s.tolist(), 8, 6, rng, words) for s in cut])

    def shares(chosen: np.ndarray, cut: np.ndarray) -> list[float]:
        """Of the n-grams chosen: which share begins where a word does, and which ends where a
        word does.
        """
        edge = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        after = np.pad(cut, ((0, 0), (0, 1)), constant_values=True)
        return [float(after[edge == 1].mean()), float(after[edge == -1].mean())]

    wanted = shares(theirs, cut)
    for part in (np.repeat(~backward, 2), np.repeat(backward, 2)):
        assert shares(text[part], cut[part]) == pytest.approx(wanted, abs=0.03)
    assert wanted[0] > 0.75
    assert words or wanted[1] < 0.7


def test_exact_spans_do_not_touch_and_hold_the_budget():
    rows = make_rows(2000, 98)
    chosen = order(selection="exact")(rows, Draws(0, 0)).targets["plm"] != IGNORE
    assert set(chosen.sum(1).tolist()) == {16}
    edge = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    length = np.nonzero(edge == -1)[1] - np.nonzero(edge == 1)[1]
    assert length.max() <= 5
    found = Counter(length.tolist())
    assert found[1] > found[2] > found[3] > found[4] > found[5] > 0


def test_ranks_are_uniform():
    rows = make_rows(6000, 18, frame=False)
    after = order(block=None)(rows, Draws(0, 0))
    found = Counter(
        map(
            tuple,
            after.seqs["text"]
            .tracks["order"][after.targets["plm"] != IGNORE]
            .reshape(-1, 3)
            .tolist(),
        )
    )
    assert found.keys() == set(permutations((1, 2, 3)))
    assert stats.chisquare(list(found.values())).pvalue > 1e-3


def test_wrong_settings():
    for changes, message in [
        ({"context": 1}, "at least 2"),
        ({"most": 0}, "at least 1"),
        ({"block": 4}, "at least 8"),
        ({"selection": "x"}, "published, exact"),
    ]:
        with pytest.raises(ConfigError, match=message):
            order(**changes)
    assert order().writes == {"tracks.order", "targets.plm"}
