"""The cost of all stages of a run: each has its own rows, and a share of the budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from plmctl.artifacts.cost import Cost
from plmctl.config.groups import Train
from plmctl.data.token_batches import count_rows
from plmctl.training.processes.parallel import count_teams


@dataclass(frozen=True)
class StageCost:
    """A stage, or a run without any.

    Args:
        costs: The costs of one of its tokens.
        tokens: The tokens of an update, at most.
        rows: The rows of one backward pass of a process.
        share: The share of the budget.
        activations: Bytes that such a pass keeps; None: not counted.
    """

    costs: Cost
    tokens: int
    rows: int
    share: float = 1.0
    activations: int | None = None

    @classmethod
    def of(cls, train: Train, costs: Cost, lengths: tuple[int, int], share: float = 1.0) -> Self:
        """The stage with these settings of `train`, and rows with so many tokens that are read, and
        that are written.
        """
        update = count_rows(train.batch_size, train.get("batch_tokens"), max(lengths))
        rows = train.micro_batch_size or max(
            1, update // count_teams(train.processes, train.tensor_parallel)
        )
        return cls(costs, update * sum(lengths), rows, share)

    def memory(self, bytes_of: int) -> dict[str, float]:
        """Peak bytes of training one pass at a time, in numbers of so many bytes."""
        memory = self.costs.memory(rows=self.rows, activation_bytes=bytes_of)
        return memory if self.activations is None else memory | {"activations": self.activations}

    def describe(self, share: float, tokens: int | None) -> str:
        """The numbers of its table, where it has this share of the run's tokens."""
        rate = f"updates of {self.tokens:,} tokens, {self.costs.flops_per_token:,.0f} FLOPs a token"
        if not tokens:
            return rate
        return f"{share * tokens / self.tokens:,.0f} {rate}, {share:.0%} of all tokens"


@dataclass(frozen=True)
class Spent:
    """A whole run: means over its tokens, and how many there are (None: not known yet)."""

    shares: tuple[float, ...]
    macs_per_token: dict[str, float]
    flops_per_token: float
    recomputed_flops_per_token: float
    updates: int | None
    tokens: int | None


def spend(stages: Sequence[StageCost], train: Train, per_word: float = 1.0) -> Spent:
    """The sum of the stages: shares are those of updates, of tokens or of time, as `train` states
    the length of the run; in the same time a token that costs more is read less often.
    """
    weights = [stage.share * stage.tokens for stage in stages]
    if train.tokens or train.get("words"):
        weights = [stage.share for stage in stages]
    elif train.minutes:
        weights = [stage.share / stage.costs.flops_per_token for stage in stages]
    shares = [weight / sum(weights) for weight in weights]
    parts = list(zip(shares, stages, strict=True))
    macs: Counter[str] = Counter()
    for share, stage in parts:
        macs.update({name: share * number for name, number in stage.costs.macs_per_token.items()})
    updates, tokens, words = train.steps, train.tokens, train.get("words")
    tokens = round(per_word * words) if words else tokens
    if tokens:
        per_token = sum(share / stage.tokens for share, stage in parts)
        updates = updates or math.ceil(round(tokens * per_token, 6))
    elif updates:
        tokens = round(updates * sum(weights))
    flops = sum(share * stage.costs.flops_per_token for share, stage in parts)
    again = sum(share * stage.costs.recomputed_flops_per_token for share, stage in parts)
    return Spent(tuple(shares), dict(macs), flops, again, updates, tokens)


def count_tokens(train: Mapping[str, Any], max_length: int, per_word: float) -> int | None:
    """Tokens of a run whose settings are those of `train`, at most; None where its length is time.

    Args:
        max_length: Tokens of a row, at most.
    """
    if words := train.get("words"):
        return round(per_word * words)
    if train["tokens"] or not train["steps"]:
        return train["tokens"] and int(train["tokens"])
    return int(train["steps"] * count_update(train, max_length))


def count_update(train: Mapping[str, Any], max_length: int) -> int:
    """Tokens of an update whose rows have at most `max_length`."""
    return int(train.get("batch_tokens") or train["batch_size"] * max_length)
