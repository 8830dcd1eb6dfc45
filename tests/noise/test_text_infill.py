"""Text infilling against a literal loop of the published sampler, its measured figures, and
Poisson's law.
"""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.text_infill import TextInfill, draw_gaps, tabulate_poisson
from tests.noise.moving_rows import MASK, make_rows, make_vocab

V = make_vocab()


def infill(**changes) -> TextInfill:
    return TextInfill(vocab=V, **({"rate": 0.3, "mean_length": 3.0} | changes))


def published(
    starts: list[bool], rate: float, mean: float, rng: np.random.Generator
) -> list[object]:
    """One row's ordinary tokens after the published algorithm, step by step: numbers of kept
    tokens, "m" for a mask.
    """
    words = [i for i, start in enumerate(starts) if start]
    budget = int(np.ceil(rate * len(words) - 1e-9))
    lengths: list[int] = []
    while sum(lengths) < budget:
        lengths.append(int(rng.poisson(mean)))
    if lengths:
        lengths[-1] -= sum(lengths) - budget
    inserts = lengths.count(0)
    lengths = [length for length in lengths if length]
    chosen = rng.permutation(words)[: len(lengths)]
    gone, masked = set(), set()
    for start, length in zip(chosen.tolist(), lengths, strict=True):
        masked.add(start)
        end, left = start + 1, length
        while end < len(starts):
            left -= starts[end]
            if left == 0:
                break
            gone.add(end)
            end += 1
    out: list[object] = ["m" if i in masked else i for i in range(len(starts)) if i not in gone]
    slots = set((rng.permutation(len(out) + inserts + (0 if out else 1))[:inserts]).tolist())
    rest = iter(out)
    return ["m" if i in slots else next(rest) for i in range(len(out) + inserts)]


@pytest.mark.slow  # test_like_the_literal_loop_on_words stays
@pytest.mark.parametrize(
    ("mean", "length", "masks", "left"), [(3.0, 418.2, 42.5, 375.7), (3.5, 412.1, 35.8, 376.3)]
)
def test_figures_measured_on_the_published_code(mean, length, masks, left):
    """512 tokens with specials, every token a word, 2000 draws."""
    seq = infill(mean_length=mean, whole_words=False)(make_rows(2000, 512), Draws(0, 0)).seqs[
        "source"
    ]
    found = (seq.ids == MASK).sum(1)
    assert abs(seq.length.mean() - length) < 0.4
    assert abs(found.mean() - masks) < 0.4
    assert abs((seq.length - found).mean() - left) < 0.4


def test_like_the_literal_loop_on_words():
    rows = make_rows(3000, 42, seed=3)
    starts = rows.seqs["text"].tracks["word_start"][:, 1:-1].copy()
    starts[:, 0] = True
    seq = infill()(rows, Draws(7, 0)).seqs["source"]
    rng = np.random.default_rng(1)
    loop = [published(s.tolist(), 0.3, 3.0, rng) for s in starts]
    ours = [seq.ids[r, 1 : seq.length[r] - 1] == MASK for r in range(3000)]
    theirs = [np.array([x == "m" for x in row]) for row in loop]
    for measure in (
        len,
        np.sum,
        lambda m: int((m[1:] & m[:-1]).sum()),
        lambda m: int(m[0]) + 2 * int(m[-1]),
    ):
        table = Counter(
            (i, int(measure(m))) for i, side in enumerate((ours, theirs)) for m in side if len(m)
        )
        kinds = sorted({k for _, k in table})
        counts = np.array([[table[i, k] for k in kinds] for i in range(2)])
        counts = np.concatenate(
            [
                counts[:, counts.sum(0) >= 20],
                counts[:, counts.sum(0) < 20].sum(1, keepdims=True) + 1,
            ],
            1,
        )
        assert stats.chi2_contingency(counts).pvalue > 1e-3
    place = [
        np.concatenate([np.flatnonzero(m) / len(m) for m in side if len(m)])
        for side in (ours, theirs)
    ]
    assert stats.ks_2samp(*place).pvalue > 1e-3


