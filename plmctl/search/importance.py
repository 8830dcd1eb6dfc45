"""The importance of settings for the fitness, by a forest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from plmctl.core.spelling import spell
from plmctl.search.dimension import Dimension, Interval
from plmctl.search.space import Point

LEAST = 10  # individuals from which on an importance is measured
LEAST_SCORE = 0.3  # R2 below which nothing is ranked
REPEATS = 20


@dataclass(frozen=True)
class Importance:
    """How much each setting matters.

    Args:
        shares: {setting: the fall of R2 when its values are permuted}; empty without a ranking. A
            setting of several columns has all of them permuted together.
        score: R2 of the forest, cross-validated; nan where it was not measured.
        why: Why there is no ranking; empty where there is one.
    """

    shares: Mapping[str, float]
    score: float
    why: str = ""

    def record(self) -> dict[str, Any]:
        """The importance as plain JSON."""
        found = asdict(self)
        return {**found, "score": None if math.isnan(self.score) else self.score}


def measure_importance(
    dimensions: Mapping[str, Dimension], points: Sequence[tuple[Point, float]], seed: int
) -> Importance:
    """The permutation importance (Breiman, 2001) of a forest that predicts the fitness.

    Args:
        points: (a point, its fitness) of trainings of the same length.
    """
    if len(points) < LEAST:
        return Importance({}, math.nan, f"{len(points)} individuals are fewer than {LEAST}")
    try:
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.model_selection import KFold, cross_val_score
    except ImportError:
        return Importance({}, math.nan, "scikit-learn is not installed: pip install scikit-learn")
    columns, names = _encode(dimensions, [point for point, _ in points])
    values = np.array([value for _, value in points])
    # ranks of the fitness: one training that diverges would be all that counts
    target = np.argsort(np.argsort(values)).astype(float)
    forest = RandomForestRegressor(200, random_state=seed, n_jobs=1)
    folds = KFold(5, shuffle=True, random_state=seed)
    score = float(np.mean(cross_val_score(forest, columns, target, cv=folds, scoring="r2")))
    if not score >= LEAST_SCORE:
        why = f"a forest predicts the fitness with R2 {score:.2f}, below {LEAST_SCORE}"
        return Importance({}, score, why)
    forest.fit(columns, target)
    random, whole = np.random.default_rng(seed), forest.score(columns, target)
    shares = dict.fromkeys(names, 0.0)
    for name in shares:
        own = np.array(names) == name
        falls = []
        for _ in range(REPEATS):
            mixed = columns.copy()
            mixed[:, own] = random.permutation(columns[:, own])
            falls.append(whole - forest.score(mixed, target))
        shares[name] = max(0.0, float(np.mean(falls)))
    ordered = sorted(shares, key=lambda name: -shares[name])
    return Importance({name: shares[name] for name in ordered}, score)


def _encode(
    dimensions: Mapping[str, Dimension], points: Sequence[Point]
) -> tuple[np.ndarray, list[str]]:
    """(a row of numbers for each point, the setting of each column): a column for an interval, one
    for each value of another setting that a point has.
    """
    columns, names = [], []
    for key, dimension in dimensions.items():
        if isinstance(dimension, Interval):
            columns.append([dimension.locate(point[key]) for point in points])
            names.append(key)
            continue
        values = [spell(point[key]) for point in points]
        seen = sorted(set(values))
        if len(seen) > 1:
            columns += [[float(value == one) for value in values] for one in seen]
            names += [key] * len(seen)
    return np.array(columns).T.reshape(len(points), len(names)), names
