"""Against SpanBERT's masking.py as a literal loop; lengths against the truncated geometric;
SBO's spans; the exact sampler.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import Rows
from plmctl.core.draws import HALF, Draws, below
from plmctl.core.errors import ConfigError
from plmctl.noise.groups import Lengths
from plmctl.noise.span_mask import SpanMask
from plmctl.noise.spans import Anchored, Segmented, place_spans
from tests.noise.worded import chosen_of, worded, words_of

GEOMETRIC = 0.2 * 0.8 ** np.arange(10)


def literal(words: list[list[int]], cut: set[int], looks, budget: int) -> set[int]:
    """PairWithSpanMaskingScheme.mask; `looks` yields (anchor, words), `cut`: words that no span
    runs into.
    """
    number = {at: i for i, word in enumerate(words) for at in word}
    chosen: set[int] = set()
    for anchor, length in looks:
        if len(chosen) >= budget:
            break
        if anchor not in number or anchor in chosen:
            continue
        i = number[anchor]
        for j in range(i, min(i + length, len(words))):
            if j > i and j in cut:
                break
            for at in words[j]:
                if len(chosen) >= budget:
                    break
                chosen.add(at)
    return chosen


def cuts(words: list[list[int]]) -> set[int]:
    return {i for i in range(1, len(words)) if words[i][0] != words[i - 1][-1] + 1}


def one_segment(rows: Rows) -> Rows:
    """Without specials but for the first and last token, as SpanBERT's rows are."""
    seq = rows.seqs["text"]
    inner = (np.arange(seq.ids.shape[1]) > 0) & (
        np.arange(seq.ids.shape[1]) < seq.length[:, None] - 1
    )
    return rows.with_seq(
        "text", replace(seq, ids=np.where(inner, np.maximum(seq.ids, 10), seq.ids))
    )


@pytest.mark.parametrize("rate", [0.15, 0.5, 0.9])
def test_equals_the_literal_loop(vocab_of, rate):
    lengths = np.random.default_rng(0).integers(4, 90, 100).tolist()
    rows, draws = worded(100, 90, lengths=lengths), Draws(3, 1)
    chosen = chosen_of(SpanMask(vocab=vocab_of(), sampler=Anchored(), rate=rate)(rows, draws))
    row, look = np.divmod(np.arange(100 * 3000), 3000)
    word = draws.child("select").words_at(rows.key, "span", row, look * 90).reshape(100, 3000)
    size = Lengths(GEOMETRIC)(word >> HALF)
    for row in range(100):
        words = words_of(rows, row)
        budget = math.ceil(rate * sum(map(len, words)))
        # a row without documents: padding is looked at in vain
        anchor = below(word[row].astype(np.uint32), 90)
        looks = zip(anchor.tolist(), size[row].tolist(), strict=True)
        wanted = literal(words, cuts(words), looks, budget)
        assert len(wanted) == budget
        assert set(np.flatnonzero(chosen[row]).tolist()) == wanted, row


def test_statistics_of_an_independent_loop(vocab_of):
    """Places, number and lengths of the joined spans, against numpy's own generator on a single
    segment.
    """
    one = one_segment(worded(1, 102, seed=5))
    seq = one.seqs["text"]
    same = {name: np.repeat(track, 4000, 0) for name, track in seq.tracks.items()}
    many = Rows(
        key=np.arange(4000),
        seqs={"text": type(seq)(np.repeat(seq.ids, 4000, 0), np.full(4000, 102), same)},
    )
    words, rng = words_of(one, 0), np.random.default_rng(1)
    wanted = np.zeros((4000, 102), bool)
    for row in wanted:
        looks = zip(
            rng.integers(1, 101, 400).tolist(),
            rng.choice(10, 400, p=GEOMETRIC / GEOMETRIC.sum()).__add__(1).tolist(),
            strict=True,
        )
        row[list(literal(words, set(), looks, 15))] = True
    noised = SpanMask(vocab=vocab_of(), sampler=Anchored(), rate=0.15)(many, Draws(0, 0))
    found = chosen_of(noised)
    assert (found.sum(1) == 15).all()
    assert stats.chi2_contingency(np.stack([wanted.sum(0), found.sum(0)])[:, 1:-1]).pvalue > 1e-3
    spans = np.bincount(noised.spans["chosen"][:, 0], minlength=4000)
    tables = [(wanted[:, 1:] & ~wanted[:, :-1]).sum(1), spans]
    table = np.stack([np.bincount(x, minlength=16) for x in tables])
    assert stats.chi2_contingency(table[:, table.sum(0) > 10]).pvalue > 1e-3
    lengths = np.stack(
        [
            np.bincount(run_lengths(wanted), minlength=16),
            np.bincount(noised.spans["chosen"][:, 2], minlength=16),
        ]
    )
    assert stats.chi2_contingency(lengths[:, lengths.sum(0) > 10]).pvalue > 1e-3


