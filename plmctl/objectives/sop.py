"""Sentence-order prediction (Lan et al., 2020): whether two neighbouring segments are
swapped.
"""

from __future__ import annotations

from plmctl.core.parts import part_of
from plmctl.objectives.pair import PairObjective


@part_of("objective")
class SOP(PairObjective):
    """`labels.pair` 0 = in order, 1 = swapped (Lan et al., 2020, arXiv:1909.11942, sec. 3.1)."""

    name = "sop"
