"""Tables with one row per token: padded in the running model, and nowhere else.

Matrix products are fastest where the vocabulary is a multiple of 64 (Karpathy, 2023, nanoGPT:
GPT-2's 50,257 rows made 50,304). Spare rows are zeros that no id looks up and no probability
reaches, so their gradient is 0 and they stay zeros. Whatever saves, counts, draws or exports
parameters sees them through `real`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MULTIPLE = 64


class Padded(nn.Module):
    """A module whose own parameters have one row for each of `vocab_size` tokens, and then
    perhaps spare ones.
    """

    vocab_size: int


class TokenTable(Padded, nn.Embedding):
    """ids [...] -> [..., W], by a table of `padded(vocab_size)` rows."""

    def __init__(self, *, vocab_size: int, width: int) -> None:
        super().__init__(
            padded(vocab_size), width, _weight=with_spare(torch.empty(vocab_size, width).normal_())
        )
        self.vocab_size = vocab_size


def padded(vocab_size: int) -> int:
    """The rows of a table for so many tokens: the next multiple of 64."""
    return -(-vocab_size // MULTIPLE) * MULTIPLE


def with_spare(values: Tensor, rows: int | None = None) -> Tensor:
    """`values` [V, ...] and zeros up to `rows`, by default up to `padded(V)`."""
    spare = (padded(len(values)) if rows is None else rows) - len(values)
    return F.pad(values, [0, 0] * (values.dim() - 1) + [0, spare])


def token_rows(module: nn.Module) -> dict[str, int]:
    """{parameter: how many of its rows are tokens} for the padded tables in `module`, under all
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
    """`tensors`, by default the parameters, by their names in `module`: of padded tables the
    rows of tokens only, as views.
    """
    rows = token_rows(module)
    named = dict(module.named_parameters()) if tensors is None else tensors
    return {
        name: tensor[: rows[name]] if name in rows else tensor for name, tensor in named.items()
    }


def count(module: nn.Module) -> int:
    """How many numbers are trained: its parameters, a shared one once, without spare rows."""
    return sum(tensor.numel() for tensor in real(module).values())
