"""The counting rule against the worked figures of the BERT and GPT-2 sizes."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import Cost, cost
from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.causal import Causal
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.data.loader import row_lengths
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from plmctl.noise.base import Chain
from plmctl.runs.contract.stand_in import TINY
from plmctl.runs.device_speed import spell_rate


def _cost(
    *,
    layout: str,
    width: int,
    heads: int,
    vocab_size: int,
    length: int,
    share: float,
    transform: bool,
) -> Cost:
    norm = partial(layer_norm, width=width, eps=1e-5)
    cells = {
        "a": partial(Attention, width=width, num_heads=heads, dropout=0.0),
        "f": partial(FeedForward, width=width, inner_width=4 * width, activation="gelu"),
    }
    with torch.device("meta"):
        backbone = Encoder(
            embedding=Embedding(vocab_size=vocab_size, width=width, dropout=0.0),
            position=Learned(width=width, max_length=1024),
            stack=Stack(layout=layout, cells=cells, residual=PostNorm(norm=norm, dropout=0.0)),
            pattern=Causal() if share == 1 else Full(),
        )
        table = backbone.token_embedding
        head = LMHead(
            width=width,
            vocab_size=vocab_size,
            token_embedding=table,
            tied=True,
            transform=transform,
            bias=False,
        )
        return cost(
            Model(backbone=backbone, heads={"lm": head}), length=length, predicted={"lm": share}
        )


@pytest.mark.parametrize(
    ("layout", "width", "heads", "vocab_size", "length", "share", "mflops"),
    [
        ("af*12", 768, 12, 30522, 128, 0.15, 545.4),
        ("af*12", 768, 12, 30522, 512, 0.15, 587.9),
        ("af*24", 1024, 16, 30522, 128, 0.15, 1878.8),
        ("af*12", 768, 12, 50304, 1024, 1.0, 854.7),
    ],
)
def test_training_flops_of_published_sizes(
    layout: str, width: int, heads: int, vocab_size: int, length: int, share: float, mflops: float
) -> None:
    found = _cost(
        layout=layout,
        width=width,
        heads=heads,
        vocab_size=vocab_size,
        length=length,
        share=share,
        transform=share < 1,
    )
    assert found.flops_per_token / 1e6 == pytest.approx(mflops, abs=0.06)
    if share == 1:
        assert found.flops_per_token * 579_000 / 989e12 == pytest.approx(0.5, abs=0.001)


def test_parameters_count_once_and_shared_blocks_compute_every_time() -> None:
    own = _cost(
        layout="af*4", width=64, heads=2, vocab_size=100, length=16, share=0.15, transform=True
    )
    shared = _cost(
        layout="af@4", width=64, heads=2, vocab_size=100, length=16, share=0.15, transform=True
    )
    assert own.flops_per_token == shared.flops_per_token
    assert own.parameters["stack"] == 4 * shared.parameters["stack"]
    assert own.parameters["embedding"] == 100 * 64
    assert own.parameters["heads.lm"] == 64 * 64 + 3 * 64
    assert own.total_parameters == sum(own.parameters.values())
    memory = own.memory(rows=2)
    assert memory["optimizer"] == 8 * own.total_parameters
    assert memory["activations"] > 0


def test_two_stacks_by_hand() -> None:
    """One layer a side, W = 8, F = 20, V = 30, S = 7, T = 5: every matrix once for each token
    that goes through it.
    """
    width, inner, vocabulary, source, target = 8, 20, 30, 7, 5
    settings = [
        "size.num_layers=1",
        "size.width=8",
        "size.num_heads=2",
        "size.inner_width=20",
        "data.path=x",
    ]
    with torch.device("meta"):
        model = build_model(
            compose("pretrain", "transformer", settings), vocab_size=vocabulary, vocab=TINY
        )
    found = cost(
        model,
        length=source,
        target_length=target,
        predicted={"seq2seq": target / (source + target)},
    )
    square = width * width
    encoder = source * (4 * square + 2 * width * inner) + 2 * source * source * width
    # k and v are made of the source
    decoder = target * (4 * square + 2 * square + 2 * width * inner) + source * 2 * square
    decoder += 2 * target * target * width + 2 * target * source * width
    head = target * width * vocabulary
    assert found.flops_per_token * (source + target) == pytest.approx(
        6 * (encoder + decoder + head), rel=1e-12
    )
    scores = 2 * width * (source * source + target * target + target * source)
    assert found.macs_per_token["attention scores"] * (source + target) == pytest.approx(
        scores, rel=1e-12
    )
    assert (
        found.total_parameters
        == sum(p.numel() for p in model.parameters()) - (64 - vocabulary) * width
    )


@pytest.mark.parametrize(
    ("recipe", "words", "tokens"),
    [
        ("transformer", ["format.max_length=20", "format.target_length=30"], (20, 30)),
        ("bart", ["format.max_length=20"], (20, 20)),
        ("bart", ["format.max_length=20", "noise=[text_infill]"], (20, 20)),
        ("mass", ["format.max_length=20", "noise.rate=0.3"], (20, 6)),
        ("mass", ["format.max_length=20", "noise.feed=true"], (20, 20)),
        ("t5", ["format.max_length=512"], (512, 114)),
        ("gpt", ["format.max_length=20"], (20, 0)),
    ],
)
def test_how_many_tokens_a_row_has_at_both_ends(
    recipe: str, words: list[str], tokens: tuple[int, int]
) -> None:
    cfg = compose("pretrain", recipe, ["data.path=x", *words])
    format = build(cfg.format, {"vocab": TINY}, path="format")
    noise = (
        Chain(list(build(cfg.noise, {"vocab": TINY}, path="noise").values())) if cfg.noise else None
    )
    assert row_lengths(format, noise) == tokens


def test_the_rate_of_a_slow_device_is_no_zero() -> None:
    assert [spell_rate(rate) for rate in (312e12, 1e11, 4.2e9)] == [
        "312.00 TFLOP/s",
        "0.10 TFLOP/s",
        "4.20 GFLOP/s",
    ]
