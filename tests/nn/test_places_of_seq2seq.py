"""Sinusoids in both layouts and both series of frequencies, T5's buckets and bias, scaled
embeddings, first weights.
"""

from __future__ import annotations

import math

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.nn.embeddings import Embedding
from plmctl.nn.positions import NoPosition, RelativeBuckets, Sinusoidal
from plmctl.runs.contract.stand_in import TINY

OFFSETS = [-200, -128, -127, -64, -20, -8, -7, -1, 0, 1, 7, 8, 20, 127, 200]


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("frequencies", ["paper", "released"])
def test_sinusoids_are_those_of_a_loop(layout: str, frequencies: str) -> None:
    width, first = 10, 2
    found = Sinusoidal(width=width, layout=layout, frequencies=frequencies, first=first).embed(
        torch.zeros(1, 7, width), torch.arange(7)[None]
    )
    for p in range(7):
        for i in range(width // 2):
            rate = 10000 ** -(2 * i / width if frequencies == "paper" else i / (width // 2 - 1))
            place = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, width // 2 + i)
            for column, wave in zip(place, (math.sin, math.cos), strict=True):
                assert found[0, p, column].item() == pytest.approx(
                    wave((p + first) * rate), abs=1e-5
                )


@pytest.mark.parametrize(
    ("bidirectional", "wanted"),
    [
        (True, [15, 15, 15, 14, 10, 8, 7, 1, 0, 17, 23, 24, 26, 31, 31]),
        (False, [31, 31, 31, 26, 17, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_buckets_are_the_published_ones(bidirectional: bool, wanted: list[int]) -> None:
    assert (
        RelativeBuckets(num_heads=2, bidirectional=bidirectional)
        .bucket(torch.tensor(OFFSETS))
        .tolist()
        == wanted
    )


def test_the_bias_is_the_table_at_the_bucket_of_key_minus_query() -> None:
    torch.manual_seed(0)
    position = RelativeBuckets(num_heads=3, bidirectional=True, buckets=8, max_distance=10).double()
    q_places, k_places = torch.tensor([[4, 5, 6]]), torch.arange(7)[None]
    found = position.bias(torch.zeros(1, 3, 3, 4).double(), q_places, k_places)
    assert found is not None
    for h in range(3):
        for i, q in enumerate(q_places[0]):
            for k in range(7):
                assert found[0, h, i, k] == position.table.weight[position.bucket(k - q), h]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["position.layout=interleave"], "did you mean 'interleaved'"),
        (["position.frequencies=t2t"], "one of paper, released"),
        (["position=relative_buckets", "position.buckets=30"], "a multiple of 4"),
        (["position=relative_buckets", "position.max_distance=8"], "more than the 8 distances"),
    ],
)
def test_wrong_settings(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(
            compose("pretrain", "transformer", ["data.path=x", *settings]), vocab_size=8, vocab=TINY
        )


def test_scaled_embeddings_and_first_weights_keep_each_other_at_one() -> None:
    torch.manual_seed(0)
    embedding = Embedding(vocab_size=11, width=9, dropout=0.0, scaled=True)
    ids = torch.arange(5)[None]
    found = embedding(Seq(ids, torch.tensor([5]), full=True), NoPosition(), ids)
    torch.testing.assert_close(found, 3 * embedding.token.weight[ids])
    model = build_model(
        compose("pretrain", "transformer", ["data.path=x"]), vocab_size=3000, vocab=TINY, seed=0
    )
    table, width = model.backbone.token_embedding.weight, 128  # type: ignore[union-attr]
    assert table[:3000].std().item() == pytest.approx(width**-0.5, rel=0.01)
    assert not table[3000:].any()
    decoder = model.backbone.decoder.stack.blocks  # type: ignore[union-attr]
    bound = (6 / (4 * width)) ** 0.5
    for weight in (
        decoder.a[0].cell.qkv.weight,
        decoder.c[0].cell.q.weight,
        decoder.c[0].cell.kv.weight,
    ):
        assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert decoder.f[0].cell.up.weight.abs().max().item() == pytest.approx(
        (6 / (128 + 512)) ** 0.5, rel=0.01
    )


def test_first_weights_of_t5() -> None:
    model = build_model(
        compose("pretrain", "t5", ["data.path=x"]), vocab_size=3000, vocab=TINY, seed=0
    )
    blocks, width, head = model.backbone.decoder.stack.blocks, 128, 64  # type: ignore[union-attr]
    wanted = {
        model.backbone.token_embedding.weight[:3000]: 1.0,  # type: ignore[union-attr]
        blocks.a[0].cell.qkv.weight[:width]: (width * head) ** -0.5,
        blocks.a[0].cell.qkv.weight[width:]: width**-0.5,
        blocks.c[1].cell.q.weight: (width * head) ** -0.5,
        blocks.f[0].cell.up.weight: width**-0.5,
        blocks.f[0].cell.down.weight: 512**-0.5,
    }
    for weight, std in wanted.items():
        assert weight.std().item() == pytest.approx(std, rel=0.03)
    tables = [
        model.backbone.encoder.position.table.weight,
        model.backbone.decoder.position.table.weight,
    ]  # type: ignore[union-attr]
    assert tables[0] is not tables[1]
    assert torch.stack([table.detach() for table in tables]).std().item() == pytest.approx(
        width**-0.5, rel=0.3
    )
