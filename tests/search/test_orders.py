"""The space of orders of attention and feed-forward cells (Press et al., 2020)."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.nn import layout as grammar
from plmctl.search.orders import OrderSpace, spell_order

EQUAL, UNEQUAL = OrderSpace(layers=3), OrderSpace(layers=3, counts="unequal")


def test_every_permutation_is_drawn_equally_often() -> None:
    """20 orders of aaafff in 4,000 draws: chi-squared below the 99.9% point of 19 degrees."""
    random = np.random.default_rng(0)
    drawn = Counter(EQUAL.draw(random)["order"] for _ in range(4000))
    assert set(drawn) == set(map("".join, permutations("aaafff")))
    assert sum((times - 200) ** 2 / 200 for times in drawn.values()) < 43.8


def test_unequal_counts_by_the_definition() -> None:
    """a (1 unit) or f (2) with equal chances until 9 units are spent; the last unit is an a.

    P(order) is a half for each cell that could have been the other one.
    """
    random, n = np.random.default_rng(0), 20_000
    drawn = Counter(UNEQUAL.draw(random)["order"] for _ in range(n))
    orders = {"": 9}
    chances: dict[str, float] = {}
    probability = {"": 1.0}
    while orders:
        order, left = orders.popitem()
        if not left:
            chances[order] = probability[order]
            continue
        for cell, units in (("a", 1), ("f", 2)):
            if units <= left:
                orders[order + cell] = left - units
                probability[order + cell] = probability[order] * (0.5 if left >= 2 else 1.0)
    assert sum(chances.values()) == pytest.approx(1)
    assert set(drawn) <= set(chances)
    assert len(chances) == 55  # compositions of 9 of ones and twos
    for order, chance in chances.items():
        assert drawn[order] / n == pytest.approx(chance, abs=5 * (chance / n) ** 0.5)


@pytest.mark.parametrize("space", [EQUAL, UNEQUAL])
def test_mutants_stay_in_the_space_and_reach_all_of_it(space: OrderSpace) -> None:
    random = np.random.default_rng(0)
    point = space.seeds()["interleaved"]
    seen = set()
    for _ in range(3000):
        child = space.mutate(point, random)
        assert space.problems(child) is None
        seen.add(child["order"])
        point = child
    assert len(seen) == {"equal": 20, "unequal": 55}[space.counts]


def test_names_are_the_sandwiches() -> None:
    """Point by point the orders that `model.stack.sandwich=k` makes of `af*n`."""
    space = OrderSpace(layers=8)
    seeds = space.seeds()
    assert list(seeds) == ["interleaved", *(f"sandwich_{k}" for k in range(1, 8))]
    for k, point in enumerate(seeds.values()):
        steps = grammar.parse(grammar.make_sandwich("af*8", k))
        assert point["order"] == "".join(step.letter for step in steps)
        assert space.problems(point) is None
    assert space.describe(seeds["interleaved"])["attention below"] == 0.5
    assert space.describe(seeds["sandwich_7"])["attention below"] == 1.0


def test_a_layout_has_the_cells_of_its_order() -> None:
    assert spell_order("aafaff") == "a*2 f a f*2"
    for order in ("aafaff", "f", "fafafaaaf"):
        assert "".join(step.letter for step in grammar.parse(spell_order(order))) == order


def test_orders_have_equal_parameters() -> None:
    """Equal counts: exactly; unequal ones but for biases and norms."""
    sizes = []
    for point in (
        EQUAL.seeds()["interleaved"], EQUAL.draw(np.random.default_rng(0)),
        {"order": "aaaaaaaaa"}, {"order": "ffffa"},
    ):  # fmt: skip
        line = ["size=tiny", "size.width=64", "size.inner_width=256", "data.path=x"]
        cfg = compose("pretrain", "sandwich", [*line, *EQUAL.overrides(point)])
        model = build_model(cfg, vocab_size=64, seed=0)
        sizes.append(sum(p.numel() for p in model.parameters()))
    assert sizes[0] == sizes[1]
    assert all(size == pytest.approx(sizes[0], rel=0.015) for size in sizes[2:])


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("afaff", "8 units of weights, not 9"),
        ("aaaaaaaaa", "9 of attention, not 3"),
        ("agf", "other cells than a and f"),
    ],
)
def test_orders_that_are_not_in_the_space(order: str, said: str) -> None:
    assert said in (EQUAL.problems({"order": order}) or "")
    assert UNEQUAL.problems({"order": "aaaaaaaaa"}) is None


def test_one_layer_has_no_order() -> None:
    with pytest.raises(ConfigError, match="2 or more"):
        OrderSpace(layers=1)
