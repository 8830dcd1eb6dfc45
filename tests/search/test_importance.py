"""The importance of settings, against permutations in a loop and against Optuna's fANOVA."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from plmctl.search.importance import Importance, _encode, measure_importance
from plmctl.search.settings import SettingsSpace
from plmctl.search.space import Point

WORDS = ("lr=log(1e-5,1e-1)", "batch=int(interval(1,64))", "act=relu,gelu,silu")
COUNT = 60


def make_points(count: int, noise: float = 0.0) -> list[tuple[Point, float]]:
    """Points at random, whose fitness falls by `act`, and with the distance from lr 1e-3."""
    random = np.random.default_rng(1)
    space = SettingsSpace(WORDS)
    points = [space.draw(random) for _ in range(count)]
    fitness = [-abs(math.log10(p["lr"]) + 3) - 1.5 * (p["act"] == "relu") for p in points]
    return [(p, f + noise * random.normal()) for p, f in zip(points, fitness, strict=True)]


@cache
def measure() -> Importance:
    return measure_importance(SettingsSpace(WORDS).dimensions, make_points(COUNT), 0)


def test_importance_is_the_fall_of_r2_under_permutations() -> None:
    """scikit-learn's, for settings of one column; a loop over rows for one of three columns."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    inspection = pytest.importorskip("sklearn.inspection")
    points = make_points(COUNT)
    found = measure()
    assert list(found.shares) == ["act", "lr", "batch"]
    low, high = math.log(1e-5), math.log(1e-1)
    rows = [
        [(math.log(p["lr"]) - low) / (high - low), (p["batch"] - 0.5) / 64]
        + [float(p["act"] == act) for act in ("gelu", "relu", "silu")]
        for p, _ in points
    ]
    columns = np.array(rows)
    target = np.array([sum(other < f for _, other in points) for _, f in points], float)
    forest = ensemble.RandomForestRegressor(200, random_state=0).fit(columns, target)
    theirs = inspection.permutation_importance(forest, columns, target, n_repeats=5, random_state=0)

    def score(x: np.ndarray) -> float:
        rest = ((forest.predict(x) - target) ** 2).sum()
        return 1 - rest / ((target - target.mean()) ** 2).sum()

    random, whole = np.random.default_rng(5), score(columns)
    scores = []
    for _ in range(5):
        order = random.permutation(len(rows))
        scores.append(score(np.array([[*rows[n][:2], *rows[m][2:]] for n, m in enumerate(order)])))
    expected = {"lr": theirs.importances_mean[0], "batch": theirs.importances_mean[1]}
    expected["act"] = whole - np.mean(scores)
    for name, share in found.shares.items():
        assert share == pytest.approx(expected[name], abs=0.03 + 0.1 * expected[name])


def test_a_setting_of_many_layouts_costs_as_little_as_another() -> None:
    """1,089 layouts: only those that a point has are columns."""
    pytest.importorskip("sklearn")
    space = SettingsSpace(["lr=log(1e-5,1e-1)", "layout=tag(layout,choice('(s|a|f){2,6}'))"])
    random = np.random.default_rng(0)
    points = [space.draw(random) for _ in range(12)]
    columns, names = _encode(space.dimensions, points)
    assert columns.shape == (12, 1 + len({point["layout"] for point in points}))
    assert names.count("lr") == 1


def test_optuna_ranks_the_settings_alike() -> None:
    optuna = pytest.importorskip("optuna")
    pytest.importorskip("sklearn")
    kinds = {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "batch": optuna.distributions.IntDistribution(1, 64),
        "act": optuna.distributions.CategoricalDistribution(["relu", "gelu", "silu"]),
    }
    points = make_points(COUNT)
    study = optuna.create_study(direction="maximize")
    for point, fitness in points:
        study.add_trial(
            optuna.trial.create_trial(params=dict(point), distributions=kinds, value=fitness)
        )
    judge = optuna.importance.FanovaImportanceEvaluator(n_trees=16, seed=0)
    theirs = optuna.importance.get_param_importances(study, evaluator=judge)
    ours = measure().shares
    assert list(ours) == list(theirs) == ["act", "lr", "batch"]


def test_noise_has_no_ranking() -> None:
    pytest.importorskip("sklearn")
    space = SettingsSpace(WORDS)
    found = measure_importance(space.dimensions, make_points(30, noise=50.0), 0)
    assert not found.shares
    assert "below 0.3" in found.why
    few = measure_importance(space.dimensions, make_points(9), 0)
    assert few.why == "9 individuals are fewer than 10"
    assert few.record()["score"] is None