def run_lengths(chosen: np.ndarray) -> np.ndarray:
    edge = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(int), axis=1)
    return np.argwhere(edge == -1)[:, 1] - np.argwhere(edge == 1)[:, 1]


def test_length_distribution_of_the_paper():
    lengths = Lengths(GEOMETRIC)
    assert lengths.mean == pytest.approx(3.797, abs=1e-3)
    found = np.bincount(lengths(Draws(0, 0).bits(np.arange(1000), "l", 100).ravel()), minlength=11)[
        1:
    ]
    assert stats.chisquare(found, GEOMETRIC / GEOMETRIC.sum() * found.sum()).pvalue > 1e-3
    assert found[9] / found.sum() == pytest.approx(0.0301, abs=0.002)


@pytest.mark.parametrize("sampler", [Anchored(), Segmented()], ids=["anchored", "segmented"])
def test_spans_for_the_boundary_objective(vocab_of, sampler):
    """Sorted, apart, exactly what is asked, inside one document and one stretch of ordinary
    tokens.
    """
    rows = worded(100, 128, documents=True)
    noised = SpanMask(vocab=vocab_of(), sampler=sampler, rate=0.3)(rows, Draws(0, 0))
    chosen, again = chosen_of(noised), np.zeros((100, 128), int)
    spans, document = noised.spans["chosen"], rows.seqs["text"].tracks["document"]
    assert np.array_equal(noised.spans["entity"], rows.spans["entity"])
    assert np.array_equal(spans, spans[np.lexsort((spans[:, 1], spans[:, 0]))])
    for row, start, length in spans.tolist():
        again[row, start : start + length] += 1
        assert len(set(document[row, start : start + length])) == 1
        same_before = start and document[row, start - 1] == document[row, start]
        assert not (same_before and chosen[row, start - 1])  # neighbours that touch are one span
    assert np.array_equal(again, chosen.astype(int))


@pytest.mark.slow  # test_statistics_of_an_independent_loop stays
def test_one_lot_for_a_span(vocab_of):
    rows = one_segment(worded(1500, 128))
    sample = np.array([50, 50, 50, 60, 1])  # of a corpus; 1 is special and never shown
    mask = SpanMask(vocab=vocab_of(), sampler=Anchored(), rate=0.15, corpus_sample=sample)
    noised = mask(rows, Draws(0, 0))
    before, after = rows.seqs["text"].ids, noised.seqs["text"].ids
    fates = []
    for row, start, length in noised.spans["chosen"].tolist():
        old, new = before[row, start : start + length], after[row, start : start + length]
        kept, masked, drawn = (new == old).all(), (new == 4).all(), np.isin(new, [50, 60]).all()
        assert kept + masked + drawn >= 1
        fates.append([masked, drawn and not kept, kept])
    share = np.mean(fates, 0)
    assert np.abs(share - [0.8, 0.1, 0.1]).max() < 3 * math.sqrt(0.16 / len(fates))
    drawn = after[np.isin(after, [50, 60]) & (after != before)]
    assert stats.binomtest(int((drawn == 50).sum()), len(drawn), 0.75).pvalue > 1e-3
    uniform = SpanMask(
        vocab=vocab_of(), sampler=Anchored(), rate=0.15, corpus_sample=sample, random_unigram=False
    )
    other = uniform(rows, Draws(0, 0)).seqs["text"].ids
    assert len(np.unique(other[(other != before) & (other != 4)])) > 500


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampler", [Anchored(), Segmented()], ids=["anchored", "segmented"])
@pytest.mark.parametrize("rate", [0.15, 0.6, 0.95])
def test_budget_is_exact_and_one_word_at_most_is_cut(vocab_of, sampler, rate):
    rows = worded(120, 128, lengths=[128, 90, 7, 3] * 30)
    noised = SpanMask(vocab=vocab_of(), sampler=sampler, rate=rate)(rows, Draws(0, 0))
    chosen = chosen_of(noised)
    for row in range(120):
        words = words_of(rows, row)
        assert chosen[row].sum() == math.ceil(rate * sum(map(len, words)))
        assert sum(chosen[row, word].any() and not chosen[row, word].all() for word in words) <= 1


