"""A grid: every point of a space that can be listed."""

from __future__ import annotations

import itertools

from plmctl.core.parts import part_of
from plmctl.search.space import Space
from plmctl.search.strategy import New, SearchStrategy, SearchView


@part_of("strategy")
class GridSearch(SearchStrategy):
    """Every point, in the order of the space."""

    ends = True

    def propose(self, view: SearchView) -> New | None:
        """The next point; None behind the last one."""
        points = view.space.points() or iter(())
        point = next(itertools.islice(points, len(view.individuals), None), None)
        return None if point is None else New(point)

    def problems(self, space: Space, full: int) -> str | None:
        """A grid needs points that can be listed."""
        if space.points() is None:
            return "has intervals, whose points cannot be listed; strategy=random draws them"
        return None
