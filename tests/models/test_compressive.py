"""The Compressive Transformer against its description (Rae et al., 2019, sec. 3): a loop over
segments, Transformer-XL with a longer memory, functions of compression, gradients, bad settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.compressive import AgedMemory
from plmctl.nn.compression import (
    Compression,
    ConvolvedMemory,
    DilatedMemory,
    MaxPooling,
    MeanPooling,
    MostUsed,
)
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY
from tests.models.test_transformer_xl import sinusoid

LENGTH, M, C, RATE, ROWS, W = 4, 6, 4, 2, 2, 8
SMALL = [
    "size=tiny",
    "size.width=8",
    "size.num_heads=2",
    "size.inner_width=12",
    f"format.max_length={LENGTH}",
    "data.path=x",
]
OWN = [f"model.memory={M}", f"model.compressed={C}", f"model.compression.rate={RATE}"]
KINDS = {
    "convolution": [],
    "mean": ["model.compression._target_=plmctl.nn.compression.MeanPooling"],
    "used": ["model.compression._target_=plmctl.nn.compression.MostUsed"],
    "states": ["model.rebuild=states"],
    "before": ["model.stack.residual._target_=plmctl.nn.residual.PreNorm"],
}


def make_model(*more: str, recipe: str = "compressive_transformer") -> Model:
    own = OWN if recipe == "compressive_transformer" else []
    spec = compose("pretrain", recipe, [*SMALL, *own, *more])
    model = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            seed = sum(map(ord, name.split("backbone.")[-1]))
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.3 * noise)
    return model


def draw(parts: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(5, TINY.size, (ROWS, parts * LENGTH), generator=generator)


def make_batch(ids: Tensor, continues: bool) -> Batch:
    seq = Seq(ids, torch.full((len(ids),), ids.shape[1]), full=True)
    return Batch(
        torch.arange(len(ids)),
        {"text": seq},
        values={"continues": torch.tensor([continues] * len(ids))},
    )


def read_in_order(model: Model, ids: Tensor) -> tuple[list[Tensor], list[Any], AgedMemory]:
    """(states, losses, memory) of all segments."""
    state, states, losses = model.backbone.fresh_state(len(ids), ids.device), [], []
    for number, part in enumerate(ids.split(LENGTH, 1)):
        hidden = model(make_batch(part, number > 0), state)
        state = hidden.state
        states.append(hidden.last)
        losses.append(hidden.losses.get("compression"))
    return states, losses, state


def attended(cell: Any, x: Tensor, before: Tensor) -> Tensor:
    """One row behind `before`, term by term (Dai et al., 2019, sec. 3.3)."""
    seen, heads, size = torch.cat([before, x]), cell.num_heads, cell.head_width
    q, (k, v) = x @ cell.q.weight.T, (seen @ part.T for part in cell.kv.weight.chunk(2))
    made = torch.zeros_like(x)
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            scores = []
            for j in range(len(before) + i + 1):
                r = cell.place.weight[own] @ sinusoid(len(before) + i - j, x.shape[1])
                content = (q[i, own] + cell.content_bias[head, 0]) @ k[j, own]
                scores.append(content + (q[i, own] + cell.place_bias[head, 0]) @ r)
            shares = torch.softmax(torch.stack(scores) / size**0.5, 0)
            made[i, own] = shares @ v[: len(before) + i + 1, own]
    return made @ cell.out.weight.T


def see_by_content(cell: Any, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """What heads see of memory, one query after the other; and how much each state gets."""
    size, made = cell.head_width, []
    usage = torch.zeros(len(memory), dtype=x.dtype)
    for head in range(cell.num_heads):
        maps = (cell.q.weight, *cell.kv.weight.chunk(2))
        q, k, v = (part.chunk(cell.num_heads)[head] for part in maps)
        for token in x:
            p = torch.softmax(torch.stack([(q @ token) @ (k @ m) for m in memory]) / size**0.5, 0)
            usage += p / (cell.num_heads * len(x))
            made.append(sum(share * (v @ m) for share, m in zip(p, memory, strict=True)))
    return torch.stack(made), usage


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["convolution", "mean", "used", "states"])
def test_a_loop_over_segments(kind: str) -> None:
    """Six segments, so that states are pushed out, compressed, and forgotten at last."""
    model, ids = make_model(*KINDS[kind]), draw(6)[:1]
    backbone: Any = model.backbone
    with torch.no_grad():
        states, losses, memory = read_in_order(model, ids)
    blocks = backbone.stack.blocks
    recent = [torch.zeros(0, W, dtype=torch.float64)] * 2
    small = [torch.zeros(0, W, dtype=torch.float64)] * 2
    with torch.no_grad():
        for number, part in enumerate(ids[0].split(LENGTH)):
            x, loss = backbone.embedding.token.weight[part] * W**0.5, 0.0
            for layer, (a, f) in enumerate(zip(blocks["a"], blocks["f"], strict=True)):
                new = x
                x = x + attended(a.cell, x, torch.cat([small[layer], recent[layer]]))
                x = F.layer_norm(x, (W,), a.norm_sum.weight, a.norm_sum.bias, 1e-5)
                inner = F.relu(x @ f.cell.up.weight.T + f.cell.up.bias) @ f.cell.down.weight.T
                x = x + inner + f.cell.down.bias
                x = F.layer_norm(x, (W,), f.norm_sum.weight, f.norm_sum.bias, 1e-5)
                both = torch.cat([recent[layer], new])
                old, recent[layer] = both[:-M], both[-M:]
                old = old[len(old) % RATE :]
                if not len(old):
                    continue
                pairs = list(old.split(RATE))
                seen, usage = see_by_content(a.cell, new, old)
                if kind == "mean":
                    made = torch.stack([pair.mean(0) for pair in pairs])
                elif kind == "used":
                    made = old[sorted(usage.argsort(descending=True)[: len(old) // RATE].tolist())]
                else:
                    conv = backbone.compressions[layer].conv
                    made = torch.stack(
                        [
                            conv.bias + sum(conv.weight[..., n] @ pair[n] for n in range(RATE))
                            for pair in pairs
                        ]
                    )
                    if kind == "states":
                        back = backbone.expansions[layer].conv
                        again = made @ back.weight[..., 0].T + back.bias
                        # of the row alone: the missing ones of a first pair are empty
                        loss += float(F.mse_loss(again.view(-1, W), old)) * len(old) / LENGTH
                    else:
                        loss += float(F.mse_loss(see_by_content(a.cell, new, made)[0], seen))
                small[layer] = torch.cat([small[layer], made])[-C:]
            torch.testing.assert_close(states[number][0], x, rtol=0, atol=1e-9)
            if kind == "convolution" or (kind == "states" and number > 1):
                assert losses[number].item() == pytest.approx(loss, abs=1e-9)
    for ours, reference in zip(memory.compressed, small, strict=True):
        torch.testing.assert_close(ours[0], reference, rtol=0, atol=1e-9)
    for ours, reference in zip(memory.recent, recent, strict=True):
        torch.testing.assert_close(ours[0], reference, rtol=0, atol=1e-9)
    assert (memory.filled_compressed.item(), memory.filled_recent.item()) == (C, M)


def test_with_rate_one_it_is_transformer_xl_with_a_longer_memory() -> None:
    more = ["model.compression.rate=1", KINDS["mean"][0]]
    ours = make_model(*more)
    plain = make_model(
        f"model.memory={M + C}",
        "model.initializer._target_=plmctl.nn.init.normal",
        recipe="transformer_xl_char",
    )
    plain.load_state_dict(ours.state_dict())
    with torch.no_grad():
        for one, other in zip(
            read_in_order(ours, draw(5))[0], _states_of_plain(plain, draw(5)), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def _states_of_plain(model: Model, ids: Tensor) -> list[Tensor]:
    state, states = model.backbone.fresh_state(len(ids), ids.device), []
    for number, part in enumerate(ids.split(LENGTH, 1)):
        hidden = model(make_batch(part, number > 0), state)
        state = hidden.state
        states.append(hidden.last)
    return states


@pytest.mark.parametrize("kind", ["convolution", "states", "before"])
def test_no_gradient_passes_between_the_two_losses(kind: str) -> None:
    model, ids = make_model(*KINDS[kind]), draw(4)
    states, losses, memory = read_in_order(model, ids)
    own = {name for name, _ in model.named_parameters() if "compressions" in name}
    own |= {name for name, _ in model.named_parameters() if "expansions" in name}
    states[-1].square().sum().backward(retain_graph=True)
    reached = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert reached
    assert not reached & own
    model.zero_grad()
    assert losses[0].sum() == 0  # nothing is old yet
    losses[-1].sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == own
    gradients = [p.grad for name, p in model.named_parameters() if name in own]
    assert all(grad is not None and grad.any() for grad in gradients)
    assert not any(x.requires_grad for x in (*memory.compressed, *memory.recent))


def test_the_loss_is_a_term_with_its_weight() -> None:
    cfg = compose("pretrain", "compressive_transformer", [*SMALL, *OWN, "model.weight=0.5"])
    model = make_model("model.weight=0.5")
    objective = build_objective(cfg.objective, model, TINY, seed=cfg.seed)
    assert objective.facts.terms == {"clm", "compression"}
    _, _, state = read_in_order(model, draw(3))
    targets = Targets(torch.tensor([0, 1]), torch.tensor([11, 12]), 2)
    batch = replace(make_batch(draw(1), True), targets={"clm": targets}, counts={"clm": 2})
    out = objective(model, batch, state)
    losses = model(batch, state).losses["compression"]
    assert out.terms["compression"].weight == 0.5
    torch.testing.assert_close(out.terms["compression"].total, losses.sum())
    assert objective.counts(batch) == {"clm": 2, "compression": ROWS}
    assert float(losses.detach().min()) > 0
    assert isinstance(out.state, AgedMemory)
    # rows that begin have compressed nothing
    new = objective(model, replace(batch, values=make_batch(draw(1), False).values), state)
    assert new.terms["compression"].total == 0
    # without weights there is nothing to learn
    plain = build_objective(cfg.objective, make_model(*KINDS["mean"]), TINY, seed=cfg.seed)
    assert plain.facts.terms == {"clm"}


@torch.no_grad()
def test_functions_of_compression() -> None:
    old = torch.arange(12.0).view(1, 6, 2) * torch.tensor([1.0, -1.0])
    usage = torch.tensor([[0.1, 0.5, 0.0, 0.2, 0.1, 0.1]])
    settings = {"width": 2, "rate": 3}
    assert MeanPooling(**settings)(old, usage).tolist() == [[[2.0, -3.0], [8.0, -9.0]]]
    assert MaxPooling(**settings)(old, usage).tolist() == [[[4.0, -1.0], [10.0, -7.0]]]
    assert MostUsed(**settings)(old, usage).tolist() == [[[2.0, -3.0], [6.0, -7.0]]]
    made = ConvolvedMemory(**settings)
    for j in range(2):
        weight, bias = made.conv.weight, made.conv.bias
        expected = bias + sum(weight[..., n] @ old[0, 3 * j + n] for n in range(3))
        torch.testing.assert_close(made(old, usage)[0, j], expected)
    for kernel, dilation in ((3, 2), (2, 1), (1, 1), (4, 3)):
        wide = DilatedMemory(**settings, kernel=kernel, dilation=dilation)
        y = wide(old, usage)
        assert y.shape == (1, 2, 2)
        for j in range(2):
            total = wide.conv.bias.clone()  # type: ignore[union-attr]
            for n in range(kernel):
                place = 3 * j + 2 - dilation * (kernel - 1 - n)
                if place >= 0:
                    total += wide.conv.weight[..., n] @ old[0, place]
            torch.testing.assert_close(y[0, j], total)
    for kind in (MeanPooling, MaxPooling):
        assert isinstance(kind(**settings), Compression)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.compression.rate=3"], r"model\.compression\.rate=3: a divisor of.*=4.*rate=2"),
        (["model.compression.rate=0"], r"rate=0"),
        (["model.memory=0"], r"model\.memory=0: must be 1 or more"),
        (["model.compressed=0"], r"model\.compressed=0: must be 1 or more"),
        (["format=blocks", "format.max_length=4"], r"values\.continues.*format=segments"),
        (["position=sinusoidal"], r"position=none"),
        (["model.rebuild=words"], r"model\.rebuild"),
    ],
)
def test_bad_settings_are_answered_at_once(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        check_contract(compose("pretrain", "compressive_transformer", [*SMALL, *OWN, *words]))
