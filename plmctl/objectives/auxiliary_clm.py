"""Causal language modelling of deep models: layers below the last predict, too, and also tokens
after the next (Al-Rfou et al., 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Amount, Count, Share
from plmctl.heads.base import ScoringHead, head_of
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Output, Term
from plmctl.objectives.clm import CLM


@part_of("objective")
class AuxiliaryCLM(CLM):
    """`sum_l [CE(token_{t+1}) + extra_weight sum_{j=2..targets} CE(token_{t+j})]` over layers l.

    Term `clm` is that of the last layer and the next token, by the head "clm"; every other one of
    layer and target has a linear classifier of its own, which only training needs. Layer l of n
    predicts during the first `l / (2 n)` of `updates`, so after half of the training only the last
    one does. Evaluation asks the last layer alone. `clm_2` and `layers_2`: the second token,
    `layers`: all layers below the last. (arXiv:1808.04444, "Auxiliary Losses".)

    Args:
        targets: tokens behind each one that are predicted.
        layers: Whether layers below the last predict, too.
        updates: The updates of the whole training.
        asked: The share of each row that is predicted, as in `CLM`.
    """

    done: Tensor

    def __init__(
        self,
        *,
        model: Model,
        width: int,
        vocab_size: int,
        updates: Count | None,
        targets: Count = 2,
        extra_weight: Amount = 0.5,
        layers: bool = True,
        asked: Share = 1.0,
    ) -> None:
        super().__init__(asked=asked)
        if layers and updates is None:
            allowed = "the updates of the training, during which layers drop out"
            raise ConfigError("updates", None, allowed, fix="train.steps=2000, or layers=false")
        longest = model.backbone.max_length
        if longest is not None and targets >= longest:
            allowed = f"less than {longest}, the tokens of the longest row"
            raise ConfigError("targets", targets, allowed, fix="targets=2")
        self.extra_weight, self.updates = extra_weight, updates or 0
        self.names = ["clm", *(f"clm_{number}" for number in range(2, targets + 1))]
        self.num_layers = model.backbone.num_layers

        make = partial(
            LMHead,
            width=width,
            vocab_size=vocab_size,
            token_embedding=None,
            tied=False,
            transform=False,
            bias=False,
            about="next",
        )

        def make_heads(count: int) -> nn.ModuleList:
            return nn.ModuleList(make() for _ in range(count))

        self.last = make_heads(targets - 1)
        below = range(1, self.num_layers) if layers else range(0)
        self.below = nn.ModuleDict({str(layer): make_heads(targets) for layer in below})
        terms = {*self.names, *(map(_name_layers, self.names) if self.below else [])}
        needs = {"text", *(f"targets.{name}" for name in self.names)}
        self.facts = replace(self.facts, terms=frozenset(terms), needs=frozenset(needs))
        # updates so far: saved with the run
        self.register_buffer("done", torch.zeros((), dtype=torch.int64))
        self._done: int | None = None  # the same, read once from the device

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        labels = super().labels(rows)
        nearer = labels["clm"]
        for name in self.names[1:]:
            further = np.full_like(nearer, IGNORE)
            known = nearer[:, :-1] != IGNORE  # the token between is of this document
            further[:, :-1] = np.where(known, nearer[:, 1:], IGNORE)
            labels[name] = nearer = further
        return labels

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = {name: batch.counts[name] for name in self.names}
        if not self.below:
            return counts
        return counts | {_name_layers(name): count for name, count in counts.items()}

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        layers = self._find_layers()
        record = frozenset({"hidden"}) if layers else frozenset[str]()
        hidden = model(batch, state, record)
        next_one = batch.require("targets.clm")
        loss, right = head_of(model, "clm").loss(hidden.gather(next_one.index), next_one.ids)
        out = make_output("clm", loss, right, batch.counts["clm"], hidden.state)
        heads: Sequence[Any] = [None, *self.last]
        terms = dict(out.terms)
        for name, head, weight in zip(self.names, heads, self._weights(), strict=True):
            if head is not None:
                terms[name] = Term(_ask(head, hidden.last, batch, name), weight)
        for number, (name, weight) in enumerate(zip(self.names, self._weights(), strict=True)):
            losses = [
                _ask(self._classifier(layer, number), hidden.recorded["hidden"][layer], batch, name)
                for layer in layers
            ]
            if losses:
                terms[_name_layers(name)] = Term(torch.stack(losses).sum(), weight)
        return replace(out, terms=terms)

    def after_step(self, model: Model, step: int) -> None:
        self.done.fill_(step)
        self._done = step

    def _classifier(self, layer: int, number: int) -> LMHead:
        """The classifier of a layer below the last for the target of this number."""
        heads: Any = self.below[str(layer)]
        return cast(LMHead, heads[number])

    def _weights(self) -> list[float]:
        return [1.0, *[self.extra_weight] * (len(self.names) - 1)]

    def _find_layers(self) -> list[int]:
        """The layers below the last that now predict, counted from 1."""
        if not self.training:
            return []
        if self._done is None:
            self._done = int(self.done)
        lasting = 2 * self.num_layers * self._done  # layer l: done < l / (2 n) of the updates
        return [layer for layer in map(int, self.below) if lasting < layer * self.updates]


def _name_layers(target: str) -> str:
    return target.replace("clm", "layers")


def _ask(head: ScoringHead, states: Tensor, batch: Batch, name: str) -> Tensor:
    """The summed loss of a head for the states [B, T, W] of a layer."""
    targets = batch.require(f"targets.{name}")
    return head.loss(states.flatten(0, 1)[targets.index], targets.ids)[0]
