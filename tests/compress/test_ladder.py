"""The shapes that are planned, and which model is chosen, against slow definitions."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from plmctl.compress.bench import Costs
from plmctl.compress.climb import StepTimes
from plmctl.compress.ladder import find_rungs
from plmctl.compress.rung import LadderResult, Rung
from plmctl.compress.shape import Shape, list_depths, list_widths
from plmctl.compress.target import Target


def find_slowly(depths: list[int], widths: list[Fraction], most: float) -> list[Shape]:
    """The widest shape of each number of layers that costs at most so much, without the run itself.
    Shapes of fewer layers than one of full width are left out.
    """
    shapes = [Shape(d, depths[0], w) for d, w in itertools.product(depths, widths)]
    reaching = [shape for shape in shapes if not shape.whole and weigh(shape) <= most]
    widest = {
        depth: max((s.width for s in reaching if s.layers == depth), default=None)
        for depth in depths
    }
    full = max((depth for depth in depths if widest[depth] == 1), default=0)
    rungs = [Shape(d, depths[0], w) for d, w in widest.items() if w is not None and d >= full]
    return sorted(rungs, key=lambda shape: -float(shape.layers * shape.width))


def weigh(shape: Shape) -> float:
    return shape.layers * (0.3 + float(shape.width))


@pytest.mark.parametrize("layers", [1, 2, 4, 12])
@pytest.mark.parametrize("heads", [1, 2, 4, 12])
def test_the_rungs_are_the_largest_shapes_that_reach_the_target(layers: int, heads: int) -> None:
    depths, widths = list_depths(layers), list_widths(heads)
    assert (depths[0], depths[-1], widths[-1]) == (layers, 1, 1)
    for _ in range(20):
        most = random.Random(layers * heads).uniform(0, 1.5 * layers)
        tried: list[Shape] = []

        def reaches(shape: Shape, most: float = most, tried: list[Shape] = tried) -> bool:
            tried.append(shape)
            return weigh(shape) <= most

        found = find_rungs(depths, widths, reaches)
        assert found == find_slowly(depths, widths, most)
        assert len(tried) == len(set(tried))  # each is an export


def test_depths_of_usual_models() -> None:
    assert list_depths(1) == [1]
    assert list_depths(2) == [2, 1]
    assert list_depths(4) == [4, 3, 2, 1]
    assert list_depths(12) == [12, 9, 6, 4, 3, 2, 1]


def make_rung(score: float | None, faster: float, size: int = 10) -> Rung:
    costs = Costs(10 / faster, size, 1.0, None, 1, faster)
    return Rung(f"{score} {faster}", Shape(1, 2), "onnx", score, costs)


def conclude(rungs: list[Rung], larger: bool = True, keep: float = 0.9) -> LadderResult:
    run = make_rung(0.8, 1.0, 40)
    return LadderResult(run, rungs, Target("latency", times=4), keep, "accuracy", larger)


def test_the_best_score_at_the_target_is_chosen() -> None:
    rungs = [make_rung(0.8, 2), make_rung(0.74, 5), make_rung(0.75, 4), make_rung(0.6, 9)]
    outcome = conclude(rungs)
    assert outcome.chosen is rungs[2]
    assert [outcome.share(rung) for rung in rungs] == pytest.approx([1, 0.925, 0.9375, 0.75])
    assert [outcome.meets(rung) for rung in rungs] == [False, True, True, True]


def test_the_nearest_are_said_where_nothing_is_good_enough() -> None:
    rungs = [make_rung(0.8, 2), make_rung(0.79, 3), make_rung(0.6, 5), make_rung(0.5, 9)]
    refused = Rung("refused", Shape(1, 2), "onnx", refused="no such operator")
    outcome = conclude([*rungs, refused])
    assert outcome.chosen is None
    assert outcome.nearest() == (rungs[1], rungs[2])


def test_of_a_loss_less_is_better() -> None:
    """A loss of 0.88 is 10% worse than 0.8."""
    rungs = [make_rung(0.88, 5), make_rung(0.89, 5), make_rung(0.4, 2)]
    outcome = conclude(rungs, larger=False)
    assert outcome.share(rungs[0]) == pytest.approx(0.9)
    assert [outcome.keeps(rung) for rung in rungs[1:]] == [False, True]


def test_steps_say_how_long_they_took_and_what_is_left() -> None:
    steps = StepTimes()
    steps.begin(3)
    assert steps.number() == "step 1 of at most 3"
    assert steps.end(20) == "0:20, at most about 0:40 left of these steps"
    assert steps.number() == "step 2 of at most 3"
    assert steps.end(40) == "0:40, at most about 0:30 left of these steps"  # 30 s each
    assert steps.end(5) == "0:05"
    assert steps.number() == "step 4 of at most 4"


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 12, 16])
@pytest.mark.parametrize("most", [0.1, 2.0, 5.0, 20.0])
def test_no_more_shapes_are_timed_than_the_steps_say(heads: int, most: float) -> None:
    depths, widths = list_depths(12), list_widths(heads)
    timed: list[Shape] = []

    def reaches(shape: Shape) -> bool:
        timed.append(shape)
        return weigh(shape) <= most

    find_rungs(depths, widths, reaches)
    assert len(timed) <= len(depths) * len(widths).bit_length()