def test_exact_sampler_draws_every_arrangement_alike(vocab_of):
    """Six words, two of which are hidden: one span of two (5 places), or two apart (10 pairs),
    by the lengths drawn.
    """
    rows = one_segment(worded(1, 8))
    seq = rows.seqs["text"]
    ids, start = np.repeat(seq.ids, 6000, 0), np.ones((6000, 8), bool)
    many = Rows(
        key=np.arange(6000), seqs={"text": type(seq)(ids, np.full(6000, 8), {"word_start": start})}
    )
    noised = SpanMask(vocab=vocab_of(), sampler=Segmented(), rate=0.33, p=0.5, max_words=2)(
        many, Draws(0, 0)
    )
    found: dict[tuple[int, ...], int] = {}
    for row in chosen_of(noised):
        places = tuple((np.flatnonzero(row) - 1).tolist())
        found[places] = found.get(places, 0) + 1
    assert sorted(found) == sorted(combinations(range(6), 2))
    expected = [6000 * (1 / 3 / 5 if b == a + 1 else 2 / 3 / 10) for a, b in sorted(found)]
    assert stats.chisquare([found[key] for key in sorted(found)], expected).pvalue > 1e-3


@pytest.mark.slow  # test_budget_is_exact_and_one_word_at_most_is_cut stays
def test_exact_sampler_keeps_the_lengths_drawn(vocab_of):
    """In words, of spans not cut: a special token or the budget shortens few, none is
    lengthened.
    """
    rows = one_segment(worded(600, 512))
    seq = rows.seqs["text"]
    rows = rows.with_seq("text", seq.with_tracks(word_start=np.ones(seq.ids.shape, bool)))
    drawn = SpanMask(vocab=vocab_of(), sampler=Segmented(), rate=0.15)(rows, Draws(0, 0)).spans[
        "chosen"
    ][:, 2]
    published = SpanMask(vocab=vocab_of(), sampler=Anchored(), rate=0.15)(rows, Draws(0, 0)).spans[
        "chosen"
    ][:, 2]
    assert drawn.max() == 10
    assert drawn.mean() == pytest.approx(3.797, abs=0.25)
    assert published.max() > 10  # the published one joins spans that meet


def test_anchored_is_the_loop():
    rng = np.random.default_rng(0)
    for _ in range(100):
        begin = rng.integers(0, 90, 40)
        end = begin + rng.integers(1, 9, 40)
        anchor = begin + (rng.random(40) * (end - begin)).astype(int)
        wanted = np.full(100, 40)
        for k in range(40):
            if wanted[anchor[k]] == 40:
                wanted[begin[k] : end[k]] = np.minimum(wanted[begin[k] : end[k]], k)
        assert place_spans(anchor, begin, end, np.zeros(100, np.int32)).tolist() == wanted.tolist()


def test_lengths_in_tokens(vocab_of):
    mask = SpanMask(vocab=vocab_of(), sampler=Segmented(), rate=0.15, words=False)
    assert mask.reads == {"input"}
    assert SpanMask(vocab=vocab_of(), sampler=Segmented(), rate=0.15).reads == {
        "input",
        "tracks.word_start",
    }
    rows = one_segment(worded(50, 100))
    assert (chosen_of(mask(rows, Draws(0, 0))).sum(1) == math.ceil(0.15 * 98)).all()


def test_wrong_settings(vocab_of):
    for options, message in [({"p": 0.0}, "0 < p < 1"), ({"max_words": 0}, "max_words")]:
        with pytest.raises(ConfigError, match=message):
            SpanMask(vocab=vocab_of(), sampler=Anchored(), rate=0.15, **options)
