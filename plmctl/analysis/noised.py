"""The tokens that the noise of a pretraining hides, and what the trained model takes them for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_held_out
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import IGNORE

ROWS, GUESSES = 2, 3  # rows, and guesses for a token


@dataclass(frozen=True)
class HiddenToken:
    """A token that the model has to predict.

    Args:
        original: The token of the text.
        share: The probability that the model gives it.
        guesses: The likeliest tokens with their probabilities, the likeliest first.
    """

    original: str
    share: float
    guesses: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class NoisedRows(Measure):
    """Rows as a masked language model reads them (Devlin et al., 2019, sec. 3.1).

    Args:
        tokens: The tokens of each row behind the noise.
        hidden: {position: the token} of each row.
        about: The source of the rows.
    """

    name: ClassVar[str] = "noise"
    tokens: list[list[str]]
    hidden: list[dict[int, HiddenToken]]
    about: str

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded) -> Self | None:
        if "mlm" not in opened.model.heads:
            return None
        batch, about = batch_held_out(opened)
        targets = batch.targets.get("mlm")
        if targets is None or "text" not in batch.seqs:
            return None
        rows, columns = (
            targets.index // batch.text.ids.shape[1],
            targets.index % batch.text.ids.shape[1],
        )
        chosen = (targets.ids != IGNORE) & (rows < ROWS)
        rows, columns, wanted = rows[chosen], columns[chosen], targets.ids[chosen]
        states = opened.model(batch).words[rows, columns]
        shares = opened.model.heads["mlm"](states).float().softmax(-1)[:, : opened.vocab.size]
        best, ids = shares.topk(GUESSES)
        pieces = opened.tokenizer.show
        hidden: list[dict[int, HiddenToken]] = [{} for _ in range(min(ROWS, len(batch.text.ids)))]
        for number, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            (original,) = pieces([int(wanted[number])])
            guesses = zip(pieces(ids[number].tolist()), best[number].tolist(), strict=True)
            share = float(shares[number, wanted[number]])
            hidden[row][column] = HiddenToken(original, share, list(guesses))
        tokens = [
            pieces(batch.text.ids[row, : int(batch.text.length[row])].tolist())
            for row in range(len(hidden))
        ]
        return cls(tokens, hidden, about)
