"""Whole models on CUDA whose attention is computed by the kernels made for it."""

from __future__ import annotations

import pytest
import torch

from plmctl.core.batch import Batch, Seq
from tests.attention.test_banded import B, rows
from tests.attention.test_gpu_kernels import LENGTH, on_gpu
from tests.attention.test_varlen import small_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("kernel", ["varlen", "flex"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("words", [[], ["pattern=window", "pattern.reach=[30,90,30]"]], ids=str)
def test_it_is_the_dense_answer(kernel: str, compiled: bool, words: list[str]) -> None:
    """Under autocast, in batches of several sizes: none breaks a compiled graph."""
    found = []
    for chosen in (kernel, "dense"):
        torch.compiler.reset()
        model = small_model(
            *words, "size.width=64", f"format.max_length={LENGTH}", kernel=chosen
        ).cuda()
        if compiled and chosen == kernel:
            model.backbone.compile()
        for seed, (padded, packed) in enumerate([(False, True), (True, True), (True, False)]):
            seq = on_gpu(rows(padded=padded, packed=packed, length=LENGTH))
            ids = torch.randint(0, 20, (B, LENGTH), generator=torch.Generator().manual_seed(seed))
            batch = Batch(
                torch.arange(B).cuda(),
                {"text": Seq(ids.cuda(), seq.length, seq.tracks, full=seq.full)},
            )
            with torch.autocast("cuda", torch.bfloat16):
                last = model(batch).last.float() * seq.real[..., None]
            used = list(model.backbone.stack.parameters())
            grads = torch.autograd.grad(last.square().mean(), used)
            found.append((chosen, [last.detach(), *grads]))
    half = len(found) // 2
    for (_, own), (_, dense) in zip(found[:half], found[half:], strict=True):
        for a, b in zip(own, dense, strict=True):
            scale = float(b.abs().max().clamp(min=1e-3))
            torch.testing.assert_close(a.float() / scale, b.float() / scale, atol=5e-2, rtol=0)
