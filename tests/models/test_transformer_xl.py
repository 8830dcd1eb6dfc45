"""The recipe of Transformer-XL against the formulas of its paper, segment by segment (Dai et
al., 2019, sec. 3).
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.generation.beam import Beam
from plmctl.generation.decode import generate
from plmctl.generation.greedy import Greedy
from plmctl.generation.search import Search
from plmctl.models.base import Model
from plmctl.runs.contract.stand_in import TINY
from plmctl.use.generate import limit_memory

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


@pytest.fixture(
    scope="module",
    params=[(False, None), (True, None), (False, 3), (True, 4)],
    ids=["as trained", "same length", "near distances", "both"],
)
def model(request: pytest.FixtureRequest) -> Model:
    same_length, clamp_len = request.param
    distances = [f"model.same_length={same_length}", f"model.clamp_len={clamp_len or 'null'}"]
    spec = compose("pretrain", "transformer_xl", [*SMALL, *distances])
    made = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
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


def attended(
    cell: torch.nn.Module, x: Tensor, before: Tensor, same_length: bool, clamp_len: int | None
) -> Tensor:
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
            first = max(0, place - MEMORY + 1) if same_length else 0
            for j in range(first, place + 1):
                distance = min(place - j, clamp_len or place)
                r = cell.place.weight[own] @ sinusoid(distance, x.shape[1])
                query = q[i, own]
                scores.append(
                    (query + cell.content_bias[head, 0]) @ k[j, own]
                    + (query + cell.place_bias[head, 0]) @ r
                )
            shares = torch.softmax(torch.stack(scores) / size**0.5, 0)
            made[i, own] = shares @ v[first : place + 1, own]
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
                x = x + attended(a.cell, x, before, backbone.same_length, backbone.clamp_len)
                x = F.layer_norm(x, (8,), a.norm_sum.weight, a.norm_sum.bias, 1e-5)
                inner = (
                    F.relu(x @ f.cell.up.weight.T + f.cell.up.bias) @ f.cell.down.weight.T
                    + f.cell.down.bias
                )
                x = F.layer_norm(x + inner, (8,), f.norm_sum.weight, f.norm_sum.bias, 1e-5)
        torch.testing.assert_close(hidden.last[0], x, rtol=0, atol=1e-10)
        state = hidden.state


def test_a_cache_limits_what_new_tokens_see_as_segments_do(model: Model) -> None:
    """Behind a memory, tokens that are read one by one have the states that a segment gives."""
    backbone = model.backbone
    ids = torch.randint(5, TINY.size, (2, 3 * LENGTH), generator=torch.Generator().manual_seed(2))
    parts = [
        Seq(part, torch.tensor([part.shape[1]] * 2), full=True) for part in ids.split(LENGTH, 1)
    ]
    state = backbone.fresh_state(2, ids.device)
    with torch.no_grad():
        for number, part in enumerate(parts):
            before = state
            goes_on = torch.tensor([number > 0] * 2)
            hidden = model(
                Batch(torch.arange(2), {"text": part}, values={"continues": goes_on}), state
            )
            state = hidden.state
        cache = backbone.fresh_cache(Batch(torch.arange(2), {"text": parts[-1]}), before)
        for place in range(LENGTH):
            one = Seq(parts[-1].ids[:, place : place + 1], torch.tensor([1, 1]), full=True)
            found = model(Batch(torch.arange(2), {"text": one}), cache).last[:, 0]
            torch.testing.assert_close(found, hidden.last[:, place], rtol=0, atol=1e-10)


def test_a_length_needs_a_memory() -> None:
    spec = compose(
        "pretrain", "transformer_xl", [*SMALL, "model.memory=0", "model.same_length=true"]
    )
    with pytest.raises(ConfigError, match="no memory whose length"):
        build_model(spec, vocab_size=TINY.size, vocab=TINY)


def test_the_published_initialisation() -> None:
    """Gains of norms and projections have deviations of their own (released code, train.py)."""
    table = "{_target_:plmctl.nn.adaptive.AdaptiveTable,cutoffs:[2000],div_val:2}"
    words = [
        "data.path=x",
        "model.initializer._target_=plmctl.nn.init.transformer_xl",
        "size.width=64",
        "size.num_heads=2",
        f"model.embedding.table={table}",
        "objective=[clm_adaptive]",
    ]
    spec = compose("pretrain", "transformer_xl", words)
    made = build_model(spec, vocab_size=4000, vocab=TINY, seed=0)
    backbone = made.backbone
    norms = [part for part in made.modules() if isinstance(part, torch.nn.LayerNorm)]
    gains = torch.cat([norm.weight for norm in norms])
    assert gains.mean().item() == pytest.approx(1, abs=0.01)
    assert gains.std().item() == pytest.approx(0.02, rel=0.2)
    assert not torch.cat([norm.bias for norm in norms]).any()
    token, attention = backbone.embedding.token, backbone.stack.blocks["a"][0].cell
    deviations = {
        token.real_rows(0): 0.02,
        token.real_rows(1): 0.02,
        token.projections[1].weight: 0.01,
        attention.place.weight: 0.02,
        attention.content_bias: 0.02,
        made.heads["clm"].cluster_weight: 0.02,
    }
    for weight, std in deviations.items():
        assert weight.std().item() == pytest.approx(std, rel=0.25)
    assert not made.heads["clm"].cluster_bias.any()


def test_a_text_of_any_length_is_written_at_constant_cost() -> None:
    """With `same_length`, the cache holds what the memory does, and predicts what segments do."""
    spec = compose("pretrain", "transformer_xl", [*SMALL, "model.same_length=true"])
    made = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    backbone = made.backbone
    ids = torch.randint(5, TINY.size, (2, 6 * LENGTH), generator=torch.Generator().manual_seed(3))
    state, expected = backbone.fresh_state(2, ids.device), []
    with torch.no_grad():
        for number, part in enumerate(ids.split(LENGTH, 1)):
            seq = Seq(part, torch.tensor([LENGTH] * 2), full=True)
            goes_on = {"continues": torch.tensor([number > 0] * 2)}
            hidden = made(Batch(torch.arange(2), {"text": seq}, values=goes_on), state)
            expected.append(hidden.last)
            state = hidden.state
        cache = backbone.fresh_cache(Batch(torch.arange(2), {"text": seq}))
        found = []
        for part in ids.split([9, *[1] * (6 * LENGTH - 9)], 1):  # a prompt, then token by token
            new = Seq(part, torch.tensor([part.shape[1]] * 2), full=True)
            found.append(made(Batch(torch.arange(2), {"text": new}), cache).last)
    torch.testing.assert_close(torch.cat(found, 1), torch.cat(expected, 1), rtol=0, atol=1e-10)
    assert cache.length == MEMORY
    assert {slot.length for slot in cache.slots} <= {0, MEMORY}
    assert cache.dropped == 6 * LENGTH - MEMORY


BEAM = Beam(width=3, alpha=1.0, penalty="length", early="never")


@pytest.mark.parametrize("search", [Greedy(), BEAM])
def test_prompts_of_unlike_length_are_continued_as_alone(search: Search) -> None:
    """Beams share a prompt that is partly dropped; padding in front of a prompt is, too."""
    spec = compose("pretrain", "transformer_xl", [*SMALL, "model.same_length=true"])
    made = build_model(spec, vocab_size=TINY.size, vocab=TINY, seed=0).double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    ids = torch.randint(1, TINY.size, (2, 11), generator=torch.Generator().manual_seed(4))
    both = Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([11, 4]))})
    found = generate(made, both, vocab=TINY, search=search, max_new=14, end=99)
    for row, length in enumerate((11, 4)):
        alone = Seq(ids[row : row + 1, :length], torch.tensor([length]), full=True)
        batch = Batch(torch.arange(1), {"text": alone})
        own = generate(made, batch, vocab=TINY, search=search, max_new=14, end=99)
        assert [text.ids for text in found[row]] == [text.ids for text in own[0]]
        assert len(own[0][0].ids) == 14


def test_only_a_model_with_memory_is_limited(model: Model) -> None:
    backbone = model.backbone
    before = backbone.memory, backbone.same_length
    try:
        limit_memory(backbone, None)
        assert (backbone.memory, backbone.same_length) == before
        limit_memory(backbone, 3)
        assert (backbone.memory, backbone.same_length) == (3, True)
    finally:
        backbone.memory, backbone.same_length = before
    spec = compose("pretrain", "gpt", ["size=tiny", "data.path=x"])
    plain = build_model(spec, vocab_size=TINY.size, vocab=TINY).backbone
    with pytest.raises(ConfigError, match="no memory of the tokens before"):
        limit_memory(plain, 3)
