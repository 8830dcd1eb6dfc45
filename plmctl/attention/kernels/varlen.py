"""Windows and packed documents without a mask, on CUDA: torch's `varlen_attn`.

The real tokens of all rows follow each other in a single sequence, and the numbers of the tokens at
which documents begin separate them. Padding is not computed, no mask is read, and no scores are
kept. Two rows, the first of two documents, the second of one and padding:

    a a a b b | c c c . .     ->     a a a b b c c c     begins at 0, 3, 5; ends at 8

Only bands can be had: a query sees all keys of its document, or those up to a distance back and
ahead. (Dao, 2023, arXiv:2307.08691; torch.nn.attention.varlen of torch 2.11 to 2.13.)
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.kernels.banded import Banded, HeadsPlan, StructuredPlan
from plmctl.attention.kernels.bands import Band
from plmctl.attention.kernels.base import Bias, Kernel, KernelPlan, changes_scores, refuse_dropout
from plmctl.attention.kernels.dense import Mask
from plmctl.attention.kernels.tiling import BLOCK, group_heads, share_of_blocks
from plmctl.attention.patterns.base import Pattern, make_row
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of

TYPES = (torch.bfloat16, torch.float16)
_MULTIPLE, _WIDEST = 8, 256  # columns of a head
_OLDEST = (8, 0)  # compute capability

VarlenAttention = Callable[..., Tensor]


def find_varlen() -> VarlenAttention:
    """torch's `varlen_attn`; ConfigError if this torch has none that takes windows."""
    try:
        from torch.nn.attention import varlen
    except ImportError:
        taken, found = set(), None
    else:
        taken, found = set(inspect.signature(varlen.varlen_attn).parameters), varlen.varlen_attn
    missing = [name for name in ("window_size", "scale") if name not in taken]
    if missing:
        lacks = f"has no varlen_attn with {' and '.join(missing)}"
        allowed = f"torch 2.11 or later; torch {torch.__version__} {lacks}"
        raise ConfigError("kernel", "varlen", allowed, fix="kernel=auto")
    return cast(VarlenAttention, found)


