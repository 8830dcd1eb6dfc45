"""The losses of pretraining on held-out documents, with rows and noise of one's choice (eval
only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plmctl.core.parts import part_of


@part_of("task")
@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Mean losses and accuracies of a pretrained checkpoint's own objectives on held-out rows.

    Rows and noise may be others than in training: a head that was trained on one kind of pairs can
    be measured on another kind (next sentence on sentence order: Lan et al., 2020,
    arXiv:1909.11942, table 5).

    Of a text that the run has not trained on, all documents count; of its own, those held out.

    `exact/...`, of rows: for a model that writes from left to right it is the share of rows that
    greedy search writes exactly, since each answer follows right ones until the first that is
    wrong.
    """

    objectives: Sequence[str] | None = None  # of the checkpoint's own; None: all
    settings: Mapping[str, Any] = field(default_factory=dict)  # of all these, not as in training
    rows: int | None = None  # at most; None: all
    seed: int = 0  # of rows and noise
    exact: bool = False  # also the share of rows in which every answer is right; rows one by one
