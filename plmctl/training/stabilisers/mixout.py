"""Mixout (Lee et al., 2020): weights that are dropped become those of the pretrained model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.models.base import Model
from plmctl.training.stabilisers.base import UNFROZEN, Beginning, KeptTensors, Stabiliser


@part_of("stabiliser")
class Mixout(Stabiliser):
    """`W' = (M W + (1 - M) W0 - p W0) / (1 - p)`, M ~ Bernoulli(1 - p), of linear maps W of the
    backbone, W0 as pretrained; W' has the mean W (Lee et al., 2020, arXiv:1909.11299, eq. 3).

    A mask for each micro-batch. Evaluation uses W. It replaces dropout (sec. 5), which is off
    unless `dropout` keeps it. `form=released`: as in bloodwass/mixout, M is drawn for one row of W
    and used for all rows. The gradient of W is M, without 1 / (1 - p).
    """

    stays_near, rewrites = True, True

    def __init__(
        self,
        *,
        rate: DropoutRate,
        form: Literal["paper", "released"] = "paper",
        dropout: bool = False,
    ) -> None:
        super().__init__()
        self.rate, self.form, self.dropout = rate, form, dropout
        self.start = KeptTensors({})
        self.names: list[str] = []

    def begin(self, given: Beginning) -> None:
        maps = {
            f"{name}.weight": part.weight
            for name, part in given.model.backbone.named_modules()
            if isinstance(part, nn.Linear)
            and part.weight.requires_grad
            and f"backbone.{name}.weight" in given.pretrained
        }
        if given.model.recomputes:
            allowed = "a model whose layers run once: a second run would draw other weights"
            raise ConfigError("stabiliser", "mixout", allowed, fix="stabiliser=[]")
        if not maps:
            allowed = "a model that trains linear maps from a checkpoint"
            raise ConfigError("stabiliser", "mixout", allowed, fix=UNFROZEN)
        self.start, self.names = KeptTensors(maps), list(maps)
        if not self.dropout:
            given.model.drop_nothing()

    def mix(self, weight: Tensor, start: Tensor) -> Tensor:
        """W' of W and W0, both [out, in]."""
        shape = weight.shape if self.form == "paper" else weight[:1].shape
        kept = torch.bernoulli(weight.new_full(shape, 1 - self.rate))
        mixed = start + kept * (weight - start) / (1 - self.rate)
        if self.form == "paper":
            return mixed
        return mixed.detach() + kept * (weight - weight.detach())

    @contextmanager
    def reading(self, model: Model) -> Iterator[None]:
        owners = {}
        for name in self.names:
            owner = model.backbone.get_submodule(name.rpartition(".")[0])
            weight = owner._parameters["weight"]
            assert weight is not None
            if weight.requires_grad:
                owners[owner] = weight
                # under its own name, so that the order of parameters stays
                mixed: Any = self.mix(weight, self.start.of(name))  # no Parameter
                owner._parameters["weight"] = mixed
        try:
            yield
        finally:
            for owner, weight in owners.items():
                owner._parameters["weight"] = weight
