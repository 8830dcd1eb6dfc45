"""A few tokens that see all tokens and that all tokens see."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.attention.patterns.base import Full, MaskMod, Not, Pattern, check_tracks, spread
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of


@part_of("pattern")
class Global(Pattern):
    """`g[b, q] or g[b, k]`, g the tokens that the track `global` marks. A task chooses them.
    Without it the first `tokens` of a row, or of each document of a packed row; 0: none, as in
    Longformer's pretraining. Where `tokens` is null, the track must be there.

    Together with a window, it lets distant tokens reach each other within two layers (Beltagy et
    al., 2020, arXiv:2004.05150, sec. 3.1; the "internal" global tokens of Zaheer et al., 2020,
    arXiv:2007.14062, sec. 2). Cells of `GlobalAttention` have projections of their own for them.
    """

    uses = frozenset({"tracks.position", "tracks.global"})
    static = False

    def __init__(self, *, tokens: int | None) -> None:
        if tokens is None:
            self.needs = frozenset({"tracks.global"})
        elif tokens < 0:
            allowed = "0 or more, the tokens at the beginning of a row; null: those of the task"
            raise ConfigError("tokens", tokens, allowed, fix="tokens=1")
        self.tokens = tokens

    def simplify(self, seq: Seq) -> Pattern:
        return self if self._names_some(seq) else Not(Full())

    def _names_some(self, seq: Seq) -> bool:
        return self.tokens != 0 or "global" in seq.tracks

    def find_global(self, seq: Seq) -> Tensor | None:
        return self._mark(seq) if self._names_some(seq) else None

    def _mark(self, seq: Seq) -> Tensor:
        marked = seq.tracks.get("global")
        if marked is not None:
            return marked > 0
        check_tracks(self, seq)
        position = seq.tracks.get("position")
        if position is None:
            position = torch.arange(seq.ids.shape[1], device=seq.ids.device)[None]
        return position < (self.tokens or 0)

    def blocks(self, seq: Seq, size: int) -> Tensor:
        marked = self._mark(seq)
        block = F.pad(marked, (0, -marked.shape[1] % size)).unflatten(1, (-1, size)).any(2)
        return block[:, :, None] | block[:, None, :]

    def predicate(self, seq: Seq) -> MaskMod:
        marked = self._mark(seq)

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            row = b if marked.shape[0] > 1 else torch.zeros_like(b)
            return marked[row, q] | marked[row, k]

        return allowed

    def thin(self, gap: int, seq: Seq) -> Pattern:
        if not self._names_some(seq):
            return Not(Full())
        marked = self._mark(seq).expand(seq.ids.shape[:2])
        return Marked(spread(marked.long(), gap, 0) > 0)


class Marked(Global):
    """`Global` for the tokens `marked [B, T]`."""

    def __init__(self, marked: Tensor) -> None:
        super().__init__(tokens=1)
        self.marked = marked

    def _mark(self, seq: Seq) -> Tensor:
        return self.marked
