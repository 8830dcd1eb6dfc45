"""The sentence structural objective (Wang et al., 2020, StructBERT): is the second segment next,
previous, or a random one?
"""

from __future__ import annotations

from plmctl.core.parts import part_of
from plmctl.objectives.pair import PairObjective


@part_of("objective")
class SentenceStructure(PairObjective):
    """`labels.pair` 0 = B follows A, 1 = A follows B, 2 = B is from another document.

    (Wang et al., 2020, arXiv:1908.04577, sec. 2.2.2.) Differs: the paper does not number its
    classes.
    """

    name = "sentence_structure"
