"""The top layers of a pretrained model are drawn anew (Zhang et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from plmctl.core.draw_device import draw_weights
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.base import POOLER
from plmctl.models.capabilities import list_layer_parts
from plmctl.training.stabilisers.base import Beginning, Stabiliser


@part_of("stabiliser")
class Reinitialised(Stabiliser):
    """The pooler and the last `layers` layers begin as in a new model (Zhang et al., 2021,
    arXiv:2006.05987, sec. 5). The rule of the model applies: N(0, 0.02) for BERT, norms 1 and 0.
    """

    stays_near, whole_weights = True, False

    def __init__(self, *, layers: Count) -> None:
        super().__init__()
        self.layers = layers

    def begin(self, given: Beginning) -> None:
        backbone = given.model.backbone
        parts = list_layer_parts(backbone)[1:]
        if not parts:
            allowed = f"a model with layers of its own; this one is a {type(backbone).__name__}"
            raise ConfigError("stabiliser", "reinitialise", allowed)
        if self.layers > len(parts):
            fix = f"stabiliser.reinitialise.layers={len(parts)}"
            raise ConfigError("layers", self.layers, f"at most {len(parts)}, all of them", fix=fix)
        top = {id(part): part for own in parts[-self.layers :] for part in own}
        if any(id(part) in top for own in parts[: -self.layers] for part in own):
            allowed = "layers of their own: here lower layers have the weights of the last ones"
            raise ConfigError(
                "layers", self.layers, allowed, fix="leave stabiliser=[reinitialise] out"
            )
        heads = [given.model.heads[POOLER]] if POOLER in given.model.heads else []
        _refuse_frozen(given, [*parts[-self.layers :], heads])
        if given.resumed:
            return
        draws = torch.Generator().manual_seed(given.seed)
        for part in [*top.values(), *heads]:
            draw_weights(part, backbone.initializer, draws)  # type: ignore[arg-type]


def _refuse_frozen(given: Beginning, layers: Sequence[Sequence[nn.Module]]) -> None:
    """ConfigError if a layer would stay as it is drawn, or if some of its weights would not be
    saved because methods leave them frozen.
    """
    drawn = [[weight for part in own for weight in part.parameters()] for own in layers]
    trained = [[weight.requires_grad for weight in own] for own in drawn if own]
    if given.model.methods:
        old = {id(w) for name, w in given.model.named_parameters() if name in given.pretrained}
        if all(w.requires_grad for own in drawn for w in own if id(w) in old):
            return
        allowed = "none with peft: the layers that it draws would not be trained"
        raise ConfigError("stabiliser", "reinitialise", allowed, fix="peft=[]")
    if not all(map(any, trained)):
        allowed = "a model whose top layers are trained: frozen, they would stay as they are drawn"
        raise ConfigError("stabiliser", "reinitialise", allowed, fix="train.frozen=[]")
