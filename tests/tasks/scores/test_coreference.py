"""Scores of coreference: the worked example of Pradhan et al. (2014), the test cases of the
official scorer with the figures that it expects, loops from the definitions over all pairings, on
500 random sets of documents, and SciPy's assignment.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest

from plmctl.tasks.scores.assignment import assign
from plmctl.tasks.scores.coreference import NAMES, score_clusters

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


Clusters = Sequence[Sequence[Hashable]]
KINDS = ("muc", "b3", "ceaf")


def drop_repeated(clusters: Clusters) -> list[list[Hashable]]:
    """Mentions that did not stand before, in clusters that have one."""
    flat = [(number, mention) for number, own in enumerate(clusters) for mention in own]
    before = [[mention for _, mention in flat[:n]] for n in range(len(flat))]
    first = [pair for pair, seen in zip(flat, before, strict=True) if pair[1] not in seen]
    numbers = sorted({number for number, _ in first})
    return [[mention for own, mention in first if own == number] for number in numbers]


def by_loops(key: Clusters, response: Clusters) -> dict[str, tuple[float, float]]:
    """(right, all) of each recall, mention by mention and over all pairings of clusters."""
    key, response = drop_repeated(key), drop_repeated(response)
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
    phi = [[2 * len({*k} & {*r}) / (len(k) + len(r)) for r in large] for k in small]
    best = max(
        sum(row[place] for row, place in zip(phi, chosen, strict=True))
        for chosen in itertools.permutations(range(len(large)), len(small))
    )
    return {
        "muc": (muc, sum(len(cluster) - 1 for cluster in key)),
        "b3": (b3, sum(map(len, key))),
        "ceaf": (best, len(key)),
    }


def draw(rng: random.Random) -> Clusters:
    mentions = rng.sample(range(14), rng.randint(1, 12))
    mentions += rng.choices(range(14), k=rng.randint(0, 1))  # perhaps one of them again
    clusters: list[list[int]] = [[] for _ in range(rng.randint(1, 5))]
    for mention in mentions:
        rng.choice(clusters).append(mention)
    return [cluster for cluster in clusters if cluster]


def reference(documents: list[tuple[Clusters, Clusters]]) -> dict[str, float]:
    """What loops count, added over documents."""
    found: dict[str, float] = {}
    for part, sides in (("recall", documents), ("precision", [pair[::-1] for pair in documents])):
        counts = [by_loops(*side) for side in sides]
        for kind in counts[0]:
            right, there = (sum(column) for column in zip(*(c[kind] for c in counts), strict=True))
            found[f"{kind}_{part}"] = right / there if there else 0.0
    for kind in KINDS:
        both = found[f"{kind}_recall"], found[f"{kind}_precision"]
        found[f"{kind}_f1"] = 2 * both[0] * both[1] / sum(both) if sum(both) else 0.0
    found["conll_f1"] = sum(found[f"{kind}_f1"] for kind in KINDS) / 3
    known = [[{m for own in side for m in own} for side in pair] for pair in documents]
    present = sum(len(own) for pair in known for own in pair)
    found["mention_f1"] = 2 * sum(len(k & g) for k, g in known) / present if present else 0.0
    return found


def check(documents: list[tuple[Clusters, Clusters]]) -> None:
    found = score_clusters([key for key, _ in documents], [guess for _, guess in documents])
    wanted = reference(documents)
    assert found == {name: pytest.approx(wanted[name], rel=1e-12) for name in NAMES}
    for name in ("muc_recall", "muc_precision"):  # of whole numbers
        assert found[name] == wanted[name]


def test_scores_are_those_of_loops_added_over_documents() -> None:
    rng = random.Random(0)
    for _ in range(500):
        check([(draw(rng), draw(rng)) for _ in range(rng.randint(1, 3))])


A = "a bc def"
B, D = "12345 67 89ABC", "ab cde"
FOUR = {"muc": (1 / 3, 1 / 3), "b3": (5 / 9, 17 / 42), "ceaf": (2.2 / 3, 2.2 / 4)}
ONE = "abcdef"
ALONE = " ".join(ONE)
# the official test cases by their names: key, response, what is expected of (recall, precision);
# of letters, each a mention
OFFICIAL: dict[str, tuple[str, str, dict[str, tuple[float, float]]]] = {
    "A-1 perfect": (A, A, {"muc": (1, 1), "b3": (1, 1), "ceaf": (1, 1)}),
    "A-2 missing": (A, "a de", {"muc": (1 / 3, 1), "b3": (7 / 18, 1), "ceaf": (1.8 / 3, 1.8 / 2)}),
    "A-3 false alarms": (
        A,
        "a bcx defy z",
        {"muc": (1, 3 / 5), "b3": (1, 55 / 108), "ceaf": (93 / 105, 93 / 140)},
    ),
    "A-4 both": (A, "a bcx dy z", FOUR),
    "A-5 overlapping, aligned": (
        A,
        "a bcxB dy z",
        {"muc": (1 / 3, 1 / 4), "b3": (5 / 9, 5 / 16), "ceaf": (31 / 45, 31 / 60)},
    ),
    "A-6 overlapping, not aligned": (
        A,
        "a bcx dy Bz",
        {"muc": (1 / 3, 1 / 4), "b3": (5 / 9, 17 / 48), "ceaf": (2.2 / 3, 2.2 / 4)},
    ),
    "A-7 twice in a cluster": (A, "a bcxb dy z", FOUR),
    "A-8 twice, in two clusters": (A, "a bcx dy bz", FOUR),
    "A-9 ten times": (A, "a bcx dy bbbbbbbbbbz", FOUR),
    "A-10 singletons": (A, ALONE, {"muc": (0, 0), "b3": (3 / 6, 1)}),
    "A-11 all one": (A, ONE, {"muc": (1, 3 / 5), "b3": (1, 7 / 18)}),
    "A-12 singletons of the system": (A, "a x y c d e z", {"muc": (0, 0), "b3": (13 / 36, 4 / 7)}),
    "A-13 all one, of the system": (A, "axycdez", {"muc": (1 / 3, 1 / 6), "b3": (17 / 36, 6 / 49)}),
    "B-1": (D, "bcx de", {}),
    "C-1": (f"{D} fg", "bcx de fg", {}),
    "D-1 B3's small merge": (B, "12345 6789ABC", {"muc": (1, 9 / 10), "b3": (1, 16 / 21)}),
    "E-1 B3's large merge": (B, "1234589ABC 67", {"muc": (1, 9 / 10), "b3": (1, 7 / 12)}),
    "F-1 MUC's split": ("ABCD", "AB CD", {"muc": (2 / 3, 1)}),
    "G-1 MUC's merge": ("AB CD", "ABCD", {"muc": (1, 2 / 3)}),
    "H-1 MUC's other links": ("ABCD", "ABCD", {"muc": (1, 1)}),
    "I-1 MUC's split of a star": ("ABCD", "AB DC", {"muc": (2 / 3, 1)}),
    "J-1 MUC's skipped link": ("ABC", "AC", {"muc": (1 / 2, 1)}),
    "K-1 MUC's spurious ends": ("BCDEGHJ", "ABC DEF GHI", {"muc": (1 / 2, 1 / 2)}),
    "L-1 MUC's crossing": ("ABC DEFG", "AB CD FGH", {"muc": (2 / 5, 2 / 4)}),
    "M-1": (ONE, ONE, {"muc": (1, 1), "b3": (1, 1), "ceaf": (1, 1)}),
    "M-2": (ONE, ALONE, {"muc": (0, 0)}),
    "M-3": (ONE, "ab cde f", {}),
    "M-4": (ONE, "abcxyz", {}),
    "M-5": (ONE, "a b c x y z", {"muc": (0, 0)}),
    "M-6": (ONE, "ab cxy z", {}),
    "N-1": (ALONE, ALONE, {"muc": (0, 0), "b3": (1, 1), "ceaf": (1, 1)}),
    "N-2": (ALONE, ONE, {"muc": (0, 0)}),
    "N-3": (ALONE, "ab cde f", {"muc": (0, 0)}),
    "N-4": (ALONE, "a b c x y z", {"muc": (0, 0)}),
    "N-5": (ALONE, "abcxyz", {"muc": (0, 0)}),
    "N-6": (ALONE, "ab cxy z", {"muc": (0, 0)}),
}
OWN: dict[str, tuple[str, str, dict[str, tuple[float, float]]]] = {
    "nothing said": (A, "", {"muc": (0, 0), "b3": (0, 0), "ceaf": (0, 0)}),
    "nothing there": ("", A, {"muc": (0, 0), "b3": (0, 0), "ceaf": (0, 0)}),
    "nothing at all": ("", "", {"muc": (0, 0), "b3": (0, 0), "ceaf": (0, 0)}),
    "other mentions": ("ab cd", "wx yz", {"muc": (0, 0), "b3": (0, 0), "ceaf": (0, 0)}),
    "another order": ("ab cde", "edc ba", {"muc": (1, 1), "b3": (1, 1), "ceaf": (1, 1)}),
    "a cluster that was there before": ("ab", "ab ba", {"muc": (1, 1), "ceaf": (1, 1)}),
    "twice in the key": ("abca de", "abc de", {"muc": (1, 1), "b3": (1, 1), "ceaf": (1, 1)}),
    "in two clusters of both": ("ab bc", "ab bc", {"muc": (1, 1), "b3": (1, 1), "ceaf": (1, 1)}),
    "a subset": ("abcd", "ab", {"muc": (1 / 3, 1), "b3": (1 / 4, 1), "ceaf": (2 / 3, 2 / 3)}),
    "a superset": ("ab", "abcd", {"muc": (1, 1 / 3), "b3": (1, 1 / 4), "ceaf": (2 / 3, 2 / 3)}),
    "halves exchanged": ("ab cd", "ac bd", {"muc": (0, 0), "b3": (1 / 2, 1 / 2)}),
    "equal pairings": ("ab", "a b", {"b3": (1 / 2, 1), "ceaf": (2 / 3, 1 / 3)}),
    # the best pair has 6/10 and leaves nothing to the others, which have 4/7 twice
    "the best pair first": ("abcde fg", "abcfg de", {"ceaf": (8 / 14, 8 / 14)}),
    "more clusters than there are": ("abcd", "a b c d e", {"muc": (0, 0), "b3": (1 / 4, 4 / 5)}),
}


@pytest.mark.parametrize("name", [*OFFICIAL, *OWN])
def test_cases_by_name(name: str) -> None:
    key, response, expected = {**OFFICIAL, **OWN}[name]
    found = score_clusters([key.split()], [response.split()])
    for kind, (recall, precision) in expected.items():
        assert found[f"{kind}_recall"] == pytest.approx(recall, rel=1e-12)
        assert found[f"{kind}_precision"] == pytest.approx(precision, rel=1e-12)
    check([(key.split(), response.split())])


def test_there_are_fifty() -> None:
    assert len(OFFICIAL) + len(OWN) == 50


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
