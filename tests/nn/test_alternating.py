"""ModernBERT's block from its parts: windows and bases that alternate from layer to layer, rotary
positions of neighbouring columns and of values, a first layer without norm.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.positions import Rotary
from plmctl.runs.contract.stand_in import TINY

SIZE = ["size.num_layers=4", "size.width=16", "size.num_heads=2", "size.inner_width=24"]
WINDOW, BASE = "pattern.reach=[null,2,2,null]", "position.base=[160000,10000,10000,160000]"


def make(*words: str, recipe: str = "modernbert", scale: float = 8.0) -> Any:
    spec: Any = compose("pretrain", recipe, ["data.path=x", *SIZE, *words])
    model = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def rows(length: int = 12, count: int = 1) -> Batch:
    ids = torch.arange(length * count).view(count, length) * 7 % (TINY.size - 5) + 5
    return Batch(torch.arange(count), {"text": Seq(ids, torch.full((count,), length))})


def turn(x: Tensor, base: float) -> Tensor:
    """Rotary positions by complex numbers (Su et al., 2021, eq. 12)."""
    heads, width = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()), x.shape[-1]
    rates = torch.tensor([base ** (-2 * i / width) for i in range(width // 2)], dtype=x.dtype)
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * rates
    return torch.view_as_real(heads * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def test_neighbouring_columns_turn_as_complex_numbers() -> None:
    q, k, v = torch.randn(3, 2, 3, 7, 10, dtype=torch.float64)
    places = torch.arange(7)[None]
    adjacent = Rotary(base=100.0, pairs="adjacent", values=True)
    for found, x in zip(adjacent.rotate(q, k, places, places), (q, k), strict=True):
        assert_close(found, turn(x, 100.0))
    assert_close(adjacent.turn_values(v, places), turn(v, 100.0))
    # columns half a head apart: the same after a permutation of columns
    order = torch.arange(10).view(2, 5).T.flatten()
    halves = Rotary(base=100.0).rotate(q, k, places, places)[0]
    assert_close(halves[..., order], turn(q[..., order], 100.0))
    assert Rotary().turn_values(v, places) is v


def test_maps_of_global_and_local_layers() -> None:
    model = make(WINDOW, BASE)
    maps = model(rows(), record=frozenset({"attention"})).recorded["attention"]
    far = (torch.arange(12)[:, None] - torch.arange(12)).abs() > 2
    for seen, local in zip(maps, (False, True, True, False), strict=True):
        assert bool(seen[..., far].any()) != local
        assert bool((seen[..., ~far] > 0).all())


def test_rows_within_the_window_with_one_base_make_all_layers_the_same() -> None:
    one = ["position.base=500", "pattern=full"]
    short, long = rows(3), rows(12)
    alike, plain = make(WINDOW, "position.base=[500,500,500,500]"), make(*one)
    assert_close(alike(short).last, plain(short).last)
    assert not torch.allclose(alike(long).last, plain(long).last)
    assert not torch.allclose(make(WINDOW, BASE)(short).last, plain(short).last)


def test_a_base_of_each_layer_is_that_of_the_layer() -> None:
    """Layers are compared one by one with models of a single base."""
    mixed = make("pattern=full", BASE)
    states = mixed(rows(), record=frozenset({"hidden"})).recorded["hidden"]
    for layer, base in enumerate((160000, 10000, 10000)):
        alone = make("pattern=full", f"position.base={base}")
        found = alone.backbone.read(
            rows().text, states[layer], first=layer, record=frozenset({"hidden"})
        )
        assert_close(found.recorded["hidden"][1], states[layer + 1])


def test_packed_rows_are_as_rows_alone() -> None:
    """Positions and windows begin again in every document of a row without padding."""
    model = make(WINDOW, BASE)
    long = rows(11)
    ids = long.text.ids
    tracks = {
        "document": torch.tensor([[0] * 4 + [1] * 7]),
        "position": torch.tensor([[*range(4), *range(7)]]),
    }
    packed = model(
        Batch(torch.zeros(1, dtype=torch.long), {"text": Seq(ids, long.text.length, tracks)})
    ).last
    for own in (slice(0, 4), slice(4, 11)):
        part = Seq(ids[:, own], torch.tensor([own.stop - own.start]))
        assert_close(
            packed[:, own], model(Batch(torch.zeros(1, dtype=torch.long), {"text": part})).last
        )


def test_the_first_layer_has_no_norm_and_nothing_a_bias() -> None:
    names = [name for name, _ in make().named_parameters()]
    assert [name for name in names if "norm_in" in name and ".a." in name] == [
        f"backbone.stack.blocks.a.{layer}.norm_in.weight" for layer in (1, 2, 3)
    ]
    assert [name for name in names if name.endswith("bias")] == ["heads.mlm.bias"]


def test_wrong_settings() -> None:
    with pytest.raises(ConfigError, match=r"position\.base.*4 numbers"):
        make("position.base=[1,2]")
    with pytest.raises(ConfigError, match=r"pairs='near'"):
        Rotary(pairs="near")
    with pytest.raises(ConfigError, match=r"base="):
        Rotary(base=0.0)
    local = ["model.stack.layout=bf*4", "pattern=full"]
    with pytest.raises(ConfigError, match=r"position\.values=True.*LocalAttention"):
        make(*local, "position.values=true")
