"""The layout of the library `peft` for methods that change a linear map by a product of matrices.

Its names of tensors and settings are related to ours, for reading and writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from plmctl.core.parts import target_of
from plmctl.nn.peft.adalora import AdaptiveRank
from plmctl.nn.peft.base import Method
from plmctl.nn.peft.dora import WeightDecomposed
from plmctl.nn.peft.lora import LowRank
from plmctl.nn.peft.vera import SharedRandom

SHARES = 10000  # updates of an exported schedule, which is stated in shares of a run


@dataclass(frozen=True)
class LearnedTensor:
    """One learned tensor of a change.

    Args:
        own: The attribute of the change that has it by name of the rows.
        by_rows: Whether its first dimension is that of the rows, so that rows of one map share the
            published tensor; else each has a copy.
        absent: Its value, from the weight of the rows and the shape, where the adapter has none.
        rank: The dimension of the rank, where a published tensor may have fewer directions.
    """

    own: str
    by_rows: bool = True
    absent: Callable[[Tensor, torch.Size], Tensor] = lambda weight, shape: torch.zeros(shape)
    rank: int | None = None

    def fill(self, tensor: Tensor, like: Tensor) -> Tensor:
        """A published tensor with zeros for the directions that were left out."""
        if self.rank is None or self.rank >= tensor.dim():
            return tensor
        missing = like.shape[self.rank] - tensor.shape[self.rank]
        shape = [missing if d == self.rank else n for d, n in enumerate(tensor.shape)]
        return torch.cat([tensor, tensor.new_zeros(shape)], self.rank) if missing > 0 else tensor


@dataclass(frozen=True)
class ProductLayout:
    """A method in both spellings.

    Args:
        kind: The method in `peft`.
        target: Our class.
        tensors: {the end of a published name: our tensor}.
        read: Our settings from the published ones, without maps.
        write: The published settings from ours, without modules.
        common: {a published name: the attribute of our drawn matrices}, for tensors that all maps
            share. Maps take the first rows, so several of ours in one published map take others.
    """

    kind: str
    target: type[Method]
    tensors: Mapping[str, LearnedTensor]
    read: Callable[[Mapping[str, Any]], dict[str, Any]]
    write: Callable[[Any], dict[str, Any]]
    common: Mapping[str, str] = field(default_factory=dict)

    def node(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The config of our method."""
        return {"_target_": target_of(self.target), **self.read(settings)}


def _read_lora(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "rank": int(settings["r"]),
        "alpha": float(settings.get("lora_alpha", 8)),
        "root": bool(settings.get("use_rslora", False)),
        "dropout": float(settings.get("lora_dropout", 0.0)),
    }


def _write_lora(method: LowRank | WeightDecomposed) -> dict[str, Any]:
    return {
        "r": method.rank,
        "lora_alpha": method.alpha,
        "use_rslora": method.root,
        "lora_dropout": method.dropout,
        "use_dora": method.mark == WeightDecomposed.mark,
        "bias": "none",
    }


def _read_adaptive(settings: Mapping[str, Any]) -> dict[str, Any]:
    updates = int(settings["total_step"])
    return {
        "rank": int(settings.get("init_r", 12)),
        "final_rank": int(settings.get("target_r", 8)),
        "alpha": float(settings.get("lora_alpha", 8)),
        "begin_at": int(settings.get("tinit", 0)) / updates,
        "end_at": 1 - int(settings.get("tfinal", 0)) / updates,
        "every": int(settings.get("deltaT", 1)),
        "smooth": float(settings.get("beta1", 0.85)),
        "uncertain": float(settings.get("beta2", 0.85)),
        "penalty": float(settings.get("orth_reg_weight", 0.5)),
        "dropout": float(settings.get("lora_dropout", 0.0)),
    }


def _write_adaptive(method: AdaptiveRank) -> dict[str, Any]:
    final = min(round((1 - method.end_at) * SHARES), SHARES - 1)
    return {
        "init_r": method.rank,
        "target_r": method.final_rank,
        "lora_alpha": method.alpha,
        "tinit": min(round(method.begin_at * SHARES), SHARES - final - 1),
        "tfinal": final,
        "total_step": SHARES,
        "deltaT": method.every,
        "beta1": method.smooth,
        "beta2": method.uncertain,
        "orth_reg_weight": method.penalty,
        "lora_dropout": method.dropout,
        "bias": "none",
    }


def _measure(weight: Tensor, shape: torch.Size) -> Tensor:
    """The norms with which DoRA changes nothing."""
    return weight.norm(dim=1)


MATRICES = {
    "lora_A.weight": LearnedTensor("down", by_rows=False),
    "lora_B.weight": LearnedTensor("up"),
}
LORA = ProductLayout("LORA", LowRank, MATRICES, _read_lora, _write_lora)
DORA = ProductLayout(
    "LORA",
    WeightDecomposed,
    {**MATRICES, "lora_magnitude_vector": LearnedTensor("magnitude", absent=_measure)},
    _read_lora,
    _write_lora,
)
VERA = ProductLayout(
    "VERA",
    SharedRandom,
    {
        "vera_lambda_d": LearnedTensor("inner", by_rows=False),
        "vera_lambda_b": LearnedTensor("outer"),
    },
    lambda settings: {
        "rank": int(settings["r"]),
        "seed": int(settings.get("projection_prng_key", 0)),
        "first": float(settings.get("d_initial", 0.1)),
        "dropout": float(settings.get("vera_dropout", 0.0)),
    },
    lambda method: {
        "r": method.rank,
        "projection_prng_key": method.seed,
        "save_projection": True,
        "d_initial": method.first,
        "vera_dropout": method.dropout,
        "bias": "none",
    },
    common={"base_model.vera_A": "down", "base_model.vera_B": "up"},
)
ADALORA = ProductLayout(
    "ADALORA",
    AdaptiveRank,
    {
        "lora_A": LearnedTensor("down", by_rows=False, rank=0),
        "lora_E": LearnedTensor("values", by_rows=False, rank=0),
        "lora_B": LearnedTensor("up", rank=1),
    },
    _read_adaptive,
    _write_adaptive,
)
LAYOUTS: Mapping[str, ProductLayout] = {
    layout.target.mark: layout for layout in (LORA, DORA, VERA, ADALORA)
}


def find_layout(settings: Mapping[str, Any]) -> ProductLayout:
    """The layout of an adapter with these settings."""
    if settings.get("use_dora"):
        return DORA
    return next(own for own in LAYOUTS.values() if own.kind == settings["peft_type"])
