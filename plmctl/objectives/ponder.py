"""The cost of layers if tokens halt, in addition to the loss of any objective (nn/halting.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Backbone, Once
from plmctl.models.capabilities import find_halting
from plmctl.objectives.base import ModelCost, Output, Term


@dataclass(frozen=True)
class PonderCost(ModelCost):
    """The mean over tokens of layers and remainder, for each stack whose tokens halt.

    Terms `ponder`, and `ponder_source` of an encoder whose decoder writes. Logged are the mean
    layers of a token as `layers` and `layers_source`. The costs of several passes over
    a batch are added.
    """

    weights: Mapping[str, float]  # by the sequence whose tokens halt

    @classmethod
    def of(cls, backbone: Backbone) -> PonderCost | None:
        """The cost of a backbone; None if none of its tokens halt."""
        weights = {key: halting.weight for key, halting in find_halting(backbone).items()}
        return cls(weights) if weights else None

    @property
    def terms(self) -> frozenset[str]:
        return frozenset(_name("ponder", key) for key in self.weights)

    @property
    def measures(self) -> frozenset[str]:
        return frozenset(_name("layers", key) for key in self.weights)

    def counts(self, batch: Batch) -> dict[str, int]:
        """{term: tokens}."""
        return {_name("ponder", key): _count_tokens(key, batch) for key in self.weights}

    def add(self, out: Output, once: Once, batch: Batch) -> Output:
        """`out`, with the costs of all passes of `once`.

        Raises:
            ConfigError: the objective has run the backbone by another way.
        """
        terms, logs = dict(out.terms), dict(out.logs)
        for key, weight in self.weights.items():
            passes = [hidden.pondered[key] for hidden in once.passes if key in hidden.pondered]
            if not passes:
                allowed = "null: this objective does not run the model as a whole"
                raise ConfigError("model.stack.halting", ..., allowed)
            total: Tensor = sum(part.sum() for part in passes)  # type: ignore[assignment]
            layers: Any = sum(part[..., 0].sum() for part in passes)
            terms[_name("ponder", key)] = Term(total, weight)
            logs[_name("layers", key)] = (layers, len(passes) * _count_tokens(key, batch))
        return replace(out, terms=terms, logs=logs)


def _name(what: str, key: str) -> str:
    return f"{what}_source" if key == "source" else what


def _count_tokens(key: str, batch: Batch) -> int:
    """The real tokens of a sequence; the host knows them if the batch has only one."""
    if len(batch.seqs) == 1 and "tokens" in batch.counts:
        return batch.counts["tokens"]
    # without a source and a target, both stacks read the text
    seq: Seq = batch.seqs.get(key) or batch.text
    return int(seq.real.sum())
