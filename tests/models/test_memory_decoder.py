"""A decoder with spans and a memory of rows (Sukhbaatar et al., 2019): rows behind each other
against one long row, memory that is as long as the spans, its costs in the loss, bad settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.models.base import Model
from plmctl.models.memory_decoder import RowMemory
from plmctl.nn.spans import AdaptiveSpan, DynamicSpan
from plmctl.nn.stack import checkpoint_stacks
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY

LENGTH, ROWS, SPAN, RAMP = 8, 2, 100, 5
SMALL = [
    "size=tiny",
    "size.width=8",
    "size.num_heads=2",
    "size.inner_width=12",
    f"format.max_length={LENGTH}",
    f"model.stack.cells.a.span={SPAN}",
    f"model.stack.cells.a.ramp={RAMP}",
    "data.path=x",
]
DYNAMIC = ("model.stack.cells.a.dynamic=true", "model.stack.cells.a.start=0.1")


def make_model(*shares: list[float], more: tuple[str, ...] = ()) -> Model:
    """`shares`: of the span, by layer and head."""
    spec = compose("pretrain", "adaptive_span", [*SMALL, *more])
    model = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    soft = [part for part in model.modules() if isinstance(part, AdaptiveSpan)]
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.3 * noise)
        given = shares or [[0.05, 0.095], [0.295, 0.01]][: len(soft)]
        for part, share in zip(soft, given, strict=True):
            part.share.copy_(torch.tensor(share))
    return model


def draw(parts: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(5, TINY.size, (ROWS, parts * LENGTH), generator=generator)


def make_batch(ids: Tensor, continues: list[bool] | None = None) -> Batch:
    seq = Seq(ids, torch.full((len(ids),), ids.shape[1]), full=True)
    values = {} if continues is None else {"continues": torch.tensor(continues)}
    return Batch(torch.arange(len(ids)), {"text": seq}, values=values)


@torch.no_grad()
def read_in_order(model: Model, ids: Tensor, state: Any) -> tuple[Tensor, RowMemory]:
    states = []
    for number, part in enumerate(ids.split(LENGTH, 1)):
        hidden = model(make_batch(part, [number > 0] * len(ids)), state)
        state = hidden.state
        states.append(hidden.last)
    return torch.cat(states, 1), state


def test_rows_behind_each_other_are_one_long_row() -> None:
    model, ids = make_model(), draw(9)
    backbone: Any = model.backbone
    states, memory = read_in_order(model, ids, backbone.fresh_state(ROWS, ids.device))
    with torch.no_grad():
        whole = model(make_batch(ids))
    torch.testing.assert_close(states, whole.last, rtol=1e-9, atol=1e-9)
    # each layer keeps what its longest head sees, and 64 tokens more
    assert [layer.shape[1] for layer in memory.layers] == [9 * LENGTH] * 2
    longer, memory = read_in_order(model, draw(20), backbone.fresh_state(ROWS, ids.device))
    assert [layer.shape[1] for layer in memory.layers] == [10 + RAMP + 64, 30 + RAMP + 64]
    with torch.no_grad():
        torch.testing.assert_close(longer, model(make_batch(draw(20))).last, rtol=1e-9, atol=1e-9)


def test_dynamic_spans_remember_all_that_a_later_token_may_see() -> None:
    model, ids = make_model(more=DYNAMIC), draw(20)
    backbone: Any = model.backbone
    states, memory = read_in_order(model, ids, backbone.fresh_state(ROWS, ids.device))
    assert [layer.shape[1] for layer in memory.layers] == [SPAN] * 2
    with torch.no_grad():
        whole = model(make_batch(ids))
    torch.testing.assert_close(states, whole.last, rtol=1e-9, atol=1e-9)
    spans = [notes[0] for notes in whole.noted.values()]
    assert len(spans) == 2
    # some see farther than a row, some not; none as far as they may
    assert all(LENGTH < float(part[:, 1].max()) < SPAN - RAMP for part in spans)


def test_a_short_memory_cuts_spans_and_a_new_text_has_none() -> None:
    model, ids = make_model([1.0, 1.0], [0.2, 0.2]), draw(6)
    backbone: Any = model.backbone
    short, memory = read_in_order(model, ids, backbone.fresh_state(ROWS, ids.device, 10))
    assert {layer.shape[1] for layer in memory.layers} == {10}
    long, memory = read_in_order(model, ids, backbone.fresh_state(ROWS, ids.device))
    assert torch.equal(short[:, : LENGTH + 3], long[:, : LENGTH + 3])
    assert not short[:, -1].allclose(long[:, -1])
    with torch.no_grad():
        fresh = model(make_batch(ids[:, :LENGTH], [False, True]), memory)
        alone = model(make_batch(ids[:1, :LENGTH]))
    torch.testing.assert_close(fresh.last[:1], alone.last, rtol=1e-9, atol=1e-9)
    assert fresh.state.length.tolist() == [LENGTH, 7 * LENGTH]
    assert set(fresh.recorded) == set()
    with torch.no_grad():
        recorded = model(make_batch(ids[:, :LENGTH], [False, True]), memory, frozenset({"hidden"}))
    assert len(recorded.recorded["hidden"]) == 3


def test_a_distance_in_memory_is_that_of_the_text() -> None:
    """The loss is that of one pass, and no gradient goes into memory."""
    model, ids = make_model(), draw(2)
    state = model.backbone.fresh_state(ROWS, ids.device)
    hidden = model(make_batch(ids[:, :LENGTH], [False] * 2), state)
    assert not any(layer.requires_grad for layer in hidden.state.layers)
    after = model(make_batch(ids[:, LENGTH:], [True] * 2), hidden.state)
    after.last.sum().backward()
    assert model.backbone.position.vectors.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_the_penalty_is_a_term_and_spans_are_logged() -> None:
    cfg = compose("pretrain", "adaptive_span", [*SMALL, "model.stack.cells.a.penalty=0.01"])
    model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0)
    soft = [part for part in model.modules() if isinstance(part, AdaptiveSpan)]
    assert [part.share.tolist() for part in soft] == [[0.0, 0.0]] * 2
    soft[0].share.data = torch.tensor([0.1, 0.5])
    soft[1].share.data = torch.tensor([0.2, 0.2])
    objective = build_objective(cfg.objective, model, TINY, seed=cfg.seed)
    targets = Targets(torch.tensor([0, 1]), torch.tensor([11, 12]), 2)
    batch = replace(make_batch(draw(1)), targets={"clm": targets}, counts={"clm": 2})
    assert objective.facts.terms == {"clm", "span"}
    assert objective.facts.measures == {"mean_span", "longest_span"}
    assert objective.counts(batch) == {"clm": 2, "span": ROWS}
    out = objective(model, batch)
    # by layer, 0.01 times the mean span
    assert out.terms["span"].total.item() == pytest.approx(ROWS * 0.01 * (30 + 20))
    assert {name: (float(a), b) for name, (a, b) in out.logs.items() if "span" in name} == {
        "mean_span": (pytest.approx(ROWS * 25), ROWS),
        "longest_span": (pytest.approx(ROWS * 50), ROWS),
    }
    out.terms["span"].total.backward()
    for part in soft:
        torch.testing.assert_close(part.share.grad, torch.full((2,), ROWS * 0.01 * SPAN / 2))
        part.share.data.sub_(0.3)
    objective.after_step(model, 1)
    assert soft[0].share.tolist() == pytest.approx([0.0, 0.2])
    assert soft[1].share.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_penalty_of_dynamic_spans_is_that_of_the_tokens(checkpointed: bool) -> None:
    """Its gradient reaches v, b and what made x; a second run in the backward pass adds nothing."""
    words = (*DYNAMIC, "model.stack.cells.a.penalty=0.01")
    model = make_model(more=words).train()
    spec = compose("pretrain", "adaptive_span", [*SMALL, *words])
    objective = build_objective(spec.objective, model, TINY, seed=spec.seed)
    if checkpointed:
        checkpoint_stacks(model, objective)
    soft = [part for part in model.modules() if isinstance(part, DynamicSpan)]
    spans: list[Tensor] = []
    for part in soft:
        part.register_forward_hook(lambda part, args, z: spans.append(z))
    targets = Targets(torch.tensor([0, 1]), torch.tensor([11, 12]), 2)
    batch = replace(make_batch(draw(1)), targets={"clm": targets}, counts={"clm": 2})
    assert objective.counts(batch) == {"clm": 2, "span": ROWS}
    out = objective(model, batch)
    assert len(spans) == 2
    assert all(len(set(z.flatten().tolist())) > 2 for z in spans)  # else a mean shows nothing
    expected = ROWS * 0.01 * (spans[0].mean() + spans[1].mean())
    longest = max(z.max().item() for z in spans)
    torch.testing.assert_close(out.terms["span"].total, expected)
    assert out.logs["mean_span"][0].item() == pytest.approx(expected.item() / 0.01 / 2)
    assert out.logs["longest_span"][0].item() == pytest.approx(ROWS * longest)
    wanted = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)
    objective(model, batch).terms["span"].total.backward()
    for (name, parameter), gradient in zip(model.named_parameters(), wanted, strict=True):
        if parameter.grad is None or gradient is None:
            assert parameter.grad is gradient, name
        else:
            torch.testing.assert_close(parameter.grad, gradient)
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert sum(name.endswith("soft.unit.weight") for name in reached) == 2
    assert any("embedding" in name for name in reached)


def test_the_loss_moves_spans_inside_the_ramp() -> None:
    model, ids = make_model(), draw(2)
    model(make_batch(ids)).last.square().sum().backward()
    for part in model.modules():
        if isinstance(part, AdaptiveSpan):
            inside = part.spans + RAMP < 2 * LENGTH - 1
            assert part.share.grad is not None
            assert bool((part.share.grad[inside] != 0).all())


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
def test_prompts_of_unlike_length_are_continued_as_the_model_reads_them(dynamic: bool) -> None:
    shares = () if dynamic else ([0.02, 0.1], [0.05, 0.0])
    model, ids = make_model(*shares, more=DYNAMIC if dynamic else ()), draw(2)[:, :11]
    both = Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([11, 4]))})
    written = generate(model, both, vocab=TINY, search=Greedy(), max_new=12, end=99)
    for row, length in enumerate((11, 4)):
        own = ids[row : row + 1, :length]
        for _ in range(12):
            logits = model.heads["clm"](model(make_batch(own)).last[:, -1])
            own = torch.cat([own, logits[:, : TINY.size].argmax(-1, keepdim=True)], 1)
        assert list(written[row][0].ids) == own[0, length:].tolist()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.memory=50"], rf"model\.stack\.cells\.a\.span={SPAN}: at most 58.*model\.memory"),
        (["model.stack.layout=fa*2"], "layout='a'.*a layer's input"),
        (["model.stack.layout=f*2", "model.memory=9"], r"model\.memory.*no cell.*reads it"),
        (["pattern=full"], r"clm.*answer stands in the input"),
        (["format=blocks", "format.max_length=8"], r"values\.continues.*format=segments"),
        (
            [
                "model.stack.residual._target_=plmctl.nn.residual.PreNorm",
                "++model.stack.reversible=true",
            ],
            r"model\.stack\.reversible=True: false.*model\.memory=0",
        ),
    ],
)
def test_bad_settings_are_answered_at_once(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        check_contract(compose("pretrain", "adaptive_span", [*SMALL, *words]))
