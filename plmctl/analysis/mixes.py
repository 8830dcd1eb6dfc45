"""The weights of layers that a fine-tuned model has learned (Peters et al., 2018, fig. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from plmctl.analysis.measure import Measure
from plmctl.artifacts.loading import Loaded
from plmctl.heads.features import ScalarMix


@dataclass(frozen=True)
class LayerMixes(Measure):
    """The weights of each scalar mix of a model.

    Args:
        weights: {name of the mix: {layer, 0 for the embeddings: `softmax(s)` of it}}.
        scales: {name of the mix: its gamma}.
    """

    name: ClassVar[str] = "mixes"
    weights: dict[str, dict[int, float]]
    scales: dict[str, float]

    @classmethod
    def of(cls, opened: Loaded) -> Self | None:
        mixes = {
            name.removeprefix("heads."): part
            for name, part in opened.model.named_modules()
            if isinstance(part, ScalarMix)
        }
        states = opened.model.backbone.num_layers + 1
        weights = {
            name: dict(
                zip(
                    (layer % states for layer in mix.layers),
                    mix.scores.detach().softmax(0).tolist(),
                    strict=True,
                )
            )
            for name, mix in mixes.items()
        }
        scales = {name: float(mix.gamma.detach()) for name, mix in mixes.items()}
        return cls(weights, scales) if mixes else None
