"""LoRA and IA3 against the library `peft`: the losses of ten updates from one start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import plmctl
from plmctl.nn.peft.base import Method, fold
from plmctl.nn.peft.ia3 import LearnedScales
from plmctl.nn.peft.lora import LowRank
from plmctl.training.freezing import apply_freezing
from tests.interop.publishing import publish
from tests.interop.test_families import batch, inputs

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.parity

LAYER = "base_model.model.bert.encoder.layer"
FEED_FORWARD = r".*layer\.\d+\.output\.dense"


def lora(root: bool) -> tuple[Method, Any, dict[str, str]]:
    """Ours, theirs, and {a part of our names: a part of theirs}."""
    ours = LowRank(maps=["query", "value", "up"], rank=3, alpha=6.0, root=root)
    targets = ["query", "value", "intermediate.dense"]
    theirs = peft.LoraConfig(r=3, lora_alpha=6, target_modules=targets, use_rslora=root)
    names = {
        f"{cell}.lora.{side}.{name}": f"{module}.lora_{letter}.default.weight"
        for cell, name, module in (
            ("qkv", "query", "attention.self.query"),
            ("qkv", "value", "attention.self.value"),
            ("up", "up", "intermediate.dense"),
        )
        for side, letter in (("down", "A"), ("up", "B"))
    }
    return ours, theirs, names


def ia3() -> tuple[Method, Any, dict[str, str]]:
    ours = LearnedScales(maps=["key", "value"], inputs=["down"])
    targets = rf".*attention\.self\.(key|value)|{FEED_FORWARD}"
    theirs = peft.IA3Config(target_modules=targets, feedforward_modules=FEED_FORWARD)
    names = {
        "qkv.ia3.factors.key": "attention.self.key.ia3_l.default",
        "qkv.ia3.factors.value": "attention.self.value.ia3_l.default",
        "down.ia3.factors.down": "output.dense.ia3_l.default",
    }
    return ours, theirs, names


METHODS = {"lora": lambda: lora(False), "rslora": lambda: lora(True), "ia3": ia3}


def losses(model: nn.Module, read: Callable[[], Tensor], labels: Tensor) -> list[float]:
    """Of ten updates by AdamW."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-2)
    found = []
    for _ in range(10):
        loss = F.cross_entropy(read().flatten(0, 1), labels.flatten())
        found.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found


@pytest.mark.parametrize("name", METHODS)
def test_ten_updates_have_the_losses_of_peft(name: str, tmp_path: Path) -> None:
    method, config, names = METHODS[name]()
    base, folder = publish(tmp_path, "BertForMaskedLM")
    model = plmctl.load(folder).model.double()
    method.add_to(model.backbone)
    model.double()
    apply_freezing(model, trainable=[f"backbone.{part}" for part in method.trains(model.backbone)])
    theirs = peft.get_peft_model(base.double().eval(), config).double()
    own = dict(model.named_parameters())
    known = dict(theirs.named_parameters())
    generator = torch.Generator().manual_seed(3)
    copied = 0
    for part, other in names.items():
        letter = "a" if part.startswith("qkv") else "f"
        for layer in range(2):
            mine = own[f"backbone.stack.blocks.{letter}.{layer}.cell.{part}"]
            its = known[f"{LAYER}.{layer}.{other}"]
            value = torch.randn(mine.shape, generator=generator, dtype=torch.float64)
            start = 1 + 0.1 * value if name == "ia3" else 0.1 * value
            mine.data.copy_(start)
            its.data.copy_(start.reshape(its.shape))
            copied += mine.numel()
    trained = [weight for weight in theirs.parameters() if weight.requires_grad]
    assert sum(weight.numel() for weight in trained) == copied
    ids, mask = inputs([9, 9])
    given = batch(ids, mask)

    def read() -> Tensor:
        return model.heads["mlm"](model(given).last)  # type: ignore[no-any-return]

    labels = ids.flip(1)
    wanted = losses(theirs, lambda: theirs(ids, attention_mask=mask.long()).logits, labels)
    found = losses(model, read, labels)
    assert found == pytest.approx(wanted, rel=1e-8)
    assert found[-1] < 0.97 * found[0]
    before = read().detach()
    fold(model.backbone, [method])
    torch.testing.assert_close(read(), before, rtol=1e-9, atol=1e-9)
    merged = theirs.merge_and_unload()(ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(read(), merged, rtol=1e-7, atol=1e-7)
