"""Which layers learn from which: the published maps, and what is said where there is none."""

from __future__ import annotations

import pytest

from plmctl.core.errors import ConfigError
from plmctl.distill.maps import make_layer_map


def teachers(layers, student, teacher):
    pairs = make_layer_map(layers, student=student, teacher=teacher)
    assert [m for m, _ in pairs] == list(range(1, student + 1))
    return [g for _, g in pairs]


def test_published_maps():
    assert teachers("uniform", 4, 12) == [3, 6, 9, 12]  # TinyBERT, sec. 4.1: g(m) = 3 m
    assert teachers("skip", 6, 12)[:-1] == [2, 4, 6, 8, 10]  # PKD-Skip, sec. 3.2, the last left out
    assert teachers("last", 6, 12)[:-1] == [7, 8, 9, 10, 11]  # PKD-Last
    assert teachers("skip", 5, 12) == [2, 4, 6, 8, 10]  # where uniform does not exist
    assert teachers([1, 3, 5, 8, 10, 12], 6, 12) == [1, 3, 5, 8, 10, 12]
    assert (
        teachers("uniform", 3, 3) == teachers("last", 3, 3) == teachers("skip", 3, 3) == [1, 2, 3]
    )


@pytest.mark.parametrize(
    ("layers", "student", "teacher", "said"),
    [
        ("uniform", 4, 6, r"student's 4 layers do not divide the teacher's 6.*layers=\[2,3,4,6\]"),
        ("last", 6, 4, r"student's 6 layers are more than the teacher's 4.*layers=\[1,1,2,3,3,4\]"),
        (
            [2, 4],
            3,
            6,
            (
                r"a list of 3 of the teacher's layers 1 to 6.*these are 2; by name: uniform, last,"
                r" skip"
            ),
        ),
        ([2, 4, 9], 3, 6, r"the teacher has layers 1 to 6 .0: the embedding output., and no 9"),
        (
            "unifrom",
            3,
            6,
            r"one of uniform, last, skip \(did you mean 'uniform'\?\), or a list of 3",
        ),
    ],
)
def test_maps_that_do_not_exist_are_named(layers, student, teacher, said):
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        make_layer_map(layers, student=student, teacher=teacher)
