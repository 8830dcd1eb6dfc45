"""A tiny model with an objective built around it, from the real config, and one batch whose
numbers are written out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Batch, Seq, Targets

V, MASK, B, T = 11, 4, 3, 6
SMALL = [
    "size=tiny",
    "size.width=8",
    "size.inner_width=16",
    "size.num_heads=2",
    "format.max_length=6",
    "model.embedding.dropout=0",
]
REAL = [6, 6, 4]


def made(*words: str, seed: int = 0) -> tuple[Any, Any, Any]:
    """(config, model, mix) of recipe electra with `words`; float64, every weight away from its
    start, in training.
    """
    cfg = compose("pretrain", "electra", [*SMALL, *words])
    model = build_model(cfg, vocab_size=V, seed=seed)
    mix = build_objective(cfg.objective, model, vocab_size=V, seed=cfg.seed)
    generator = torch.Generator().manual_seed(seed + 1)
    both = nn.ModuleList([model, mix]).double()
    for parameter in both.parameters():
        # spare rows of tables stay zeros
        real = V if parameter.shape[:1] == (64,) else len(parameter)
        with torch.no_grad():
            parameter[:real] += 0.3 * torch.randn(
                parameter[:real].shape, generator=generator, dtype=torch.float64
            )
    return cfg, model, mix


def one_batch() -> tuple[Batch, torch.Tensor]:
    """(rows of 6, 6 and 4 tokens with two hidden places each and spare slots, the text as it
    was).
    """
    generator = torch.Generator().manual_seed(7)
    text = torch.randint(5, V, (B, T), generator=generator)
    text[:, 0] = 2
    chosen = torch.tensor([[0, 2], [0, 4], [1, 1], [1, 5], [2, 2], [2, 3]])
    seen = text.clone()
    seen[chosen[:, 0], chosen[:, 1]] = MASK
    seen[0, 4] = text[0, 4]  # chosen, and shown as it is
    for row, real in enumerate(REAL):
        seen[row, real:] = text[row, real:] = 0
    index = torch.cat([chosen[:, 0] * T + chosen[:, 1], torch.zeros(2, dtype=torch.int64)])
    ids = torch.cat([text[chosen[:, 0], chosen[:, 1]], torch.full((2,), IGNORE)])
    counts = {"mlm": 6, "tokens": sum(REAL), "rows": B}
    batch = Batch(
        torch.arange(B),
        {"text": Seq(seen, torch.tensor(REAL))},
        {"mlm": Targets(index, ids, 6)},
        counts=counts,
        values={"draw": torch.arange(B) * 0x9E3779B97F4A7C1},
    )
    return batch, text
