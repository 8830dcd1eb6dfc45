"""torch's `varlen_attn` as it is documented, one document after the other, on any device; patterns
that it serves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.window import Window
from plmctl.attention.patterns.windows import windows
from tests.attention.test_banded import PATTERNS, H, T

BANDS = {
    **{name: PATTERNS[name] for name in ("window", "causal window", "right to left")},
    **{name: PATTERNS[name] for name in ("causal", "full", "one head full")},
    "of two windows": Window(reach=2) | Window(reach=6),
    "no global tokens": Window(reach=4) | Global(tokens=0),
    "wider than a row": Window(reach=T),
    "by head": windows(reach=[[2, 5, 5, 40]], num_heads=H),
    "only itself": Window(reach=0),
}


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """[N, H, D] queries, keys and values -> [N, H, D]."""
    assert return_aux is None
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert cu_seq_q[0] == 0
    assert cu_seq_q[-1] == len(query) == len(key) == len(value)
    assert query.shape[-1] % 8 == 0
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    left, right = window_size
    found = []
    for begin, end in zip(cu_seq_q[:-1].tolist(), cu_seq_q[1:].tolist(), strict=True):
        assert 0 < end - begin <= min(max_q, max_k)
        q, k, v = (x[begin:end].transpose(0, 1) for x in (query, key, value))  # [H, n, D]
        scores = q @ k.transpose(-1, -2) * scale
        ahead = torch.tensor([[j - i for j in range(end - begin)] for i in range(end - begin)])
        beyond = torch.zeros_like(ahead, dtype=torch.bool)
        if left >= 0:
            beyond |= ahead < -left
        if right >= 0:
            beyond |= ahead > right
        scores = scores.masked_fill(beyond, -torch.inf)
        found.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(found)