def test_lengths_make_up_the_budget_of_words_and_follow_poisson():
    noise, n = infill(), 4000
    rows = make_rows(n, 12)
    document, size = noise._lengths(rows, Draws(0, 0), np.arange(n) * 12, np.full(n, 300), 12)
    assert (np.bincount(document, weights=size) == 300).all()
    # the budget is far off
    early = size[
        np.concatenate([np.arange(60) + k for k in np.searchsorted(document, np.arange(n))])
    ]
    table = np.bincount(np.minimum(early, 9), minlength=10)
    wanted = np.append(stats.poisson.pmf(np.arange(9), 3), stats.poisson.sf(8, 3)) * len(early)
    assert stats.chisquare(table, wanted * table.sum() / wanted.sum()).pvalue > 1e-3
    assert abs(tabulate_poisson(3.0).sum() - 1) < 1e-6
    assert np.allclose(tabulate_poisson(7.5)[:20], stats.poisson.pmf(np.arange(20), 7.5))


@pytest.mark.parametrize("packed", [False, True])
def test_exact_spans_cover_the_budget_and_never_touch(packed):
    rows = make_rows(200, 90, packed=packed, short=True)
    before = rows.seqs["text"]
    seq = infill(selection="exact", mean_length=4.0)(rows, Draws(3, 3)).seqs["source"]
    for r in range(200):
        ids, origin = seq.ids[r, : seq.length[r]], seq.tracks["origin"][r, : seq.length[r]] - 90 * r
        ordinary = before.ids[r] >= 200
        starts = ordinary & (before.tracks["word_start"][r] | ~np.append(False, ordinary[:-1]))
        left = set(origin[ids != MASK].tolist())
        words = np.cumsum(starts) * ordinary
        gone = {int(words[c]) for c in np.flatnonzero(ordinary) if c not in left}
        assert len(gone) == np.ceil(0.3 * starts.sum() - 1e-9)
        assert all(c in left or words[c] in gone for c in np.flatnonzero(ordinary))


def test_every_set_of_gaps_is_as_likely():
    rows = make_rows(20_000, 6)
    first = np.arange(20_000) * 6
    document, gap = draw_gaps(rows, Draws(0, 0), first, np.full(20_000, 2), np.full(20_000, 3), 6)
    assert np.array_equal(document, np.repeat(np.arange(20_000), 3))
    found = Counter(tuple(sorted(x)) for x in gap.reshape(-1, 3).tolist())
    assert len(found) == 10  # multisets of 3 among 3 gaps
    assert stats.chisquare(list(found.values())).pvalue > 1e-3


def test_masks_without_room_are_left_out():
    rows = make_rows(100, 24, packed=True)
    seq = infill(mean_length=0.1, whole_words=False)(rows, Draws(0, 0)).seqs["source"]
    assert seq.length.max() == 24
    assert (seq.length == 24).mean() > 0.9


def test_rate_holds_in_packed_documents():
    rows = make_rows(3000, 64, packed=True)
    before, seq = (
        rows.seqs["text"],
        infill(whole_words=False, selection="exact")(rows, Draws(0, 0)).seqs["source"],
    )
    left = np.zeros(before.ids.size, bool)
    left[seq.tracks["origin"][(seq.ids >= 200)]] = True
    gone = (before.ids >= 200) & ~left.reshape(before.ids.shape)
    size = np.array([(before.tracks["document"] == d)[:, 1:-1].sum(1) for d in range(5)])
    for low, high in ((8, 16), (16, 64)):
        inside = [
            (before.tracks["document"] == d) & ((size[d] >= low) & (size[d] < high))[:, None]
            for d in range(5)
        ]
        share = sum(gone[x].sum() for x in inside) / sum(
            (before.ids[x] >= 200).sum() for x in inside
        )
        assert abs(share - 0.3) < 0.02


def test_wrong_settings():
    for changes, message in [
        ({"rate": 0}, "0 < rate < 1"),
        ({"mean_length": 0}, "Poisson"),
        ({"selection": "x"}, "published, exact"),
        ({"vocab": make_vocab(mask=None)}, "mask token"),
    ]:
        with pytest.raises(ConfigError, match=message):
            TextInfill(**({"vocab": V, "rate": 0.3, "mean_length": 3.0} | changes))
    assert infill().reads == {"input", "tracks.word_start"}
    assert infill(whole_words=False).reads == {"input"}
