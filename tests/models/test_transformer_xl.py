"""The recipe of Transformer-XL against the formulas of its paper, segment by segment (Dai et
al., 2019, sec. 3).
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plmctl.core.batch import Batch, Seq
from plmctl.models.base import Model
from plmctl.run.assemble import build_model
from plmctl.run.compose import compose
from plmctl.run.stand_in import TINY

LENGTH, MEMORY = 4, 6
SMALL = [
    "size=tiny",
    "size.width=8",
    "size.num_heads=2",
    "size.inner_width=12",
    f"format.max_length={LENGTH}",
    f"model.memory={MEMORY}",
    "data.path=x",
]


@pytest.fixture(scope="module")
def model() -> Model:
    made = (
        build_model(
            compose("pretrain", "transformer_xl", SMALL), vocab_size=TINY.size, vocab=TINY, seed=0
        )
        .double()
        .eval()
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(
                0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            )
    return made


def sinusoid(distance: int, width: int) -> Tensor:
    angles = distance * 10000 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.cat([angles.sin(), angles.cos()])


def attended(cell: torch.nn.Module, x: Tensor, before: Tensor) -> Tensor:
    """One row, x [T, W], behind the tokens `before [M, W]`: term by term (sec. 3.3)."""
    seen = torch.cat([before, x])
    heads, size = cell.num_heads, cell.head_width
    q, (k, v) = x @ cell.q.weight.T, (seen @ part.T for part in cell.kv.weight.chunk(2))
    made = torch.zeros_like(x)
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        for i in range(len(x)):
            place = len(before) + i
            scores = []
            for j in range(place + 1):
                r = cell.place.weight[own] @ sinusoid(place - j, x.shape[1])
                query = q[i, own]
                scores.append(
                    (query + cell.content_bias[head, 0]) @ k[j, own]
                    + (query + cell.place_bias[head, 0]) @ r
                )
            shares = torch.softmax(torch.stack(scores) / size**0.5, 0)
            made[i, own] = shares @ v[: place + 1, own]
    return made @ cell.out.weight.T


def test_segments_behind_each_other(model: Model) -> None:
    backbone = model.backbone
    ids = torch.randint(5, TINY.size, (1, 3 * LENGTH), generator=torch.Generator().manual_seed(0))
    state = backbone.fresh_state(1, ids.device)
    blocks = backbone.stack.blocks
    memory = [torch.zeros(0, 8, dtype=torch.float64) for _ in blocks["a"]]
    for part, tokens in enumerate(ids.split(LENGTH, 1)):
        given = Batch(
            torch.arange(1),
            {"text": Seq(tokens, torch.tensor([LENGTH]), full=True)},
            values={"continues": torch.tensor([part > 0])},
        )
        with torch.no_grad():
            hidden = model(given, state)
            x = backbone.embedding.token.weight[tokens[0]] * 8**0.5
            for number, (a, f) in enumerate(zip(blocks["a"], blocks["f"], strict=True)):
                before, memory[number] = memory[number], torch.cat([memory[number], x])[-MEMORY:]
                x = F.layer_norm(
                    x + attended(a.cell, x, before), (8,), a.norm_sum.weight, a.norm_sum.bias, 1e-5
                )
                inner = (
                    F.relu(x @ f.cell.up.weight.T + f.cell.up.bias) @ f.cell.down.weight.T
                    + f.cell.down.bias
                )
                x = F.layer_norm(x + inner, (8,), f.norm_sum.weight, f.norm_sum.bias, 1e-5)
        torch.testing.assert_close(hidden.last[0], x, rtol=0, atol=1e-10)
        state = hidden.state
