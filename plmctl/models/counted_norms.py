"""Norms of a model that count some of their columns alone."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from plmctl.nn.norm import CountedLayerNorm, CountedRMSNorm


def count_columns(model: nn.Module, names: Iterable[str]) -> dict[str, nn.Module]:
    """{name: norm that counts columns} for norms of a model, each of which such a norm replaces.
    All columns count at first. A name without a norm is left out.
    """
    named = dict(model.named_modules(remove_duplicate=False))
    made: dict[int, nn.Module] = {}
    for name in names:
        norm = named.get(name)
        if isinstance(norm, CountedLayerNorm | CountedRMSNorm):
            made[id(norm)] = norm
        elif isinstance(norm, nn.LayerNorm):
            made[id(norm)] = CountedLayerNorm(norm)
        elif isinstance(norm, nn.RMSNorm):
            made[id(norm)] = CountedRMSNorm(norm)
    for part in {id(part): part for part in named.values()}.values():
        for key, child in part._modules.items():
            part._modules[key] = made.get(id(child), child)
    return {name: made[id(named[name])] for name in names if id(named.get(name)) in made}
