"""Perplexities of losses of any size."""

from __future__ import annotations

import math

LARGEST = 700.0  # nats: a double has no number above e^709


def exponentiate(loss: float) -> float:
    """The perplexity `exp(loss)`; of a loss above `LARGEST`, as that of `LARGEST`.

    Args:
        loss: mean negative log-likelihood, nats.
    """
    return math.exp(min(loss, LARGEST))
