"""Shared layers: ALBERT's published sizes by arithmetic and in `transformers`, gradients as sums
over layers, misfits named.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from plmctl.artifacts.assemble import build_model
from plmctl.cli import app as cli
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.runs.estimate import estimate

V, E, PLACES = 30_000, 128, 512
SIZES = {  # layers, width, heads, inner width; millions as in the paper's table 1
    "base": (12, 768, 12, 3072, 12),
    "large": (24, 1024, 16, 4096, 18),
    "xlarge": (24, 2048, 16, 8192, 60),
    "xxlarge": (12, 4096, 64, 16384, 235),
}
TOTALS = {"base": 11_813_810, "large": 17_847_474, "xlarge": 59_021_490, "xxlarge": 223_158_450}
PUBLISHED = [f"tokenizer.vocab_size={V}", f"format.max_length={PLACES}"]


def by_hand(width: int, inner: int, *, attentions: int = 1, feedforwards: int = 1) -> int:
    """Tables and their norm, the map to the width, the shared cells with their norms, pooler,
    masked tokens, sentence order.
    """
    embedding = (V + 2 + PLACES) * E + 2 * E + (E + 1) * width
    attention = 4 * (width + 1) * width + 2 * width
    feedforward = (width + 1) * inner + (inner + 1) * width + 2 * width
    heads = (width + 1) * width + ((width + 1) * E + 2 * E + V) + 2 * (width + 1)
    return embedding + attentions * attention + feedforwards * feedforward + heads


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", SIZES)
def test_published_sizes_have_their_parameters(size: str) -> None:
    layers, width, heads, inner, millions = SIZES[size]
    cfg = compose("pretrain", "albert", [f"size={size}", *PUBLISHED])
    assert (cfg.size.num_layers, cfg.size.width, cfg.size.num_heads, cfg.size.inner_width) == (
        layers,
        width,
        heads,
        inner,
    )
    assert sum(estimate(cfg)["parameters"].values()) == by_hand(width, inner) == TOTALS[size]
    assert abs(TOTALS[size] / 1e6 / millions - 1) < 0.06  # the paper rounds


@pytest.mark.parity
@pytest.mark.parametrize("size", SIZES)
def test_they_are_those_of_transformers(size: str) -> None:
    transformers = pytest.importorskip("transformers")
    layers, width, heads, inner, _ = SIZES[size]
    config = transformers.AlbertConfig(
        vocab_size=V,
        embedding_size=E,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=PLACES,
    )
    with torch.device("meta"):
        published = transformers.AlbertForPreTraining(config)
        published.tie_weights()
    assert sum(parameter.numel() for parameter in published.parameters()) == TOTALS[size]


@pytest.mark.parametrize(
    ("words", "attentions", "feedforwards"),
    [
        ([], 1, 1),
        (["~model.stack.share.f"], 1, 12),
        (["~model.stack.share.a"], 12, 1),
        (["model.stack.share=null"], 12, 12),
        (["model.stack.share={a:4,f:4}"], 4, 4),
    ],
    ids=["all", "attention", "ffn", "none", "groups"],
)
def test_ways_of_sharing(words: list[str], attentions: int, feedforwards: int) -> None:
    """The recipe's header names them."""
    cfg = compose("pretrain", "albert", ["size=base", *PUBLISHED, *words])
    with torch.device("meta"):
        made = count(build_model(cfg, vocab_size=V))
    assert made == by_hand(768, 3072, attentions=attentions, feedforwards=feedforwards)


def small(share: dict[str, int] | None) -> Model:
    words = [
        "size=tiny",
        "size.num_layers=4",
        "size.width=16",
        "size.inner_width=24",
        "model.embedding.table_width=8",
    ]
    words += ["model.embedding.dropout=0", "format.max_length=7"]
    cfg: Any = compose("pretrain", "albert", words)
    cfg = cfg.replace({"model.stack.share": share})
    return build_model(cfg, vocab_size=20, seed=0).double()


def copied(name: str, share: dict[str, int]) -> str:
    """The tensor of the shared model that stands for `name` of the one without sharing."""
    words = name.split(".")
    if words[1:3] != ["stack", "blocks"] or words[3] not in share:
        return name
    return ".".join([*words[:4], str(int(words[4]) * share[words[3]] // 4), *words[5:]])


@pytest.mark.parametrize("share", [{"a": 1, "f": 1}, {"a": 2, "f": 2}, {"a": 1}, {"f": 2}], ids=str)
def test_a_shared_tensor_gets_the_sum_of_the_gradients_of_its_layers(share: dict[str, int]) -> None:
    tied, free = small(share), small(None)
    generator = torch.Generator().manual_seed(1)
    weights = {
        k: v + 0.1 * torch.randn(v.shape, generator=generator, dtype=v.dtype)
        for k, v in tied.state_dict().items()
    }
    tied.load_state_dict(weights)
    free.load_state_dict({name: weights[copied(name, share)] for name in free.state_dict()})
    ids = torch.randint(5, 20, (3, 7), generator=generator)
    batch = Batch(torch.arange(3), {"text": Seq(ids, torch.tensor([7, 4, 6]))})
    weight = (
        torch.randn(3, 7, 16, generator=generator, dtype=torch.float64) * batch.text.real[..., None]
    )
    losses = []
    for model in (tied, free):
        losses.append((model(batch).last * weight).sum())
        losses[-1].backward()
    torch.testing.assert_close(losses[0], losses[1], atol=1e-12, rtol=1e-12)
    sums: dict[str, torch.Tensor] = {}
    for name, parameter in free.backbone.named_parameters(prefix="backbone"):
        home = copied(name, share)
        assert parameter.grad is not None
        sums[home] = sums[home] + parameter.grad if home in sums else parameter.grad.clone()
    found = {
        name: parameter.grad
        for name, parameter in tied.backbone.named_parameters(prefix="backbone")
    }
    assert found.keys() == sums.keys()
    assert any("blocks" in name and sums[name].abs().max() > 1e-3 for name in sums)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, sums[name], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("word", "letter"),
    [("share={a:3,f:4}", "a"), ("share.a=0", "a"), ("share.f=8", "f")],
    ids=["three", "none", "more"],
)
def test_copies_that_do_not_divide_the_layers_are_refused(word: str, letter: str) -> None:
    made = CliRunner().invoke(
        cli.make_app(), ["pretrain", "albert", "size=mini", f"model.stack.{word}", "--dry-run"]
    )
    assert made.exit_code == 2
    assert f"a divisor of the 4 '{letter}' in the layout: 1, 2, 4" in " ".join(made.stderr.split())
