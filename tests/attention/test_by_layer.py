"""Patterns that differ from layer to layer: what a token sees through one layer and through both,
by its gradient; every kernel; windows as a list; numbers of layers that do not fit.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.attention.patterns.base import Not, Pattern, make_row
from plmctl.attention.patterns.by_layer import ByLayer, alternating
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.global_tokens import Global
from plmctl.attention.patterns.remarks import remark_on
from plmctl.attention.patterns.window import Window
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.models.base import Model
from plmctl.runs.contract.contract import find_mismatches

LENGTH = 24
WORDS = [
    "size=tiny",
    "size.width=8",
    "size.num_heads=2",
    "size.inner_width=8",
    f"format.max_length={LENGTH}",
]


def make(*words: str) -> Model:
    cfg = compose("pretrain", "roberta", [*WORDS, *words])
    return build_model(cfg, vocab_size=20, seed=3).double().eval()


def offsets_seen(model: Model, token: int) -> list[list[int]]:
    """The offsets of the embeddings on which the state of `token` depends, after each layer."""
    ids = torch.randint(0, 20, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    batch = Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([LENGTH]), full=True)})
    x = model.backbone.embed(batch).detach().requires_grad_()
    states = model.backbone.encode(x, batch, record=frozenset({"hidden"})).recorded["hidden"]
    weights = torch.randn(8, generator=torch.Generator().manual_seed(1)).double()
    seen = []
    for state in states[1:]:
        (grad,) = torch.autograd.grad((state[0, token] * weights).sum(), x, retain_graph=True)
        seen.append((grad[0].abs().max(-1).values > 0).nonzero()[:, 0].sub(token).tolist())
    return seen


@pytest.mark.parametrize("kernel", ["dense", "banded"])
def test_windows_by_layer(kernel: str) -> None:
    block = ["kernel.block=4"] if kernel == "banded" else []
    words = ["pattern=window", "pattern.reach=[1,3]", f"kernel={kernel}", *block]
    first, both = offsets_seen(make(*words), 10)
    assert first == [-1, 0, 1]
    assert both == list(range(-4, 5))
    rising = make("pattern=window", "pattern.reach=[3,1]")
    assert offsets_seen(rising, 10)[0] == list(range(-3, 4))


def test_any_pattern_by_layer() -> None:
    window = "{_target_: plmctl.attention.patterns.window.Window, reach: 1}"
    dilated = "{_target_: plmctl.attention.patterns.dilated.Dilated, reach: 1, dilation: [4]}"
    model = make("pattern=by_layer", f"pattern.parts=[{window}, {dilated}]")
    first, both = offsets_seen(model, 10)
    assert first == [-1, 0, 1]
    assert both == [-5, -4, -3, -1, 0, 1, 3, 4, 5]


def test_layers_have_patterns_in_turn() -> None:
    """GPT-3: a token sees all earlier ones in even layers, and a band of them in odd ones."""
    pattern = compose("pretrain", "gpt3", [*WORDS, "size.num_layers=5"]).pattern
    pattern = build(pattern, path="pattern")
    row = make_row(pattern, torch.zeros(24, dtype=torch.long))
    for layer in range(5):
        own = pattern.at_layer(layer).dense(row)
        reach = 16 if layer % 2 else 24
        expected = [[0 <= q - k <= reach for k in range(24)] for q in range(24)]
        assert own is not None
        assert own[0, 0].tolist() == expected
    with pytest.raises(ConfigError, match=r"2 to 2 patterns: the stack has size\.num_layers=2"):
        alternating(parts=[Causal()] * 3, num_layers=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernel", ["kernel=dense", "kernel=banded"])
def test_equal_windows_are_one_window(kernel: str) -> None:
    def states(*words: str) -> Tensor:
        model = make("pattern=longformer", kernel, *words)
        ids = torch.arange(2 * LENGTH).view(2, LENGTH) % 20
        seq = Seq(ids, torch.tensor([LENGTH, 13]))
        return model(Batch(torch.arange(2), {"text": seq})).last

    one, more = states("pattern.parts.0.reach=2"), states("pattern.parts.0.reach=[2,2]")
    assert torch.equal(one, more)
    assert not torch.allclose(one, states("pattern.parts.0.reach=[2,3]"))


@pytest.mark.parametrize(
    ("pattern", "reach"),
    [
        (Window(reach=[1, 5]), (5, 5)),
        (Window(reach=[1, 5]) & Causal(), (5, 0)),
        (ByLayer(parts=[Window(reach=2), Causal()]), (None, 2)),
        (ByLayer(parts=[Window(reach=2), Dilated(reach=2, dilation=[3])]) & Causal(), (6, 0)),
    ],
    ids=["windows", "causal windows", "by layer", "causal by layer"],
)
def test_all_layers_together(pattern: Pattern, reach: tuple[Any, Any]) -> None:
    assert pattern.layers == 2
    assert pattern.reach() == reach
    seen = pattern.at_layer(0).dense(make_row(pattern, torch.zeros(12, dtype=torch.long)))
    whole = pattern.dense(make_row(pattern, torch.zeros(12, dtype=torch.long)))
    assert seen is not None
    assert whole is None or bool((seen <= whole).all())


def test_the_longest_window_decides_what_is_said() -> None:
    assert remark_on(Window(reach=[31, 31]), 32)
    assert remark_on(Window(reach=[3, 31]), 32).endswith("the longest here, in layer 2")
    assert remark_on(Window(reach=31) | Global(tokens=1), 32)  # a window wider than the row
    assert not remark_on(Window(reach=30) | Global(tokens=1), 32)


def test_numbers_of_layers_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"windows for 3 layers.*one for each layer, .* has 2"):
        make("pattern=window", "pattern.reach=[1,2,3]")
    with pytest.raises(ConfigError, match="the same number of layers in every part"):
        Window(reach=[1, 2]) & Window(reach=[1, 2, 3])
    with pytest.raises(ConfigError, match="the same in all layers"):
        Not(Window(reach=[1, 2]))
    with pytest.raises(ConfigError, match="a pattern for each layer"):
        ByLayer(parts=[Window(reach=[1, 2]), Causal()])
    with pytest.raises(ConfigError, match="a number, or one for each layer"):
        Window(reach=[])


def test_the_cost_is_the_mean_of_the_layers() -> None:
    def share(reach: str) -> float:
        model = make("pattern=window", f"pattern.reach={reach}", "kernel=banded", "kernel.block=4")
        ((_, row),) = model.backbone.stacks(LENGTH, 0)
        return float(row.keys or LENGTH)

    assert share("[1,8]") == pytest.approx((share("1") + share("8")) / 2)


def test_global_tokens_that_no_field_gives() -> None:
    words = ["pattern=longformer", "pattern.parts.1.tokens=null"]
    model = make(*words)
    format = SimpleNamespace(provides=frozenset({"text"}))
    (error,) = find_mismatches(
        format=format, noise={}, objectives={}, heads=(), model={"model": model.backbone}
    )
    assert "'tracks.global'" in str(error)
    assert "\n  fix: pattern.parts.1.tokens=1" in str(error)
    with pytest.raises(ConfigError, match=r"tokens=-1: 0 or more.*\n  fix: tokens=1"):
        Global(tokens=-1)
    strict = Window(reach=1) | Global(tokens=None)
    row = Seq(torch.zeros(1, 4, dtype=torch.long), torch.tensor([4]), full=True)
    with pytest.raises(
        UsageError, match=r"(?s)reads tracks\.global, which these rows do not have.*fix"
    ):
        strict.dense(row)