@dataclass(frozen=True, eq=False)
class Packing:
    """The tokens of a batch in one sequence of S documents."""

    index: Tensor | None  # [N] positions of the tokens among the B T of the batch; None: all
    begins: Tensor  # [S + 1] int32, the first token of each document, and N
    longest: int  # tokens of the longest document, or a few more
    contiguous: bool  # no document has padding between its tokens

    @classmethod
    def of(cls, seq: Seq, *, padding: bool, documents: bool) -> Packing | None:
        """The packing of `seq`. It is None if a document has two separate parts in a row, or if no
        row has a token.
        """
        rows, length = seq.ids.shape[:2]
        size = rows * length
        if padding and not seq.full:
            index = seq.real.expand(rows, -1).flatten().nonzero()[:, 0]
        else:
            index = torch.arange(size, device=seq.ids.device)
        if not len(index):
            return None
        name = index // length  # [N] of the document; in packed rows any two have different ones
        if documents:
            numbers = seq.tracks["document"].expand(rows, -1).flatten()[index]
            name = name * (length + 1) + numbers + 1
        first = torch.ones_like(name, dtype=torch.bool)
        first[1:] = name[1:] != name[:-1]
        begins = F.pad(first.nonzero()[:, 0], (0, 1), value=len(index))
        holes = (index.diff() > 1) & ~first[1:]
        apart = len(begins) - 1 - len(name.unique())
        longest, hole = torch.stack([begins.diff().max(), holes.any().long()]).tolist()
        if apart:
            return None
        # rounded, so that a compiled graph meets few numbers
        longest = min(length, -(-longest // BLOCK) * BLOCK)
        every = None if len(index) == size else index
        return cls(every, begins.to(torch.int32), longest, not hole)


@part_of("kernel")
class Varlen(Kernel):
    """Bands (all keys, the past, windows) of any rows on CUDA in bf16 or fp16, the banded kernel
    elsewhere: without dropout on probabilities and without position biases.

    Differs: a query that is padding gives 0; no loss reads it.
    """

    stores_scores = False
    devices: ClassVar[frozenset[str]] = frozenset({"cuda"})

    def __init__(self) -> None:
        self.elsewhere = Banded()
        self._seq: weakref.ref[Seq] | None = None  # whose packings are kept
        self._packings: dict[tuple[bool, bool], Packing | None] = {}

    @outside_graphs  # works on the values of tensors
    def plan(self, pattern: Pattern, seq: Seq, *, start: int = 0) -> KernelPlan:
        if start:  # only the new tokens of a growing text: few queries
            return Mask.of(pattern, seq, k_offset=start)
        active, groups, plans = pattern.simplify(seq), [], []
        for group, band in _find_bands(active, seq):
            if band is None:
                raise _refuse_pattern()
            groups.append((group, band))
        if seq.ids.device.type not in self.devices:
            return self.elsewhere.plan(pattern, seq)
        function = find_varlen()
        for _, band in groups:
            packing = self._pack(seq, band.padding, band.documents)
            if packing is None or (band.counts and not packing.contiguous):
                return self.elsewhere.plan(pattern, seq)
            plans.append(VarlenPlan(active, seq, band, packing, function))
        if len(plans) == 1:
            return plans[0]
        heads = [torch.tensor(group, device=seq.ids.device) for group, _ in groups]
        return HeadsPlan(active, seq, tuple(heads), tuple(plans))

    def _pack(self, seq: Seq, padding: bool, documents: bool) -> Packing | None:
        """The packing of a batch, made once for all layers."""
        if self._seq is None or self._seq() is not seq:
            self._seq, self._packings = weakref.ref(seq), {}
        key = (padding, documents)
        if key not in self._packings:
            self._packings[key] = Packing.of(seq, padding=padding, documents=documents)
        return self._packings[key]

    def problem(
        self, pattern: Pattern, length: int, *, bias: Bias | None, dropout: float
    ) -> ConfigError | None:
        if torch.cuda.is_available():
            find_varlen()
        row = make_row(pattern, torch.zeros(length, dtype=torch.long, device="cpu"))
        if any(band is None for _, band in _find_bands(pattern.simplify(row), row)):
            return _refuse_pattern()
        if dropout:
            return refuse_dropout("varlen", dropout)
        return None if bias is None else _refuse_bias()

    def share(self, pattern: Pattern, length: int) -> float:
        return share_of_blocks(pattern, length)

    def remark(self, pattern: Pattern, length: int) -> str:
        share = f"{self.share(pattern, length):.0%} of the scores are computed"
        where = "by torch's varlen_attn on CUDA in bf16 or fp16, elsewhere by the banded kernel"
        return f"kernel varlen: {share}, {where}"


@dataclass(frozen=True, eq=False)
class VarlenPlan(StructuredPlan):
    """One band in one batch."""

    band: Band
    packing: Packing
    function: VarlenAttention

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        q_positions: Tensor,
        k_positions: Tensor,
        bias: Bias | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        if dropout:
            raise refuse_dropout("varlen", dropout)
        if changes_scores(bias, q, q_positions, k_positions):
            raise _refuse_bias()
        (rows, heads, length, width), packing = q.shape, self.packing
        # as torch's attention does under autocast; a norm of queries gives fp32
        q, k = q.to(v.dtype), k.to(v.dtype)
        if v.is_cuda:
            _check_tensors(v)
        missing = -width % _MULTIPLE
        given = [self._gather(F.pad(x, (0, missing)) if missing else x) for x in (q, k, v)]
        y = self.function(
            *given,
            packing.begins,
            packing.begins,
            packing.longest,
            packing.longest,
            scale=width**-0.5,
            window_size=self.band.window,
        )
        y = y[..., :width]
        if packing.index is not None:
            y = y.new_zeros(rows * length, heads, width).index_copy(0, packing.index, y)
        return y.unflatten(0, (rows, length)).transpose(1, 2)

    def _gather(self, x: Tensor) -> Tensor:
        """[B, H, T, D] -> [N, H, D]."""
        x = x.transpose(1, 2).flatten(0, 1)
        return x if self.packing.index is None else x.index_select(0, self.packing.index)


def _find_bands(active: Pattern, seq: Seq) -> list[tuple[list[int], Band | None]]:
    """(numbers of heads, their band) of all heads that see the same; None: no band."""
    return [(group, Band.of(part.simplify(seq))) for group, part in group_heads(active)]


def _refuse_pattern() -> ConfigError:
    allowed = (
        "dense, banded or flex for this pattern: varlen computes bands alone (all tokens, the past,"
        " windows), without global tokens, gaps or blocks"
    )
    return ConfigError("kernel", "varlen", allowed, fix="kernel=auto")


def _refuse_bias() -> ConfigError:
    allowed = "dense or banded: the positions of this model change scores"
    return ConfigError("kernel", "varlen", allowed, fix="kernel=auto")


def _check_tensors(x: Tensor) -> None:
    """Raise ConfigError for a device, a type or a width [..., D] that the kernel does not have."""
    if x.dtype not in TYPES:
        kind = str(x.dtype).removeprefix("torch.")
        allowed = f"bf16 or fp16 with kernel=varlen, not {kind}"
        raise ConfigError("train.precision", ..., allowed, fix="kernel=auto")
    if x.shape[-1] > _WIDEST:
        allowed = f"at most {_WIDEST} columns of a head with kernel=varlen"
        raise ConfigError("size.head_width", x.shape[-1], allowed, fix="kernel=auto")
    if torch.cuda.get_device_capability(x.device) < _OLDEST:
        name = torch.cuda.get_device_name(x.device)
        allowed = f"dense, banded or flex on {name}: varlen needs compute capability 8.0"
        raise ConfigError("kernel", "varlen", allowed, fix="kernel=auto")
