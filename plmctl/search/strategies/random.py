"""Random search."""

from __future__ import annotations

from plmctl.core.parts import part_of
from plmctl.search.strategy import New, SearchStrategy, View


@part_of("strategy")
class RandomSearch(SearchStrategy):
    """Points at random, each at most once (Bergstra and Bengio, 2012)."""

    def propose(self, view: View) -> New | None:
        """A point that is new; None where all points of a small space were there."""
        return view.propose()
