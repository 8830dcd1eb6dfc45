"""Random search."""

from __future__ import annotations

from plmctl.core.parts import part_of
from plmctl.search.strategy import New, SearchStrategy, SearchView


@part_of("strategy")
class RandomSearch(SearchStrategy):
    """Points at random, each at most once (Bergstra and Bengio, 2012)."""

    def propose(self, view: SearchView) -> New | None:
        """A new point; None once all points of a small space were proposed."""
        return view.propose()
