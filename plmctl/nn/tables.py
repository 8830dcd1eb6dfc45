"""Tables with one row per token, which are padded only in the running model.

Matrix products are fastest if the vocabulary is a multiple of 64 (Karpathy, 2023, nanoGPT: GPT-2's
50,257 rows become 50,304). Spare rows are zeros: no id looks them up and they have no probability,
so their gradient is 0 and they stay zeros. Code that saves, counts, draws or exports parameters
uses `real`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import base_of
from plmctl.core.shares import is_shared

MULTIPLE = 64


class Padded(nn.Module):
    """A module whose own parameters have one row for each of `vocab_size` tokens, then spare
    rows.
    """

    vocab_size: int


@base_of("table")
class Lookup(nn.Module):
    """ids [...] -> [..., W]: vectors of `num_embeddings` tokens, in one table or in several."""

    num_embeddings: int


class TokenTable(Padded, nn.Embedding):
    """ids [...] -> [..., W], by a table of `padded(vocab_size)` rows."""

    def __init__(self, *, vocab_size: int, width: int) -> None:
        super().__init__(
            padded(vocab_size), width, _weight=with_spare(torch.empty(vocab_size, width).normal_())
        )
        self.vocab_size = vocab_size


def padded(vocab_size: int) -> int:
    """The number of rows for so many tokens: the next multiple of 64."""
    return -(-vocab_size // MULTIPLE) * MULTIPLE


def with_spare(values: Tensor, rows: int | None = None) -> Tensor:
    """`values` [V, ...] followed by zeros up to `rows`, by default `padded(V)`."""
    spare = (padded(len(values)) if rows is None else rows) - len(values)
    return F.pad(values, [0, 0] * (values.dim() - 1) + [0, spare])


def token_rows(module: nn.Module) -> dict[str, int]:
    """{parameter: number of its rows that are tokens} for the padded tables in `module`, under all
    their names.
    """
    tables = [part for part in module.modules() if isinstance(part, Padded)]
    rows = {
        id(parameter): table.vocab_size
        for table in tables
        for parameter in table.parameters(recurse=False)
    }
    return {
        name: rows[id(p)]
        for name, p in module.named_parameters(remove_duplicate=False)
        if id(p) in rows
    }


def real(module: nn.Module, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """`tensors`, by default the parameters, by their names in `module`; of padded tables only the
    rows of tokens, as views, but all rows of one that is divided among processes.
    """
    rows = token_rows(module)
    named = dict(module.named_parameters()) if tensors is None else tensors
    return {
        # a slice of a DTensor would gather it
        name: tensor[: rows[name]] if name in rows and not is_shared(tensor) else tensor
        for name, tensor in named.items()
    }


def count(module: nn.Module) -> int:
    """The number of trained values: shared parameters count once, spare rows do not count."""
    rows = token_rows(module)
    return sum(
        p.numel() // len(p) * rows[name] if name in rows else p.numel()
        for name, p in module.named_parameters()
    )
