"""R-Drop (Liang et al., 2021): two passes with other dropout, which must predict the same."""

from __future__ import annotations

from collections.abc import Callable

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.objectives.base import Output, Term
from plmctl.training.stabilisers.compared import Compared

TERM = "r_drop"


@part_of("stabiliser")
class TwoPasses(Compared):
    """`(L1 + L2) / 2 + alpha (KL(P1 || P2) + KL(P2 || P1)) / 2`, P1 and P2 the predictions of two
    passes with other dropout (Liang et al., 2021, arXiv:2106.14448, eq. 2 to 4).

    For numbers, `(p1 - p2)^2` replaces the divergence. Differs: the mean of both losses, as in the
    code that is released, where the paper has their sum.
    """

    terms, group, needs_dropout = frozenset({TERM}), TERM, True
    whole_weights = False

    def __init__(self, *, alpha: float) -> None:
        super().__init__()
        if not alpha >= 0:
            raise ConfigError("alpha", alpha, "0 or more", fix="alpha=1.0")
        self.alpha = alpha

    def add(self, out: Output, again: Callable[[], Output], batch: Batch) -> Output:
        first = self.passes()[-1]
        other = again()
        total = self.compare(first, self.passes()[-1], batch) / (
            2 if self.task[0].facts.chooses else 1
        )
        terms = {  # terms of the objective alone in both passes
            name: Term((term.total + other.terms[name].total) / 2, term.weight)
            if name in other.terms
            else term
            for name, term in out.terms.items()
        }
        return Output({**terms, TERM: Term(total, self.alpha)}, out.logs, out.state)
