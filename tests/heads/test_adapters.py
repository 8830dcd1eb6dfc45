"""Knowledge adapters: the sums by hand, how they start, several at once, weights of another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.adapters import KnowledgeAdapters
from plmctl.models.base import Model
from plmctl.nn.init import truncated_normal
from tests.models.test_encoder import encoder, perturbed

B, T, W, L = 2, 5, 8, 4


def make(**settings: Any) -> KnowledgeAdapters:
    own = {"adapters": {"facts": None}, "adapter_width": 6, "adapter_heads": 2, "dropout": 0.0}
    return KnowledgeAdapters(width=W, num_layers=L, **(own | settings))


def start(adapters: KnowledgeAdapters, seed: int = 0) -> KnowledgeAdapters:
    truncated_normal(adapters, std=0.02, generator=torch.Generator().manual_seed(seed))
    return adapters


@pytest.fixture
def hidden() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, T, W, generator=generator, dtype=torch.float64) for _ in range(L + 1)]


def test_the_sums_by_hand(hidden: list[torch.Tensor]) -> None:
    adapters = make(adapters={"facts": None, "syntax": None}, layers=[0, 2, 3])
    perturbed(adapters)
    adapters = adapters.double().eval()
    real = torch.ones(B, T, dtype=torch.bool)
    real[1, 3:] = False
    found = adapters(hidden, real)
    wanted = []
    for name in ("facts", "syntax"):
        own: Any = adapters.adapters[name]
        out = torch.zeros(B, T, W, dtype=torch.float64)
        for place, layer in enumerate((0, 2, 3)):
            entered = hidden[layer] + out
            x = own.down[place].linear(entered)
            for block in own.encoders[place]:
                seen, _ = block.self_attn(x, x, x, key_padding_mask=~real, need_weights=False)
                x = block.norm1(x + seen)
                h = torch.nn.functional.gelu(block.linear1(x))
                x = block.norm2(x + block.linear2(h))
            out = entered + own.up[place].linear(x)
        wanted.append(adapters.joins[name](torch.cat([hidden[-1], out], -1)))
    assert adapters.width == 2 * W
    torch.testing.assert_close(found[real], torch.cat(wanted, -1)[real], rtol=1e-9, atol=1e-9)


def test_at_the_start_an_adapter_adds_the_layers(hidden: list[torch.Tensor]) -> None:
    adapters = start(make(layers=[1, 3])).double().eval()
    out = adapters.adapters["facts"](adapters.pick(hidden), None)
    torch.testing.assert_close(out, hidden[1] + hidden[3], rtol=0, atol=1e-2)
    assert make().layers == [0, 2, 3]


def test_gradients_reach_adapters_alone() -> None:
    model = Model(backbone=encoder(), heads={"features": start(make())})
    states = [torch.randn(B, T, W, requires_grad=False) for _ in range(L + 1)]
    adapters: Any = model.heads["features"]
    adapters(states).sum().backward()
    assert all(parameter.grad is not None for parameter in adapters.parameters())


def save(folder: Path, adapters: KnowledgeAdapters) -> str:
    folder.mkdir(parents=True)
    tensors = {f"heads.features.{name}": x for name, x in adapters.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


def test_adapters_of_other_runs(tmp_path: Path) -> None:
    facts, syntax = start(make(), 1), start(make(adapters={"syntax": None}), 2)
    save(tmp_path / "facts" / "checkpoints" / "step-2", syntax)
    save(tmp_path / "facts" / "checkpoints" / "step-10", facts)
    paths = {"facts": str(tmp_path / "facts"), "trees": save(tmp_path / "syntax", syntax)}
    both = start(make(adapters={**paths, "new": None}), 3)
    for name, source in (("facts", facts.adapters["facts"]), ("trees", syntax.adapters["syntax"])):
        for key, tensor in source.state_dict().items():
            assert torch.equal(both.adapters[name].state_dict()[key], tensor)
    assert both.width == 3 * W
    with pytest.raises(DataError, match="other sizes or layers"):
        start(make(adapters=paths, adapter_width=4))
    with pytest.raises(DataError, match="no checkpoint with an adapter"):
        start(make(adapters={"facts": str(tmp_path)}))


def test_what_is_refused() -> None:
    assert list(make(adapters={}).adapters) == ["knowledge"]
    with pytest.raises(ConfigError, match="must divide"):
        make(adapter_heads=4)
    with pytest.raises(ConfigError, match="the embedding output"):
        make(layers=[9])
