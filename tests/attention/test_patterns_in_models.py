"""A model whose layers see by different patterns: each layer computes what it would alone, also
token by token, stored or computed again, and under every kernel.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.attention.kernels.banded import Banded
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.op import AttentionOp
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.by_layer import ByLayer
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.sparse_transformer import sparse_transformer
from plmctl.attention.patterns.window import Window
from plmctl.attention.patterns.windows import windows
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.models.remarks import remark_on_model
from plmctl.nn.env import Env, Streams
from plmctl.runs.contract.stand_in import TINY

LENGTH, HEADS = 40, 2
PARTS: list[Pattern] = [
    Causal() & Window(reach=2),
    windows(reach=3, dilation=[[1, 4]], num_heads=HEADS, causal=True),
    Causal(),
]
SMALL = [
    *("size=tiny", "size.num_layers=3", "size.width=16", "size.inner_width=32"),
    *(f"size.num_heads={HEADS}", f"format.max_length={LENGTH}"),
]


def model_of(*words: str) -> Model:
    cfg = compose("pretrain", "gpt2", [*SMALL, *words])
    model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).eval()
    return model.double()


def with_pattern(model: Model, pattern: Pattern, kernel: Kernel) -> Encoder:
    """The backbone with its weights, another pattern and another kernel."""
    backbone = model.backbone
    assert isinstance(backbone, Encoder)
    other = Encoder(
        embedding=backbone.embedding,
        position=backbone.position,
        stack=backbone.stack,
        pattern=pattern,
        attention_kernel=kernel,
    )
    return other.eval()


def batch() -> Batch:
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(0, TINY.size, (2, LENGTH), generator=g)
    return Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([LENGTH, LENGTH - 9]))})


@pytest.mark.parametrize("kernel", [Dense(), Banded(block=8)], ids=["dense", "banded"])
def test_a_layer_computes_what_it_would_alone(kernel: Kernel) -> None:
    model = model_of()
    text, stack = batch().text, model.backbone.stack
    found = with_pattern(model, ByLayer(parts=PARTS), kernel)(batch(), record={"hidden"})
    places = torch.arange(LENGTH)[None]
    for number, part in enumerate(PARTS):
        alone = with_pattern(model, part, Dense())
        op = AttentionOp(alone.pattern, alone.position, Dense()).bind(text, positions=places)
        before = Streams({"text": found.recorded["hidden"][number]})
        after = stack.layer(number, before, Env({"text": op}, seq=text))["text"]
        after = stack.final_norm(after) if number == 2 else after
        torch.testing.assert_close(found.recorded["hidden"][number + 1], after)


def test_token_by_token_it_is_the_same() -> None:
    model = model_of()
    backbone = with_pattern(model, ByLayer(parts=PARTS), Banded(block=8))
    text = batch().text
    whole = Seq(text.ids, torch.full((2,), LENGTH), full=True)
    expected = backbone(Batch(torch.arange(2), {"text": whole})).last
    cache = backbone.fresh_cache(batch())
    read = []
    for place in range(LENGTH):
        one = Seq(text.ids[:, place : place + 1], torch.ones(2, dtype=torch.long), full=True)
        read.append(backbone(Batch(torch.arange(2), {"text": one}), cache).last)
    torch.testing.assert_close(torch.cat(read, 1), expected)


def gradients(model: Model) -> list[Tensor]:
    out = model(batch()).last
    return list(torch.autograd.grad(out.square().sum(), list(model.backbone.stack.parameters())))


BY_LAYER = ["pattern=windows", "pattern.reach=[1,5,20]", "pattern.causal=true"]


def test_layers_that_run_again_see_by_the_same_patterns() -> None:
    model = model_of(*BY_LAYER)
    expected = gradients(model)
    model.backbone.stack.checkpointed = True
    torch.testing.assert_close(gradients(model), expected)


def test_the_gradient_of_a_reversible_stack_is_the_slope() -> None:
    model = model_of(*BY_LAYER, "model.stack.reversible=true")
    stack, eps = model.backbone.stack, 1e-5
    weight = stack.block(stack.steps[0]).cell.qkv.weight
    parameters = list(stack.parameters())
    found = gradients(model)[[p is weight for p in parameters].index(True)]
    at = divmod(int(found.abs().argmax()), found.shape[1])

    def run(change: float) -> float:
        with torch.no_grad():
            weight[at] += change
            total = float(model(batch()).last.square().sum())
            weight[at] -= change
        return total

    assert float(found[at]) == pytest.approx((run(eps) - run(-eps)) / (2 * eps), rel=1e-4)


def test_other_numbers_of_heads_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"windows for 3 heads'?: one for each of the 2 heads of"):
        model_of("pattern=dilated", "pattern.dilation=[1,2,3]")


def test_the_kernel_of_each_layer_is_named() -> None:
    words = ["pattern=windows", "pattern.reach=[1,30,1]", "kernel=banded", "kernel.block=8"]
    cfg = compose("pretrain", "gpt2", [*SMALL, *words, "pattern.causal=true"])
    model = model_of(*words, "pattern.causal=true")
    said = remark_on_model(model.backbone, Full(), cfg.format.max_length)["attention"]
    assert re.fullmatch(
        r"kernel banded: \d+% of the scores are computed, in layers 1, 3;"
        r" kernel banded: \d+% of the scores are computed, in layer 2",
        said,
    )


def test_transformer_xl_has_one_pattern_for_all_layers() -> None:
    cfg = compose("pretrain", "transformer_xl", ["size=tiny", "pattern=sparse_transformer"])
    with pytest.raises(ConfigError, match="the same in all layers"):
        build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0)


def test_an_attention_map_is_that_of_its_layer() -> None:
    pattern = sparse_transformer(
        variant="strided", stride=5, factors="layers", num_heads=HEADS, num_layers=2
    )
    model = model_of("size.num_layers=2")
    backbone = with_pattern(model, pattern, Banded(block=8))
    maps = backbone(batch(), record={"attention"}).recorded["attention"]
    for number, seen in enumerate(maps):
        allowed = backbone.pattern.at_layer(number).dense(batch().text)
        assert allowed is not None
        assert torch.equal(seen > 0, allowed.expand_as(seen))
