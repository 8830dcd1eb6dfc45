"""InfoWord's n-gram: one of each row, lengths as the rounded and clipped normal, any place as
likely, all of it hidden.
"""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import pytest

from plmctl.config.build import build, plain
from plmctl.config.recipes import conf_dir, load
from plmctl.core.batch import IGNORE, Rows
from plmctl.core.collate import collate
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.base import Chain
from plmctl.noise.ngram_hole import NgramHole, gaussian_shares
from tests.noise.plain_rows import make_rows, make_vocab
from tests.noise.worded import some

MASK = 4


def part(name: str, **settings: object):
    return build(
        {**plain(load(conf_dir() / "noise" / f"{name}.yaml")), **settings},
        {"vocab": make_vocab()},
        path="noise",
    )


def test_one_run_a_row_all_of_it_mask_and_asked() -> None:
    rows = make_rows(500, 30, lengths=[30, 12] * 250)
    before = rows.seqs["text"].ids
    noised = part("ngram_hole")(rows, Draws(0, 0))
    after, asked = noised.seqs["text"].ids, noised.targets["mlm"]
    assert noised.spans["chosen"][:, 0].tolist() == list(range(500))
    expected = np.zeros(before.shape, bool)
    for row, start, length in noised.spans["chosen"].tolist():
        expected[row, start : start + length] = True
    assert np.array_equal(asked != IGNORE, expected)
    assert np.array_equal(asked[expected], before[expected])
    assert (before[expected] >= 10).all()
    assert (after[expected] == MASK).all()
    assert np.array_equal(after[~expected], before[~expected])


def test_lengths_are_a_rounded_and_clipped_normal() -> None:
    def below(x: float) -> float:
        return 0.5 * (1 + erf((x - 5) / sqrt(2)))

    wanted = [below(1.5), *(below(n + 0.5) - below(n - 0.5) for n in range(2, 10)), 1 - below(9.5)]
    assert gaussian_shares(5, 1, 10) == pytest.approx(wanted, abs=1e-12)
    length = part("ngram_hole")(make_rows(20_000, 30), Draws(0, 0)).spans["chosen"][:, 2]
    found = np.bincount(length, minlength=11)[1:] / len(length)
    assert np.abs(found - wanted).max() < 4 * np.sqrt(0.25 / len(length))
    assert length.mean() == pytest.approx(5, abs=0.03)


def test_every_place_is_as_likely_and_no_special_token_is_crossed() -> None:
    """Stretches of 6 and 3 tokens: 3-grams may begin at places 1..4 of the first and 8 of the
    second.
    """
    rows = make_rows(20_000, 12)
    rows.seqs["text"].ids[:, 7] = 3
    noised = NgramHole(vocab=make_vocab(), mean=3, deviation=1e-3, max_tokens=10)(rows, Draws(0, 0))
    start, count = np.unique(noised.spans["chosen"][:, 1], return_counts=True)
    assert start.tolist() == [1, 2, 3, 4, 8]
    assert np.abs(count / 20_000 - 0.2).max() < 0.012
    assert (noised.spans["chosen"][:, 2] == 3).all()


def test_short_rows() -> None:
    rows = make_rows(5, 12, lengths=[2, 3, 4, 12, 6])
    spans = NgramHole(vocab=make_vocab(), mean=9, deviation=1e-3, max_tokens=10)(
        rows, Draws(0, 0)
    ).spans["chosen"]
    assert spans[:, [0, 2]].tolist() == [[2, 1], [3, 9], [4, 3]]
    none = part("ngram_hole")(some(rows, np.array([0, 1])), Draws(0, 0))
    assert none.spans["chosen"].shape == (0, 3)
    assert (none.targets["mlm"] == IGNORE).all()


def test_after_another_noise_both_ask() -> None:
    """What token_mask hid stays hidden and asked; the n-gram may hold such tokens, whose
    originals are asked.
    """
    rows = make_rows(400, 30)
    before = rows.seqs["text"].ids
    chain = Chain([part("token_mask", rate=0.3), part("ngram_hole")])
    first = Chain([part("token_mask", rate=0.3)])(rows, Draws(0, 0))
    noised = chain(rows, Draws(0, 0))
    hole = np.zeros(before.shape, bool)
    for row, start, length in noised.spans["chosen"].tolist():
        hole[row, start : start + length] = True
    earlier = first.targets["mlm"] != IGNORE
    assert (hole & earlier).any()
    asked = noised.targets["mlm"]
    assert np.array_equal(asked != IGNORE, hole | earlier)
    assert np.array_equal(asked[asked != IGNORE], before[asked != IGNORE])
    assert np.array_equal(noised.seqs["text"].ids, np.where(hole, MASK, first.seqs["text"].ids))
    assert chain.capacity(30) == {"mlm": 9 + 10}
    assert chain.capacity(12) == {"mlm": 12}
    collate(noised, chain.capacity(30))


@pytest.mark.parametrize("documents", [False, True])
def test_same_bytes_whatever_the_batch(documents: bool) -> None:
    rows = make_rows(40, 50, documents=documents)
    noise = Chain([part("ngram_hole")])
    whole = noise(rows, Draws(0, 3))
    for index in np.array_split(np.random.default_rng(0).permutation(40), 4):
        noised, wanted = noise(some(rows, index), Draws(0, 3)), some(whole, index)
        assert np.array_equal(noised.seqs["text"].ids, wanted.seqs["text"].ids)
        assert np.array_equal(noised.spans["chosen"], wanted.spans["chosen"])
    assert not np.array_equal(noise(rows, Draws(0, 4)).seqs["text"].ids, whole.seqs["text"].ids)


def test_the_rows_given_stay_as_they_are() -> None:
    rows = make_rows(10, 30)
    masked = part("token_mask")(rows, Draws(0, 0))
    ids, asked = masked.seqs["text"].ids.copy(), masked.targets["mlm"].copy()
    part("ngram_hole")(Rows(masked.key, masked.seqs, masked.targets), Draws(0, 1))
    assert np.array_equal(masked.seqs["text"].ids, ids)
    assert np.array_equal(masked.targets["mlm"], asked)


def test_wrong_numbers() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        part("ngram_hole", deviation=0.0)
    with pytest.raises(ConfigError, match="above 0"):
        part("ngram_hole", max_tokens=0)
    with pytest.raises(ConfigError, match="mask token"):
        NgramHole(vocab=make_vocab(mask=None), mean=5, deviation=1, max_tokens=10)
