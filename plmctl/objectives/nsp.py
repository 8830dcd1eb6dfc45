"""Next-sentence prediction (Devlin et al., 2019): whether the second segment follows the first."""

from __future__ import annotations

from plmctl.core.parts import part_of
from plmctl.objectives.pair import PairObjective


@part_of("objective")
class NSP(PairObjective):
    """`labels.pair` 0 = B follows A, 1 = B is from elsewhere (Devlin et al., 2019,
    arXiv:1810.04805, sec. 3.1, task 2).
    """

    name = "nsp"
