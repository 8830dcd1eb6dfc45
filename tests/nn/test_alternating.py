"""ModernBERT's block from its parts: windows and bases that alternate from layer to layer, rotary
positions of neighbouring columns and of values, a first layer without norm.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.heads.classify import Classify
from plmctl.heads.rows import POOLINGS
from plmctl.nn.positions import Rotary
from plmctl.runs.contract.stand_in import TINY
from plmctl.tasks.layouts.word_in_context import WordInContextRows
from plmctl.tasks.transform import pool_rows

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


def test_fewer_heads_of_keys_are_as_copies_of_their_maps() -> None:
    """Each head of keys serves the heads of queries next to each other."""
    grouped = make("size.num_heads=4", "model.stack.cells.a.kv_heads=2", "pattern=full")
    plain = make("size.num_heads=4", "pattern=full")
    weights = dict(grouped.named_parameters())
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if name.endswith("qkv.weight"):
                q, kv = (weights[name.replace("qkv", part)] for part in ("q", "kv"))
                copies = kv.view(2, 2, 4, 16).repeat_interleave(2, 1).flatten(0, 2)
                parameter.copy_(torch.cat([q, copies]))
            else:
                parameter.copy_(weights[name])
    assert_close(grouped(rows(count=2)).last, plain(rows(count=2)).last)
    assert sum(p.numel() for p in grouped.parameters()) < sum(p.numel() for p in plain.parameters())
    for words in (["kv_heads=3"], ["kv_heads=1", "projections=shared"]):
        with pytest.raises(ConfigError, match="kv_heads"):
            make(*(f"model.stack.cells.a.{word}" for word in words), "size.num_heads=4")


def test_decisions_for_every_token_are_averaged_over_those_of_the_row() -> None:
    states, kept = torch.randn(2, 5, 4), torch.tensor([5, 3])
    batch = Batch(
        torch.arange(2),
        {"text": Seq(torch.zeros(2, 5, dtype=torch.long), kept)},
        anchors=torch.tensor([[0, 0], [1, 0]]),
    )
    head = Classify(width=4, num_classes=3, dropout=0.0, dense=True, late=True)
    found = head(POOLINGS["late"].read(states, batch))
    plain = Classify(width=4, num_classes=3, dropout=0.0, dense=True)
    plain.load_state_dict(head.state_dict())
    wanted = [plain(states[row, : kept[row]]).mean(0) for row in range(2)]
    assert_close(found, torch.stack(wanted))


def test_late_decisions_are_refused_where_rows_are_added_or_widened() -> None:
    with pytest.raises(ConfigError, match=r"row_pooling='late'.*behind it"):
        WordInContextRows().requires(SimpleNamespace(pooling="late", sees_later=True))
    batch = rows(4)
    group = torch.zeros(1, dtype=torch.long)
    added = replace(batch, values={"group": group}, anchors=torch.tensor([[0, 0]]))
    with pytest.raises(ConfigError, match=r"row_pooling='late'.*added up"):
        pool_rows(SimpleNamespace(pooling="late"), make().float(), added, together=True)
