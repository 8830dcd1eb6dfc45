"""The space of orders: attention and feed-forward cells in any order, at equal parameters."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Literal

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell
from plmctl.core.values import Count
from plmctl.search.space import Point, Space

ATTENTION, FEED_FORWARD = "a", "f"


@part_of("space")
class OrderSpace(Space):
    """Orders of attention (a) and feed-forward (f) cells with the weights of `af*n` (Press et al.,
    2020, arXiv:1911.03864, sec. 3).

    counts=equal: every permutation of n a and n f. counts=unequal: a or f with equal chances, until
    n + n r units are spent. An a costs one unit and an f r, so that some models are deeper. Points
    with a name: `interleaved`, and `sandwich_k` for each k.

    Differs: The paper does not state how it draws unequal counts. Units are those of matrices,
    without biases and norms.

    Args:
        layers: n.
        counts: equal or unequal.
        ratio: r, the weights of a feed-forward cell for each weight of attention: inner_width / (2
            W), which is 2 in the paper.
        path: The setting of the layout.
    """

    def __init__(
        self,
        *,
        layers: Count = 8,
        counts: Literal["equal", "unequal"] = "equal",
        ratio: Count = 2,
        path: str = "model.stack",
    ) -> None:
        if layers < 2:
            raise ConfigError("space.layers", layers, "2 or more: one layer has no other order")
        self.layers, self.counts, self.ratio, self.path = layers, counts, ratio, path

    @property
    def units(self) -> int:
        """The units of weights that every order has."""
        return self.layers * (1 + self.ratio)

    def draw(self, random: np.random.Generator) -> Point:
        """Draw an order."""
        if self.counts == "equal":
            cells = [*ATTENTION * self.layers, *FEED_FORWARD * self.layers]
            return {"order": "".join(random.permutation(cells))}
        order, left = "", self.units
        while left:
            cell = FEED_FORWARD if left >= self.ratio and random.integers(2) else ATTENTION
            order += cell
            left -= self._cost(cell)
        return {"order": order}

    def mutate(self, point: Point, random: np.random.Generator) -> Point:
        """A copy with two different cells exchanged. With unequal counts, every second copy has an
        f replaced by r times a, or the reverse.
        """
        cells = list(point["order"])
        if self.counts == "unequal" and random.integers(2):
            if ATTENTION not in cells or (FEED_FORWARD in cells and random.integers(2)):
                del cells[_find(cells, FEED_FORWARD, random)]
                added = ATTENTION * self.ratio
            elif cells.count(ATTENTION) >= self.ratio:
                for _ in range(self.ratio):
                    del cells[_find(cells, ATTENTION, random)]
                added = FEED_FORWARD
            else:
                added = ""
            for cell in added:
                cells.insert(int(random.integers(len(cells) + 1)), cell)
        elif len(set(cells)) == 2:
            one, two = (_find(cells, cell, random) for cell in (ATTENTION, FEED_FORWARD))
            cells[one], cells[two] = cells[two], cells[one]
        return {"order": "".join(cells)}

    def overrides(self, point: Point) -> tuple[str, ...]:
        """The layout, every cell as a layer of its own."""
        return f"{self.path}.sandwich=0", f"{self.path}.layout={spell(spell_order(point['order']))}"

    def brief(self, point: Point, parent: Point | None = None) -> str:
        """The layout alone."""
        return spell_order(point["order"])

    def problems(self, point: Point) -> str | None:
        """Whether an order has other cells, or other counts than the space allows."""
        order = point.get("order", "")
        if set(order) - {ATTENTION, FEED_FORWARD}:
            return f"order {order!r} has other cells than {ATTENTION} and {FEED_FORWARD}"
        if (units := sum(map(self._cost, order))) != self.units:
            return f"order {order} has {units} units of weights, not {self.units}"
        if self.counts == "equal" and order.count(ATTENTION) != self.layers:
            return f"order {order} has {order.count(ATTENTION)} of attention, not {self.layers}"
        return None

    def seeds(self) -> Mapping[str, Point]:
        """The usual order, and the sandwiches `a*k af*(n-k) f*k`."""
        n = self.layers
        return {
            "sandwich_" * (k > 0) + (str(k) if k else "interleaved"): {
                "order": ATTENTION * k + (ATTENTION + FEED_FORWARD) * (n - k) + FEED_FORWARD * k
            }
            for k in range(n)
        }

    def describe(self, point: Point) -> Mapping[str, float]:
        """The share of attention in the lower half, larger in the better orders of the paper; and
        the number of cells.
        """
        order = point["order"]
        lower = order[: len(order) // 2]
        share = lower.count(ATTENTION) / max(1, order.count(ATTENTION))
        return {"attention below": share, "cells": len(order)}

    def _cost(self, cell: str) -> int:
        return 1 if cell == ATTENTION else self.ratio


def _find(cells: list[str], cell: str, random: np.random.Generator) -> int:
    """The index of one of these cells, drawn at random."""
    places = [place for place, each in enumerate(cells) if each == cell]
    return places[int(random.integers(len(places)))]


def spell_order(order: str) -> str:
    """An order as a layout: `aaf` is `a*2 f`."""
    runs = [(cell, len(list(run))) for cell, run in groupby(order)]
    return " ".join(cell if times == 1 else f"{cell}*{times}" for cell, times in runs)
