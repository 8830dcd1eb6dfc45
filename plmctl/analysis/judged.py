"""The tokens that a generator or a noise replaced, and what the trained model takes them for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_held_out, open_objective
from plmctl.artifacts.loading import Loaded

ROWS = 2  # rows that are kept


@dataclass(frozen=True)
class JudgedToken:
    """A token, and the verdict of the model on it.

    Args:
        token: The token as the model reads it.
        original: The token of the text; "" where it is not known.
        replaced: Whether the two differ.
        share: The probability of that by the model; None without a verdict.
    """

    token: str
    original: str
    replaced: bool
    share: float | None


@dataclass(frozen=True)
class JudgedRows(Measure):
    """Rows as a model reads them that looks for replaced tokens (Clark et al., 2020, sec. 2).

    Args:
        rows: The tokens of each row.
        about: The source of the rows.
    """

    name: ClassVar[str] = "replaced"
    rows: list[list[JudgedToken]]
    about: str

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded) -> Self | None:
        objective = open_objective(opened)
        if objective is None:
            return None
        batch, about = batch_held_out(opened, objective)
        judged = objective.judge_tokens(opened.model, batch) if batch.targets else None
        if judged is None:
            return None
        show, rows = opened.tokenizer.show, []
        for number in range(min(ROWS, len(batch.text.ids))):
            own = number, slice(int(batch.text.length[number]))
            read_ = show(judged.batch.text.ids[own].tolist())
            texts = [""] * len(read_)
            if judged.original is not None:
                texts = show(judged.original[own].tolist())
            verdicts = zip(
                read_,
                texts,
                judged.replaced[own].tolist(),
                judged.shares[own].tolist(),
                strict=True,
            )
            rows.append(
                [
                    JudgedToken(token, text, replaced, None if math.isnan(share) else share)
                    for token, text, replaced, share in verdicts
                ]
            )
        return cls(rows, about)
