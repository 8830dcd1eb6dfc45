"""Cross-lingual paraphrase classification (Huang et al., 2019: Unicoder)."""

from __future__ import annotations

from plmctl.core.parts import part_of
from plmctl.objectives.pair import PairObjective


@part_of("objective")
class Paraphrase(PairObjective):
    """`labels.pair` 0 = two sentences are translations, 1 = they are not (Huang et al., 2019,
    arXiv:1909.00964, sec. 3.3).
    """

    name = "paraphrase"
