"""Random positions by their definition: a random subset in order, or a run from a random start."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from plmctl.core.batch import Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.random_positions import RandomPositions


def make_rows(lengths: list[tuple[int, int]], widths: tuple[int, int] = (6, 7)) -> Rows:
    columns = np.array(lengths).T
    seqs = {
        name: Seq(np.ones((len(lengths), width), np.int32), length)
        for name, width, length in zip(("source", "target"), widths, columns, strict=True)
    }
    return Rows(np.arange(len(lengths)), seqs)


def drawn(rows: Rows, *, range: int, kind: str, name: str = "source") -> list[tuple[int, ...]]:
    seq = RandomPositions(range=range, kind=kind)(rows, Draws(3, 0)).seqs[name]  # type: ignore
    return [
        tuple(row[:length].tolist())
        for row, length in zip(seq.tracks["position"], seq.length, strict=True)
    ]


@pytest.mark.parametrize("kind", ["subset", "offset"])
def test_sequences_of_a_row_share_increasing_positions(kind: str) -> None:
    rows = make_rows([(4, 5), (6, 3), (2, 2), (1, 7)] * 20)
    pairs = zip(*(drawn(rows, range=9, kind=kind, name=n) for n in rows.seqs), strict=True)
    for source, target in pairs:
        shorter, longer = sorted((source, target), key=len)
        assert longer[: len(shorter)] == shorter
        steps = np.diff(longer)
        assert (steps == 1).all() if kind == "offset" else (steps >= 1).all()
        assert longer[0] >= 0
        assert longer[-1] < 9


def test_every_subset_is_as_likely_as_any_other() -> None:
    counts = Counter(drawn(make_rows([(3, 2)] * 4000), range=6, kind="subset"))
    assert set(counts) == set(combinations(range(6), 3))
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


def test_every_start_is_as_likely_as_any_other() -> None:
    counts = Counter(drawn(make_rows([(3, 2)] * 2000), range=6, kind="offset"))
    assert set(counts) == {(start, start + 1, start + 2) for start in range(4)}
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


@pytest.mark.parametrize("kind", ["subset", "offset"])
def test_as_many_positions_as_tokens_are_those_of_the_row(kind: str) -> None:
    assert drawn(make_rows([(4, 6)] * 3), range=6, kind=kind) == [(0, 1, 2, 3)] * 3


def test_documents_of_a_packed_row_start_again() -> None:
    own = np.array([[0, 1, 2, 0, 1, 0]])
    rows = Rows(np.arange(1), {"text": Seq(np.ones((1, 6)), np.array([5]), {"position": own})})
    after = RandomPositions(range=40)(rows, Draws(0, 0)).seqs["text"].tracks["position"][0]
    assert after[0] < after[1] < after[2]
    assert after[3:5].tolist() == after[:2].tolist()


def test_what_it_refuses() -> None:
    with pytest.raises(ConfigError, match="did you mean 'subset'"):
        RandomPositions(range=5, kind="subsets")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 1"):
        RandomPositions(range=0)
    with pytest.raises(ConfigError, match="at least 6, the tokens of the longest row"):
        RandomPositions(range=5)(make_rows([(2, 6)]), Draws(0, 0))
