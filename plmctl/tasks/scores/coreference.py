"""Scores of coreference: MUC (Vilain et al., 1995), B3 (Bagga and Baldwin, 1998), CEAF with phi4
(Luo, 2005), and the mean of their F1 (Pradhan et al., 2012). They are counted as by the official
scorer, v8.01 (Pradhan et al., 2014, "Scoring Coreference Partitions of Predicted Mentions").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from plmctl.tasks.scores.assignment import assign

Clusters = Sequence[Sequence[Hashable]]  # clusters of mentions
Counts = tuple[float, float]  # right count, count in all
KINDS = ("muc", "b3", "ceaf")
MEAN = "conll_f1"
NAMES = (
    MEAN,
    *(f"{kind}_{part}" for kind in KINDS for part in ("f1", "precision", "recall")),
    "mention_f1",
)


def score_clusters(gold: Sequence[Clusters], guess: Sequence[Clusters]) -> dict[str, float]:
    """All scores by name, of one list of clusters a document.

    Numerators and denominators are added up over documents, then divided. A mention that only one
    side has counts there, and is never right; one of several clusters belongs to the first of them.
    `mention_f1`: of mentions, whatever their cluster.
    """
    found: dict[str, float] = {}
    gold, guess = ([_take_once(clusters) for clusters in side] for side in (gold, guess))
    for kind, count in _KINDS.items():
        sides = [(gold, guess), (guess, gold)]
        recall, precision = (
            _divide([count(own, other) for own, other in zip(*side, strict=True)]) for side in sides
        )
        both = precision + recall
        found |= {
            f"{kind}_precision": precision,
            f"{kind}_recall": recall,
            f"{kind}_f1": 2 * precision * recall / both if both else 0.0,
        }
    found[MEAN] = sum(found[f"{kind}_f1"] for kind in KINDS) / len(KINDS)
    return {name: found[name] for name in NAMES}


def _divide(counts: Sequence[Counts]) -> float:
    right, there = (sum(column) for column in zip(*counts, strict=True)) if counts else (0.0, 0.0)
    return right / there if there else 0.0


def _take_once(clusters: Clusters) -> Clusters:
    """Every mention where it stands first, without clusters of which nothing is left."""
    seen = set[Hashable]()
    found = []
    for cluster in clusters:
        own = [mention for mention in dict.fromkeys(cluster) if mention not in seen]
        seen.update(own)
        found += [own] if own else []
    return found


def _owners(clusters: Clusters) -> dict[Hashable, int]:
    return {mention: number for number, own in enumerate(clusters) for mention in own}


def muc(own: Clusters, other: Clusters) -> Counts:
    """`sum_i (|K_i| - |p(K_i)|)` of `sum_i (|K_i| - 1)`, p(K_i) the parts into which the other side
    cuts K_i; each mention that it lacks is one.
    """
    owner = _owners(other)
    right = there = 0
    for cluster in own:
        parts = {owner.get(mention, (mention,)) for mention in cluster}
        right, there = right + len(cluster) - len(parts), there + len(cluster) - 1
    return right, there


def b_cubed(own: Clusters, other: Clusters) -> Counts:
    """`sum_i sum_j |K_i and R_j|^2 / |K_i|` of `sum_i |K_i|`."""
    owner = _owners(other)
    right, there = 0.0, 0
    for cluster in own:
        shared = Counter(owner[mention] for mention in cluster if mention in owner)
        right += sum(count * count for count in shared.values()) / len(cluster)
        there += len(cluster)
    return right, there


def ceaf(own: Clusters, other: Clusters) -> Counts:
    """The largest sum of `phi4(K, R) = 2 |K and R| / (|K| + |R|)` of pairs in which no cluster
    stands twice, of the number of clusters.
    """
    if not own or not other:
        return 0.0, len(own)
    sides = [[{*cluster} for cluster in clusters] for clusters in (own, other)]
    phi = np.array([[2 * len(k & r) / (len(k) + len(r)) for r in sides[1]] for k in sides[0]])
    return float(sum(phi[pair] for pair in assign(phi))), len(own)


def mentions(own: Clusters, other: Clusters) -> Counts:
    """Mentions that both sides have, of those of one."""
    known = _owners(own).keys()
    return len(known & _owners(other).keys()), len(known)


_KINDS: dict[str, Callable[[Clusters, Clusters], Counts]] = {
    "muc": muc,
    "b3": b_cubed,
    "ceaf": ceaf,
    "mention": mentions,
}
