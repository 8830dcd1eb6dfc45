"""umT5 (Chung et al., 2023, arXiv:2304.09151) as `transformers` publishes it."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.interop.family import Node
from plmctl.interop.names import NameRule, Tensors
from plmctl.interop.settings import Numbers
from plmctl.interop.stacks import OUTPUT, TABLES
from plmctl.interop.t5 import (
    GATED,
    PROJECTIONS,
    EncoderAlone,
    T5Family,
    encoder_classes,
    layer_rules,
    t5_classes,
)

BY_LAYER = "plmctl.nn.positions.RelativeBucketsByLayer"


class UMT5Family(T5Family):
    """mT5 with a table of relative positions in every layer, `UMT5...`.

    States are not multiplied before an output table of its own, as in the published files.
    """

    model_type = "umt5"
    systems = ("umT5",)
    hub: tuple[tuple[str, int], ...] = (("google/umt5-small", 300), ("google/umt5-base", 580))
    architectures = t5_classes("UMT5")

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        gated = PROJECTIONS[numbers.activation][0] == GATED
        ends = (layer_rules(end, gated=gated, shared=False) for end in ("encoder", "decoder"))
        return [*TABLES, *(rule for rules in ends for rule in rules)]

    def position(self, numbers: Numbers, *, bidirectional: bool) -> Node:
        layers = numbers.num_layers if bidirectional else numbers.decoder_layers
        own = {"_target_": BY_LAYER, "num_layers": layers}
        return super().position(numbers, bidirectional=bidirectional) | own

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        own = OUTPUT in tensors
        return super().adapt(numbers.but(scaled=False) if own else numbers, tensors)


class UMT5EncoderFamily(EncoderAlone, UMT5Family):
    """umT5's encoder alone."""

    architectures = encoder_classes("UMT5")
