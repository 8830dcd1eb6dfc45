"""The transfer of a teacher's layers before its predictions (MobileBERT): layer by layer, or all
layers together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.distill.base import Signal
from plmctl.models.base import Model
from plmctl.models.capabilities import list_layer_parts
from plmctl.objectives.phases import Phase


@part_of("transfer")
class LayerTransfer:
    """The first `share` of a run in `phases` of equal length, each with the losses of its layers
    alone; after them all losses that compare no layers.

    Layer m of M belongs to phase `ceil(m K / M)` of K. K = M (null) is progressive transfer, with a
    phase for each layer; K = 1 is joint transfer, of all layers together. Rates in phase k:
    `rate` times 0 for layers of later phases, 1 for those of k, `below` for those of earlier ones;
    0 freezes them. After the transfer they are the run's. (Sun et al., 2020, arXiv:2004.02984, sec.
    3.3; rates and schedule: google-research/mobilebert, distill_util.py.) Differs: both parts are
    one run, so that the moments of the optimizer are kept; published are two runs.

    Args:
        share: The share of the run, above 0; 1: nothing but the transfer.
        phases: The number of phases; None: one for each layer.
        rate: The factor of the learning rates in the transfer.
        below: The factor of layers whose phase is over, in addition.
        inherit: Whether the student gets all but its layers from the teacher, and the transfer does
            not train it; otherwise it is trained with the lowest layers.
        schedule: The schedule of the learning rates in each phase.
    """

    def __init__(
        self,
        *,
        share: float,
        schedule: Any,
        phases: int | None = None,
        rate: float = 1.0,
        below: float = 0.1,
        inherit: bool = True,
    ) -> None:
        if not 0 < share <= 1:
            raise ConfigError("share", share, "0 < share <= 1: the part of the run for layers")
        if rate <= 0:
            raise ConfigError("rate", rate, "more than 0, a factor of the run's learning rates")
        if below < 0:
            allowed = "0 (layers whose phase is over are frozen) or more: their factor"
            raise ConfigError("below", below, allowed)
        self.share, self.phases, self.rate, self.below = share, phases, rate, below
        self.inherit, self.schedule = inherit, schedule

    def plan(
        self, model: Model, signals: Mapping[str, Signal], terms: Collection[str]
    ) -> tuple[Phase, ...]:
        """The phases of a run.

        Args:
            model: The student.
            signals: The signals of its distillation, by name.
            terms: The names of all losses of the run.

        Raises:
            ConfigError: No signal has losses by layer, or the layers cannot be told apart.
        """
        of_layer = {
            layer: [f"{name}/{layer}" for name, signal in signals.items() if layer in signal.layers]
            for layer in sorted({layer for each in signals.values() for layer in each.layers})
        }
        if not of_layer:
            allowed = "a signal of layers with by_layer: true, whose layers are trained one by one"
            raise ConfigError("signals", [*signals], allowed, fix="distill=mobilebert_progressive")
        above = list(_name_layers(model, self.phases))
        rest = _name_rest(model, above)
        count = len(above) if self.phases is None else self.phases
        if not 1 <= count <= len(above):
            allowed = f"1 (all layers together) to {len(above)}, one for each layer (null)"
            raise ConfigError("phases", count, allowed)
        phases, below = list[Phase](), list[str]()
        for number in range(1, count + 1):
            layers = [m for m in range(1, len(above) + 1) if -(-m * count // len(above)) == number]
            own = [name for m in layers for name in above[m - 1]]
            if number == 1 and not self.inherit:
                own += rest
            first = [0] if number == 1 else []  # the embedding output
            losses = {term for m in (*first, *layers) for term in of_layer.get(m, [])}
            frozen = {name for layer in above for name in layer} | set(rest)
            frozen -= {*own, *(below if self.below else ())}
            phases.append(
                Phase(
                    name=_spell(layers),
                    share=self.share / count,
                    left_out=frozenset(terms) - losses,
                    frozen=sorted(frozen),
                    rate=self.rate,
                    rates={name: self.below for name in below if name not in own and self.below},
                    schedule=self.schedule,
                )
            )
            below += own
        if self.share < 1:
            of_layers = frozenset(term for own in of_layer.values() for term in own)
            phases.append(Phase(name="predictions", share=1 - self.share, left_out=of_layers))
        return tuple(phases)


def _name_layers(model: Model, phases: int | None) -> list[list[str]]:
    """The names of the modules of each layer that have parameters."""
    names = {id(module): name for name, module in model.named_modules()}
    parts = list_layer_parts(model.backbone)[1:]
    if not parts:
        kind = type(model.backbone).__name__
        allowed = f"null: the layers of this {kind} cannot be trained one by one"
        raise ConfigError("transfer", phases, allowed, fix="distill=mobilebert")
    return [[names[id(part)] for part in own if _is_trained(part)] for own in parts]


def _is_trained(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _name_rest(model: Model, layers: list[list[str]]) -> list[str]:
    """The names of the parameters outside of the layers."""
    inside = tuple(f"{name}." for own in layers for name in own)
    return [name for name, _ in model.named_parameters() if not name.startswith(inside)]


def _spell(layers: list[int]) -> str:
    """The layers of a phase as the log names them."""
    return f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
