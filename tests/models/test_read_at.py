"""The last layer of some tokens alone gives the states that a whole pass gives."""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.models.base import Model
from plmctl.models.capabilities import read_at

V, B, T = 40, 3, 9
SMALL = [
    *("size=tiny", "size.width=16", "size.inner_width=24", "size.num_layers=3"),
    *("size.num_heads=2", f"format.max_length={T}"),
]
ALONE = {
    "post-norm": ("bert",),
    "pre-norm, causal": ("gpt2",),
    "rotary, windows by layer": ("modernbert",),
    "biases by distance": ("bert", "position=alibi"),
    "biases by learned buckets": ("bert", "position=relative_buckets"),
    "grouped keys": ("bert", "+model.stack.cells.a.kv_heads=1"),
    "cells in parallel": ("bert", "model.stack.layout='a|f*3'"),
    "own columns": ("bert", "model.stack.columns={a: [0, 0.5], f: [0.5, 1]}"),
    "one map for queries and keys": ("bert", "model.stack.cells.a.projections=shared"),
    "segments that choose a pattern": ("unilm",),
    "disentangled": ("deberta", "model.decoder_steps=0"),
    "norms on both sides": (
        "bert",
        "model.stack.residual._target_=plmctl.nn.residual.SandwichNorm",
    ),
}
WHOLE = {
    "positions before each layer": ("bert", "position=learned_by_layer"),
    "two streams of a reversible stack": (
        "bert",
        "model.stack.reversible=true",
        "model.stack.residual._target_=plmctl.nn.residual.PreNorm",
    ),
    "streams of its own": ("mpnet",),
    "neighbours in the last layer": (
        "bert",
        "model.stack.layout='af*2 cf'",
        "+model.stack.cells.c={_target_: plmctl.nn.cells.convolution.Convolution, _partial_: true,"
        " kernel: 3, hidden_width: 16, causal: false}",
    ),
}


def make(recipe: str, *words: str) -> Model:
    cfg = compose("pretrain", recipe, ["data.path=x", *SMALL, *words])
    model = build_model(cfg, vocab_size=V, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator).double()
    return model


def batch(length: tuple[int, ...] = (T, 6, 7)) -> Batch:
    ids = torch.randint(5, V, (B, T), generator=torch.Generator().manual_seed(2))
    segment = torch.tensor([0, 2, 3])[:, None].expand(-1, T)  # UniLM's modes
    seq = Seq(ids, torch.tensor(length), {"segment": segment}, full=min(length) == T)
    return Batch(torch.arange(B), {"text": seq})


def limit(words: tuple[str, ...], given: Batch) -> Batch:
    """The batch, with segments only where the recipe has as many."""
    if words[0] == "unilm":
        return given
    seq = given.text.with_tracks(segment=torch.zeros(B, T, dtype=torch.int64))
    return Batch(given.key, {"text": seq})


@torch.no_grad()
@pytest.mark.parametrize("length", [(T, T, T), (T, 6, 7)], ids=["full", "padded"])
@pytest.mark.parametrize("words", ALONE.values(), ids=ALONE.keys())
def test_equal_to_a_whole_pass(words, length) -> None:
    model, given = make(*words), limit(words, batch(length))
    index = torch.tensor([[0, 5], [3, 1], [4, 6]]) + T * torch.arange(B)[:, None]
    seen = []
    head = model.backbone.stack.list_layers()[-1][0].cell
    handle = head.register_forward_hook(lambda _, __, y: seen.append(y.shape[1]))
    found = read_at(model, given, index.flatten())
    handle.remove()
    assert seen == [2]
    expected = model(given).gather_words(index.flatten())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("words", WHOLE.values(), ids=WHOLE.keys())
def test_whole_where_others_would_be_missed(words) -> None:
    model, given = make(*words), limit(words, batch())
    index = torch.tensor([1, T + 2, 2 * T])
    some = getattr(model.backbone, "read_at", lambda *_: None)
    assert some(given, index) is None
    found, expected = read_at(model, given, index), model(given).gather_words(index)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("index", [[1], [1, 2, 2 * T], list(range(B * T))])
def test_whole_for_unequal_rows_and_for_most_tokens(index) -> None:
    model, given = make("bert"), limit(("bert",), batch())
    assert model.backbone.read_at(given, torch.tensor(index)) is None


@torch.no_grad()
def test_a_mask_decoder_is_read_by_heads_over_words() -> None:
    model, given = make("deberta"), limit(("deberta",), batch())
    index = torch.tensor([1, T + 2, 2 * T])
    words = model(given).streams["words"].flatten(0, 1)[index]
    torch.testing.assert_close(read_at(model, given, index), words, rtol=0, atol=1e-12)
