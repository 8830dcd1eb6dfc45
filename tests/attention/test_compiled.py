"""A compiled backbone gives the same answer under every kernel that the CPU has."""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.runs.contract.stand_in import TINY

LENGTH = 1100  # the least of kernel=auto, and a few


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        ["pattern=full"],
        ["pattern=causal", "format.max_length=1100", "position=alibi"],
        # the kernel of the next one, too
        pytest.param(
            ["pattern=window", "pattern.reach=16", "kernel=banded"], marks=pytest.mark.slow
        ),
        ["pattern=longformer", "kernel=auto"],
    ],
    ids=lambda words: words[0],
)
def test_it_is_the_same_answer(words: list[str]) -> None:
    """The graph is captured; making code of it would take a minute and is torch's own matter."""
    small = [
        "size=tiny",
        "size.num_layers=1",
        "size.width=16",
        "size.num_heads=2",
        f"format.max_length={LENGTH}",
    ]
    cfg = compose("pretrain", "bert", [*small, "size.inner_width=32", *words])
    model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).eval()
    ids = torch.randint(0, TINY.size, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    length = torch.tensor([LENGTH, LENGTH - 300])
    batch = Batch(torch.arange(2), {"text": Seq(ids, length, {"segment": torch.zeros_like(ids)})})
    parameters = [p for p in model.backbone.stack.parameters() if p.requires_grad]
    found = []
    for compiled in (False, True):
        if compiled:
            torch.compiler.reset()
            model.backbone.compile(backend="eager")
        last = model(batch).last
        found.append([last, *torch.autograd.grad(last.square().sum(), parameters)])
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=1e-4)
