"""The LSTM with projection and clipping (Sak et al., 2014; Peters et al., 2018)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.nn.starting import Starting

State = tuple[Tensor, Tensor]  # h [B, P], c [B, H]


class ProjectedLSTM(Starting):
    """`c' = clip(f c + i tanh(g)); h' = clip(W_p (o tanh(c')))`, [B, T, W] -> [B, T, P]; `clip(x)`
    keeps x in [-clip, clip].

    i, f, o are sigmoids, and g a sum, of `W x_t + U h + b`; the weights are torch's, with both its
    biases in one. The next step reads the clipped and projected output (Sak et al., 2014,
    arXiv:1402.1128, sec. 3; allenai/bilm-tf training.py: clip 3). Without `clip` it is torch's LSTM
    with `proj_size`, which no CPU runs faster than this loop. First weights as there: matrices
    U(-k, k), k^2 = 6 / (rows + columns), biases 0 and 1 for f (published: the 1 is added when it
    runs).
    """

    def __init__(
        self, *, width: int, hidden_width: int, projected_width: int, clip: float | None
    ) -> None:
        super().__init__()
        if clip is not None and clip <= 0:
            raise ConfigError("clip", clip, "above 0, or null for none")
        self.width = width
        self.hidden_width = hidden_width
        self.projected_width = projected_width
        self.clip = clip
        self.input = nn.Linear(width, 4 * hidden_width)
        self.recurrent = nn.Linear(projected_width, 4 * hidden_width, bias=False)
        self.projection = nn.Linear(hidden_width, projected_width, bias=False)

    def start(self, generator: Generator) -> None:
        # one matrix in the published code
        both = (6 / (self.width + self.projected_width + 4 * self.hidden_width)) ** 0.5
        nn.init.uniform_(self.input.weight, -both, both, generator=generator)
        nn.init.uniform_(self.recurrent.weight, -both, both, generator=generator)
        nn.init.xavier_uniform_(self.projection.weight, generator=generator)
        nn.init.zeros_(self.input.bias)
        nn.init.ones_(self.input.bias[self.hidden_width : 2 * self.hidden_width])

    def forward(
        self, x: Tensor, state: State, *, keep: Tensor | None = None, real: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Read the rows from `state` on.

        Args:
            keep: [B, T] False where the memory is cleared before a token.
            real: [B, T] False at padding, which changes nothing and gets zeros.

        Returns:
            (states of all tokens [B, T, P], the state after them). Memory and clipped values keep
                the type of the weights; matrix products may be narrower (autocast).
        """
        (h, c), dtype = state, self.input.weight.dtype
        states = []
        for t, gates in enumerate(self.input(x).unbind(1)):
            if keep is not None:
                h, c = h * keep[:, t, None], c * keep[:, t, None]
            next_h, next_c = self._step(gates, h, c.to(dtype))
            if real is None:
                h, c = next_h, next_c
            else:
                here = real[:, t, None]
                h, c, next_h = (
                    torch.where(here, next_h, h),
                    torch.where(here, next_c, c),
                    next_h * here,
                )
            states.append(next_h)
        return torch.stack(states, 1), (h, c)

    def _step(self, gates: Tensor, h: Tensor, c: Tensor) -> State:
        i, f, g, o = (gates + self.recurrent(h)).to(c.dtype).chunk(4, -1)
        c = self._clip(f.sigmoid() * c + i.sigmoid() * g.tanh())
        return self._clip(self.projection(o.sigmoid() * c.tanh()).to(c.dtype)), c

    def _clip(self, x: Tensor) -> Tensor:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)
