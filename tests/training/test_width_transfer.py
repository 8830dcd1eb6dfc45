"""Whether a rate found at one width serves others by `train.lr_width`: the coordinate check (Yang
et al., 2022, arXiv:2203.03466, app. D.1).
"""

from __future__ import annotations

import math

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.nn.residual import Block
from plmctl.runs.own_rate import scale_rate

WIDTHS, SEEDS, UPDATES = (64, 128, 256), (0, 1), 5


def measure(width: int, seed: int, rate: float, initializer: str) -> list[float]:
    """The mean size of the output of each cell after some updates of Adam."""
    words = [
        "size=tiny", f"size.width={width}", f"size.inner_width={2 * width}", "size.num_heads=2",
        "model.embedding.dropout=0", f"model.initializer._target_=plmctl.nn.init.{initializer}",
        f"model.initializer.std={1.0 if initializer == 'fan_in' else 0.02}", "data.path=x",
    ]  # fmt: skip
    model = build_model(compose("pretrain", "gpt2", words), vocab_size=64, seed=seed)
    ids = torch.randint(4, 64, (4, 16), generator=torch.Generator().manual_seed(7))
    batch = Batch(torch.arange(4), {"text": Seq(ids, torch.full((4,), 16), full=True)})
    table = model.backbone.token_embedding.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    sizes: list[float] = []
    for block in (part for part in model.modules() if isinstance(part, Block)):
        block.cell.register_forward_hook(
            lambda cell, inputs, output: sizes.append(float(output.detach().abs().mean()))
        )
    for _ in range(UPDATES):
        logits = model(batch).last @ table.T  # type: ignore[operator]
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    sizes.clear()
    model(batch)
    return sizes


def find_slopes(initializer: str, reference: int | None) -> list[float]:
    """The slope of log(size) against log(width), for each cell, by least squares."""
    x = torch.tensor([math.log(width) for width in WIDTHS], dtype=torch.float64)
    rates = [scale_rate(1e-3, reference, width) for width in WIDTHS]
    sizes = torch.tensor(
        [
            [measure(width, seed, rate, initializer) for seed in SEEDS]
            for width, rate in zip(WIDTHS, rates, strict=True)
        ],
        dtype=torch.float64,
    ).mean(1)
    x = (x - x.mean())[:, None]
    return ((x * sizes.log()).sum(0) / (x * x).sum()).tolist()


def test_activations_keep_their_size_with_weights_by_fan_in() -> None:
    """Half the width at twice the rate: slopes within 0.1. With one rate they grow."""
    assert find_slopes("fan_in", WIDTHS[0]) == pytest.approx([0.0] * 4, abs=0.1)
    assert min(find_slopes("fan_in", None)) > 0.25


def test_with_one_deviation_for_all_widths_the_transfer_does_not_hold() -> None:
    """The first weights of GPT-2 grow with the width, whatever the rate is."""
    assert min(find_slopes("normal", WIDTHS[0])) > 0.25
