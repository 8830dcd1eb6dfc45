"""Scores of coreference: the worked example of Pradhan et al. (2014), loops from the definitions
over all pairings, SciPy's assignment, and the edges of the official scorer.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from plmctl.tasks.assignment import assign
from plmctl.tasks.coreference_score import NAMES, score_clusters

# figure 1 of Pradhan et al. (2014), whose section 4 gives the values
KEY = ["abc", "defg"]
RESPONSE = ["ab", "cd", "fghi"]


def test_the_worked_example() -> None:
    found = score_clusters([KEY], [RESPONSE])
    # {a,b,c} is cut into {a,b} {c}; {d,e,f,g} into {d} {e} {f,g}
    assert (found["muc_recall"], found["muc_precision"]) == pytest.approx((2 / 5, 2 / 5))
    assert found["b3_recall"] == pytest.approx((4 / 3 + 1 / 3 + 1 / 4 + 4 / 4) / 7)
    assert found["b3_precision"] == pytest.approx((4 / 2 + 1 / 2 + 1 / 2 + 4 / 4) / 8)
    # {a,b,c} with {a,b}: 4/5, {d,e,f,g} with {f,g,h,i}: 4/8
    assert found["ceaf_recall"] == pytest.approx((4 / 5 + 4 / 8) / 2)
    assert found["ceaf_precision"] == pytest.approx((4 / 5 + 4 / 8) / 3)
    rounded = [round(100 * found[name]) / 100 for name in ("muc_f1", "b3_f1", "ceaf_f1")]
    assert rounded == [0.40, 0.45, 0.52]
    assert found["conll_f1"] == pytest.approx(
        (found["muc_f1"] + found["b3_f1"] + found["ceaf_f1"]) / 3
    )
    assert found["mention_f1"] == pytest.approx(2 * 6 / (7 + 8))


def by_loops(key: list[list[int]], response: list[list[int]]) -> dict[str, tuple[float, float]]:
    """(right, all) of each recall, mention by mention and over all pairings of clusters."""
    muc = b3 = 0.0
    for cluster in key:
        parts: list[Any] = []
        for mention in cluster:
            own = [set(other) for other in response if mention in other]
            part = own[0] & set(cluster) if own else {mention}
            parts += [part] if part not in parts else []
            b3 += len(own[0] & set(cluster)) / len(cluster) if own else 0
        muc += len(cluster) - len(parts)
    small, large = sorted([key, response], key=len)
    best = max(
        sum(2 * len({*k} & {*r}) / (len(k) + len(r)) for k, r in zip(small, chosen, strict=True))
        for chosen in itertools.permutations(large, len(small))
    )
    return {
        "muc": (muc, sum(len(cluster) - 1 for cluster in key)),
        "b3": (b3, sum(map(len, key))),
        "ceaf": (best, len(key)),
    }


def draw(rng: random.Random) -> list[list[int]]:
    mentions = rng.sample(range(14), rng.randint(1, 12))
    clusters: list[list[int]] = [[] for _ in range(rng.randint(1, 5))]
    for mention in mentions:
        rng.choice(clusters).append(mention)
    return [cluster for cluster in clusters if cluster]


def test_scores_are_those_of_loops_added_over_documents() -> None:
    rng = random.Random(0)
    for _ in range(150):
        documents = [(draw(rng), draw(rng)) for _ in range(rng.randint(1, 3))]
        found = score_clusters([key for key, _ in documents], [guess for _, guess in documents])
        for kind in ("muc", "b3", "ceaf"):
            for part, flip in (("recall", False), ("precision", True)):
                counts = [
                    by_loops(*((guess, key) if flip else (key, guess)))[kind]
                    for key, guess in documents
                ]
                right, there = (sum(column) for column in zip(*counts, strict=True))
                assert found[f"{kind}_{part}"] == pytest.approx(right / there if there else 0.0)


def test_the_assignment_is_that_of_scipy() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(0)
    for _ in range(100):
        gains = rng.integers(0, 6, rng.integers(1, 9, 2)) / rng.choice([1, 7])
        pairs = assign(gains)
        assert len(pairs) == min(gains.shape)
        assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
        rows, columns = optimize.linear_sum_assignment(gains, maximize=True)
        total = sum(gains[pair] for pair in pairs)
        assert total == pytest.approx(gains[rows, columns].sum())
    assert assign(np.zeros((2, 0))) == []


def test_edges() -> None:
    assert set(score_clusters([], [])) == {*NAMES}
    assert set(score_clusters([KEY], [[]]).values()) == {0.0}
    assert set(score_clusters([[]], [RESPONSE]).values()) == {0.0}
    whole = score_clusters([KEY], [KEY[::-1]])
    assert set(whole.values()) == {1.0}
    # singletons have no link, but are entities and mentions: MUC is 0, the others are 1
    alone = score_clusters([["a", "b"]], [["a", "b"]])
    assert (alone["muc_f1"], alone["b3_f1"], alone["ceaf_f1"]) == (0.0, 1.0, 1.0)
