"""The tokens that the noise of a pretraining hides, and what the trained model takes them for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from plmctl.analysis.measure import Measure
from plmctl.analysis.sample import batch_held_out, open_objective
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import IGNORE

ROWS, GUESSES = 2, 3  # rows, and guesses for a token


@dataclass(frozen=True)
class HiddenToken:
    """A token that the model has to predict.

    Args:
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
        rows = targets.index // batch.text.ids.shape[1]
        columns = targets.index % batch.text.ids.shape[1]
        chosen = (targets.ids != IGNORE) & (rows < ROWS)
        rows, columns, wanted = rows[chosen], columns[chosen], targets.ids[chosen]
        states = opened.model(batch).words[rows, columns]
        pieces = opened.tokenizer.show
        guessed = _guess(opened, "mlm", states, wanted)
        hidden: list[dict[int, HiddenToken]] = [{} for _ in range(min(ROWS, len(batch.text.ids)))]
        for number, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            hidden[row][column] = guessed[number]
        tokens = [
            pieces(batch.text.ids[row, : int(batch.text.length[row])].tolist())
            for row in range(len(hidden))
        ]
        return cls(tokens, hidden, about)


@dataclass(frozen=True)
class WrittenRows(Measure):
    """Rows of a model that writes a target from a source with noise (Lewis et al., 2020, sec. 2).

    Args:
        sources: The tokens of each source behind the noise.
        targets: The tokens of each target, in their order.
        about: The source of the rows.
    """

    name: ClassVar[str] = "targets"
    sources: list[list[str]]
    targets: list[list[HiddenToken]]
    about: str

    @classmethod
    @torch.inference_mode()
    def of(cls, opened: Loaded) -> Self | None:
        objective = open_objective(opened)
        parts = [entry.objective.facts for entry in objective.entries.values()] if objective else []
        asking = next((facts for facts in parts if facts.asks_next == "target"), None)
        if asking is None:
            return None
        batch, about = batch_held_out(opened, objective)
        (head,) = asking.heads
        (name,) = asking.targets_of(head)
        if name not in batch.targets or "source" not in batch.seqs:
            return None
        targets, source = batch.targets[name], batch.seqs["source"]
        rows = targets.index // batch.seqs["target"].ids.shape[1]
        chosen = (targets.ids != IGNORE) & (rows < ROWS)
        states = opened.model(batch).gather(targets.index)[chosen]
        guessed = _guess(opened, head, states, targets.ids[chosen])
        written: list[list[HiddenToken]] = [[] for _ in range(min(ROWS, len(source.ids)))]
        for row, token in zip(rows[chosen].tolist(), guessed, strict=True):
            written[row].append(token)
        sources = [
            opened.tokenizer.show(source.ids[row, : int(source.length[row])].tolist())
            for row in range(len(written))
        ]
        return cls(sources, written, about)


def _guess(opened: Loaded, head: str, states: Tensor, wanted: Tensor) -> list[HiddenToken]:
    """The tokens `wanted [P]` and the guesses of a head for them, from its `states [P, W]`."""
    shares = opened.model.heads[head](states).float().softmax(-1)[:, : opened.vocab.size]
    best, ids = shares.topk(GUESSES)
    show = opened.tokenizer.show
    originals = show(wanted.tolist())
    return [
        HiddenToken(
            original,
            float(shares[number, wanted[number]]),
            list(zip(show(ids[number].tolist()), best[number].tolist(), strict=True)),
        )
        for number, original in enumerate(originals)
    ]
