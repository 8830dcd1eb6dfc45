"""The shape of a small model: layers, and the share of heads and neurons that stay in each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.compacting import Cut, compact_source, find_cuts, name_map
from plmctl.artifacts.loading import Source
from plmctl.artifacts.shrinking import shrink_source
from plmctl.models.units import HEADS, NEURONS, list_cells

UNITS = {HEADS: "heads", NEURONS: "neurons"}
DEPTHS = (1, Fraction(3, 4), Fraction(1, 2), Fraction(3, 8), Fraction(1, 4), Fraction(1, 8))


@dataclass(frozen=True)
class Shape:
    """The layers, heads and neurons that stay.

    Args:
        layers: The number of layers, spread from the lowest to the highest.
        all_layers: The layers of the run.
        width: The share of the units of each layer that stay.
        units: The units, by the settings that count them.
    """

    layers: int
    all_layers: int
    width: Fraction = Fraction(1)
    units: tuple[str, ...] = tuple(UNITS)

    @property
    def whole(self) -> bool:
        """Whether nothing is taken out."""
        return self.layers == self.all_layers and self.width == 1

    @property
    def share(self) -> float:
        """The share of the numbers in layers that stays."""
        return float(self.layers * self.width / self.all_layers)

    @property
    def kept_layers(self) -> str | None:
        """The setting `kept_layers` of a training; None for all layers."""
        return f"spread{self.layers}" if self.layers < self.all_layers else None

    def describe(self) -> str:
        """The shape for people: "2 of 4 layers, 50% of heads and neurons"."""
        parts = []
        if self.layers < self.all_layers:
            parts.append(f"{self.layers} of {self.all_layers} layers")
        if self.width < 1:
            named = " and ".join(UNITS[setting] for setting in self.units)
            parts.append(f"{float(self.width):.0%} of {named}")
        return ", ".join(parts) or "all layers"

    def spell(self) -> dict[str, Any]:
        """The shape as plain settings."""
        counts = {"layers": self.layers, "all_layers": self.all_layers}
        return counts | {"width": str(self.width), "units": list(self.units)}

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Shape:
        """The shape that `spell` has spelled."""
        width, units = Fraction(config["width"]), tuple(config["units"])
        return cls(config["layers"], config["all_layers"], width, units)

    def cut(self, source: Source) -> Source:
        """A model of this shape with weights of `source`, which no training has healed.

        Raises:
            ConfigError: Layers, heads or neurons cannot be taken out of it.
        """
        if self.kept_layers is not None:
            source = shrink_source(source, self.kept_layers)
        return source if self.width == 1 else _narrow(source, self.width, self.units)


def list_depths(layers: int) -> list[int]:
    """Numbers of layers to try, from all of them down to one."""
    found = {max(1, round(layers * share)) for share in DEPTHS} | {1, layers}
    return sorted(found, reverse=True)


def list_widths(heads: int) -> list[Fraction]:
    """Shares of `heads` heads, from one head to all."""
    return [Fraction(kept, heads) for kept in range(1, heads + 1)]


def count_heads(source: Source) -> int:
    """The heads of the layer with the fewest; 1 without heads."""
    return min((len(cut.kept) for cut in _list_cuts(source) if cut.setting == HEADS), default=1)


def _list_cuts(source: Source) -> Iterator[Cut]:
    """The heads and neurons of each cell."""
    with without_weights():
        model = build_model(source.config, vocab_size=source.vocab_size, plugins=source.plugins)
    for path, cell in list_cells(model.backbone):
        yield from find_cuts(cell, f"backbone.{path}", dict(source.tensors))


def _narrow(source: Source, width: Fraction, units: Collection[str]) -> Source:
    """`source` with the first of these units of each layer alone."""
    tensors = dict(source.tensors)
    for cut in (each for each in _list_cuts(source) if each.setting in units):
        name = f"{name_map(cut, cut.cell.projection)}.weight"
        kept = len(cut.kept) - round(float(1 - width) * len(cut.kept))
        tensors[name] = tensors[name].clone()
        tensors[name][:, max(1, kept) * cut.width :] = 0
    return compact_source(replace(source, tensors=tensors))[0]
