"""The Evolved Transformer's cells (So et al., 2019), made of small ones by layouts."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.branches import ConvolutionBranches
from plmctl.nn.cells.convolution import PlainConvolution, SeparableConvolution
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.cells.glu import GatedLinearUnit
from plmctl.nn.env import Streams
from plmctl.nn.norm import layer_norm
from plmctl.nn.stack import Stack
from tests.nn.evolved import decode, encode, take_blocks
from tests.nn.stacks import HEADS, W, make_env, make_input, make_stack, run_stack

LENGTH, SOURCE = 14, 5  # longer than the windows of the decoder's branches
NORM = partial(layer_norm, eps=1e-6)
SEPARABLE = partial(SeparableConvolution, width=W)


def make_branches(causal: bool, **parts: Any) -> partial[ConvolutionBranches]:
    return partial(ConvolutionBranches, width=W, norm=NORM, causal=causal, dropout=0.0, **parts)


ENCODER = {
    "u": partial(GatedLinearUnit, width=W),
    "v": make_branches(
        False,
        left=partial(PlainConvolution, width=W, kernel=1, outputs=4 * W, activation="relu"),
        right=partial(PlainConvolution, width=W, kernel=3, outputs=W // 2, activation="relu"),
        join=partial(SEPARABLE, kernel=9, outputs=W // 2),
    ),
    "f": partial(FeedForward, width=W, inner_width=4 * W, activation="relu"),
}
DECODER = {
    "m": partial(Attention, width=W, num_heads=2 * HEADS, dropout=0.0),
    "v": make_branches(
        True,
        left=partial(SEPARABLE, kernel=11, outputs=2 * W, activation="relu"),
        right=partial(SEPARABLE, kernel=7, outputs=W // 2),
        join=partial(SEPARABLE, kernel=7, outputs=W),
    ),
    "f": partial(FeedForward, width=W, inner_width=4 * W, activation="silu", norm=NORM),
}


def count(stack: Stack, letters: str) -> int:
    """Parameters of the cells of one layer, without the norms before them."""
    blocks = take_blocks(stack, 0)
    return sum(p.numel() for letter in letters for p in blocks[letter].cell.parameters())


@torch.no_grad()
def test_the_encoders_cell_is_the_loop() -> None:
    stack, x = make_stack("uvaf*2", more=ENCODER), make_input(length=LENGTH)
    full = make_env(LENGTH, source=LENGTH)  # every token sees all
    env = type(full)({"text": full.ops["source"]}, seq=full.seq)
    result, _ = run_stack(stack, x, env)
    for row, states in zip(result, x, strict=True):
        for number in range(2):
            states = encode(take_blocks(stack, number), states)
        torch.testing.assert_close(row, stack.final_norm(states), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("layout", ["m|cvacf*2", "mvaf*2"])
@torch.no_grad()
def test_the_decoders_cell_is_the_loop(layout: str) -> None:
    """With attention to a source in parallel with the first attention; and as a language model."""
    stack, x = make_stack(layout, more=DECODER), make_input(length=LENGTH)
    source = torch.randn(len(x), SOURCE, W, dtype=x.dtype) if "c" in layout else None
    env = make_env(LENGTH, source=SOURCE if "c" in layout else 0)
    result, _ = run_stack(stack, x, env, source=source)
    for number_of_row, (row, states) in enumerate(zip(result, x, strict=True)):
        read = None if source is None else source[number_of_row]
        for number in range(2):
            states = decode(take_blocks(stack, number), states, read)
        torch.testing.assert_close(row, stack.final_norm(states), rtol=1e-9, atol=1e-9)


def test_parameters_by_the_formulas() -> None:
    """2 d^2; 4 d^2, 3 d d/2, 9 4d and 4d d/2; 4 d^2; 8 d^2, each with its biases and norms."""
    d, encoder, decoder = W, make_stack("uvaf", more=ENCODER), make_stack("m|cvacf", more=DECODER)
    attention = 4 * d * d + 4 * d
    assert count(encoder, "u") == 2 * d * d + 2 * d
    branches = (4 * d * d + 4 * d) + (3 * d * d // 2 + d // 2)
    join = 9 * 4 * d + 4 * d * d // 2 + d // 2
    assert count(encoder, "v") == branches + 2 * 4 * d + join
    assert count(encoder, "a") == attention
    assert count(encoder, "f") == 8 * d * d + 4 * d + d
    left, right = 11 * d + 2 * d * d + 2 * d, 7 * d + d * d // 2 + d // 2
    join = 7 * 2 * d + 2 * d * d + d
    assert count(decoder, "v") == left + right + 2 * 2 * d + join
    assert count(decoder, "m") == count(decoder, "c") == attention
    assert count(decoder, "f") == 8 * d * d + 4 * d + d + 2 * 4 * d  # a second norm


def test_no_state_of_the_decoder_depends_on_later_tokens() -> None:
    stack, x = make_stack("mvaf*2", more=DECODER), make_input(length=LENGTH)
    result, _ = run_stack(stack, x, make_env(LENGTH))
    for t in range(LENGTH):
        (gradient,) = torch.autograd.grad(result[0, t].square().sum(), x, retain_graph=True)
        seen = gradient[0].abs().sum(-1) > 0
        assert seen.tolist() == [place <= t for place in range(LENGTH)]


def test_the_window_of_the_decoders_branches() -> None:
    """The tokens at t - 16 .. t: 10 before in the first stage, and 6 in the second."""
    x = torch.randn(1, 24, W, dtype=torch.float64, requires_grad=True)
    cell = make_stack("v", more=DECODER).blocks["v"][0].cell
    result = cell(Streams({"text": x}), make_env(24))
    (gradient,) = torch.autograd.grad(result[0, 20].sum(), x)
    seen = (gradient[0].abs().sum(-1) > 0).nonzero()[:, 0].tolist()
    assert seen == list(range(4, 21))


@cache
def make_model(recipe: str, *words: str) -> Model:
    tiny = ["size=tiny", "size.width=16", "size.inner_width=32", "data.path=x"]
    cfg = compose("pretrain", recipe, [*tiny, *words])
    return build_model(cfg, vocab_size=32, seed=0).double().eval()


def make_batch(ids: Tensor) -> Batch:
    lengths = torch.full((len(ids),), ids.shape[1])
    return Batch(torch.arange(len(ids)), {"text": Seq(ids, lengths, full=True)})


@torch.no_grad()
def test_a_language_model_token_by_token_equals_all_at_once() -> None:
    model = make_model("gpt2", "model.stack.layout=mvaf*2", "position=sinusoidal")
    ids = torch.randint(0, 32, (2, 20), generator=torch.Generator().manual_seed(0))
    whole = model(make_batch(ids)).last
    state = model.backbone.fresh_cache(make_batch(ids))
    for t in range(20):
        step = model(make_batch(ids[:, t : t + 1]), state)
        torch.testing.assert_close(step.last[:, 0], whole[:, t], rtol=1e-9, atol=1e-9)
        if t == 9:  # beams change places
            state.select(torch.tensor([1, 0]))
            ids, whole = ids.flip(0), whole.flip(0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["model.stack.layout=pf*2", "model.stack.cells.p.outputs=8"],
            r"model\.stack\.cells\.p\.outputs=8: null, or 16: the result is added to the stream",
        ),
        (
            ["model.stack.layout=vf*2", "model.stack.cells.v.join.outputs=40"],
            r"model\.stack\.cells\.v\.join=40: outputs of at most size\.width=16",
        ),
        (
            ["model.stack.layout=vf*2", "model.stack.cells.v.causal=false"],
            "reads earlier and later tokens, but Causal allows less",
        ),
    ],
)
def test_wrong_settings(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_model("gpt2", *words)


def test_an_encoder_takes_the_cells_by_their_letters() -> None:
    model = make_model("bert", "model.stack.layout=uvaf*2", "model.stack.sandwich=1")
    letters = "".join(step.letter for step in model.backbone.stack.steps)
    assert letters == "uvauvaff"
