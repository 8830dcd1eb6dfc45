"""Normalisations, each a function of a width, for the norm slots of residual.py."""

from __future__ import annotations

from torch import nn

from plmctl.core.parts import part_of


@part_of("norm")
def layer_norm(*, width: int, eps: float) -> nn.Module:
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last axis (Ba et al., 2016,
    arXiv:1607.06450).
    """
    return nn.LayerNorm(width, eps=eps)


@part_of("norm")
def rms_norm(*, width: int, eps: float) -> nn.Module:
    """`x / sqrt(mean(x^2) + eps) * weight` (Zhang and Sennrich, 2019, arXiv:1910.07467)."""
    return nn.RMSNorm(width, eps=eps)
