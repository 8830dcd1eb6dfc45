"""Mixing of tokens by a discrete Fourier transform (Lee-Thorp et al., 2021: FNet)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import part_of
from plmctl.core.problems import PartContext
from plmctl.nn.cells.base import Cell, CellFacts, RowSize, Work
from plmctl.nn.env import Env, Streams

FORBIDDEN = "rows of one document: the transform mixes all tokens of a row"


@part_of("cells")
class Fourier(Cell):
    """`y = Re(F_T x F_W)`, `F_N[j, k] = exp(-2 pi i j k / N)`: the transform over tokens and over
    columns, without weights.

    [B, T, W] -> [B, T, W], in float32 at least. Every token of the row counts, padding too, as in
    the released code. So a text has other states in a longer batch, and packed rows are refused. No
    dropout acts on the result. (Lee-Thorp et al., 2021, arXiv:2105.03824, sec. 3.2, eq. 3.)

    Args:
        width: W.
        apart: Padding and packed documents stay apart: each document is transformed as if it had
            its row to itself.
    """

    facts = CellFacts(computes="mixing", dropped=False, ahead=True, cached=False)

    def __init__(self, *, width: int, apart: bool = False) -> None:
        super().__init__()
        self.apart = apart
        self.facts = replace(self.facts, outputs=width)

    def problems(self, path: str, around: PartContext) -> Iterator[ConfigError]:
        """Packed rows, stated once for all cells of a letter."""
        provided = frozenset() if around.format is None else around.format.provides
        if self.apart or "tracks.document" not in provided or not path.endswith(".0.cell"):
            return
        setting = path.removesuffix(".0.cell").replace(".blocks.", ".cells.") + ".apart"
        yield ConfigError(setting, False, f"true, or {FORBIDDEN}", fix=f"{setting}=true")

    def work(self, row: RowSize) -> Work:
        """The cost of a fast transform of n = T W real numbers, 5/4 n log2 n multiply-adds (Cooley
        and Tukey, 1965). With `apart`, two products with matrices [T, T] replace it.
        """
        size = row.tokens * (self.facts.outputs or 0)
        if self.apart:
            return Work(0, 2.0 * row.tokens * size, kept=2.0 * row.tokens**2)
        return Work(0, 1.25 * size * math.log2(max(2, size)))

    def forward(self, streams: Streams, env: Env) -> Tensor:
        x = streams["text"]
        wide = x if x.dtype == torch.float64 else x.float()
        with torch.autocast(x.device.type, enabled=False):
            if self.apart and (documents := env.documents) is not None:
                return _transform_apart(wide, documents).to(x.dtype)
            if not self.apart and env.seq is not None and "document" in env.seq.tracks:
                raise UsageError(f"Fourier with apart=false reads {FORBIDDEN}")
            return torch.fft.fftn(wide, dim=(1, 2)).real.to(x.dtype)


def _transform_apart(x: Tensor, documents: Tensor) -> Tensor:
    """The transform of each document; `documents [B, T]` has their numbers.

    With a + ib = x F_W and F_T = c - is, the real part is c a + s b.
    """
    same = documents[:, :, None] == documents[:, None]  # [B, T, T]
    length, place = same.sum(-1), same.tril(-1).sum(-1)
    step = (place[:, :, None] * place[:, None]) % length[:, :, None]
    angle = step.to(x.dtype) * (2 * math.pi / length[:, :, None].to(x.dtype))
    columns = torch.fft.fft(x, dim=-1)
    return (angle.cos() * same) @ columns.real + (angle.sin() * same) @ columns.imag
