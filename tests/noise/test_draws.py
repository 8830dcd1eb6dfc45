import numpy as np
import pytest
from scipy import stats

from plmctl.core.draws import Draws, below, unit

KEYS = np.arange(2000)


def test_same_place_same_number_whatever_the_order():
    draws = Draws(1, 2)
    whole = draws.uniform(KEYS, "a", 33)
    picked = np.array([7, 1999, 0, 7])
    assert np.array_equal(Draws(1, 2).uniform(picked, "a", 33), whole[picked])
    assert np.array_equal(draws.uniform(KEYS, "a", 8), whole[:, :8])
    assert np.array_equal(draws.uniform(KEYS, "a", 3, 11), whole.reshape(2000, 3, 11))


def test_places_one_by_one_equal_the_table():
    table = Draws(5, 0).words(KEYS, "x", 9)
    row, column = np.divmod(np.arange(0, 18000, 7), 9)
    assert np.array_equal(Draws(5, 0).words_at(KEYS, "x", row, column), table[row, column])


@pytest.mark.parametrize(
    "other",
    [
        Draws(2, 2),
        Draws(1, 3),
        Draws(1, 2).child(0),
        Draws(1, 2).child(1),
        Draws(1, 2).child(0).child(1),
    ],
    ids=lambda d: f"{d.seed}-{d.epoch}-{d.path}",
)
def test_other_seed_epoch_or_part_is_independent(other):
    one, two = Draws(1, 2).uniform(KEYS, "a", 50).ravel(), other.uniform(KEYS, "a", 50).ravel()
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / np.sqrt(one.size)
    assert not (one == two).mean() > 1e-4


def test_names_keys_and_columns_are_independent():
    draws = Draws(3, 0)
    u, v = draws.uniform(KEYS, "a", 50), draws.uniform(KEYS, "b", 50)
    bound = 4 / np.sqrt(u.size)
    pairs = [
        (u, v),
        (u[1:], u[:-1]),
        (u[:, 1:], u[:, :-1]),
        (u[:, 2:], u[:, :-2]),
        (u[1:, 1:], u[:-1, :-1]),
    ]
    for x, y in pairs:
        assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < bound


@pytest.mark.parametrize(
    "keys", [KEYS, KEYS << 32, KEYS * 12345 + 10**12], ids=["small", "high", "spread"]
)
def test_uniform_by_chi_square(keys):
    u = Draws(11, 4).uniform(keys, "u", 100).ravel()
    assert u.dtype == np.float32
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.bincount((u * 256).astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    low_bits = Draws(11, 4).bits(keys, "u", 100).ravel() & 255
    assert stats.chisquare(np.bincount(low_bits, minlength=256)).pvalue > 1e-4
    joint = Draws(11, 4).integers(keys, "j", 16, 100)
    # two halves of one word
    table = np.bincount((joint[:, 0::2] * 16 + joint[:, 1::2]).ravel(), minlength=256)
    assert stats.chisquare(table).pvalue > 1e-4


def test_each_bit_is_fair():
    bits = Draws(0, 0).bits(KEYS, "bits", 64)
    for b in range(32):
        ones = ((bits >> np.uint32(b)) & 1).mean()
        assert abs(ones - 0.5) < 4.5 * 0.5 / np.sqrt(bits.size)


def test_integers():
    found = Draws(0, 1).integers(KEYS, "i", 7, 20)
    assert found.min() == 0
    assert found.max() == 6
    assert stats.chisquare(np.bincount(found.ravel())).pvalue > 1e-4
    high = np.arange(1, 2001)
    assert (Draws(0, 1).integers(KEYS, "i", high) < high).all()
    assert below(np.array([2**32 - 1], np.uint32), 2**31)[0] == 2**31 - 1
    assert unit(np.array([2**32 - 1], np.uint32))[0] < 1


def test_repeating():
    assert np.array_equal(
        Draws(1, 12).repeat(10).uniform(KEYS, "a"), Draws(1, 2).uniform(KEYS, "a")
    )
    assert Draws(1, 12).child("x").repeat(1).path == ("x",)
