"""Methods of parameter-efficient fine-tuning: their formulas, what they begin as, what they fold
to.
"""

from __future__ import annotations

import copy
import math
from functools import partial

import pytest
import torch

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.config.recipes import load, part_files
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.cells.attention import Attention
from plmctl.nn.entmax import Entmax
from plmctl.nn.env import Streams
from plmctl.nn.init import normal
from plmctl.nn.peft.adalora import AdaptiveRank
from plmctl.nn.peft.base import find_blocks, find_cells, find_maps, fold
from plmctl.nn.peft.bottleneck import Bottleneck
from plmctl.nn.peft.compacter import Compacter
from plmctl.nn.peft.dora import WeightDecomposed
from plmctl.nn.peft.ia3 import LearnedScales
from plmctl.nn.peft.lora import LowRank
from plmctl.nn.peft.prefix import PrefixTuning
from plmctl.nn.peft.subset import Subset
from plmctl.nn.peft.vera import RandomMatrices, SharedRandom
from plmctl.nn.residual import PostNorm, PreNorm
from plmctl.nn.restrained import find_restrained
from tests.nn.stacks import HEADS, INNER, B, T, W, make_env, make_input, make_stack, run_stack

LORA = {"maps": ["query", "value", "down"], "rank": 3, "alpha": 6.0}
METHODS = {
    "lora": lambda: LowRank(**LORA),
    "dora": lambda: WeightDecomposed(**LORA),
    "vera": lambda: SharedRandom(maps=LORA["maps"], rank=9),
    "adalora": lambda: AdaptiveRank(**LORA, final_rank=2, begin_at=0.25, end_at=0.75),
    "ia3": lambda: LearnedScales(maps=["key", "value"], inputs=["down"]),
    "adapter": lambda: Bottleneck(
        cells=["attention", "feed-forward"], inner_width=5, activation="gelu", std=None
    ),
    "parallel": lambda: Bottleneck(
        cells=["feed-forward"], inner_width=5, activation="relu", parallel=True, scale=4.0, std=None
    ),
}


NO_WEIGHTS = {
    "adapter": METHODS["adapter"],
    "parallel": METHODS["parallel"],
    "prefix": lambda: PrefixTuning(length=3),
}


def build(*methods, layout="af*2", draw=True):
    """A stack with methods, in float64; drawn anew, so that what they add is not what it was."""
    stack = make_stack(layout, dtype=torch.float64)
    plain = copy.deepcopy(stack)
    for method in methods:
        method.add_to(stack)
    stack.double()
    generator = torch.Generator().manual_seed(1)
    for name, part in stack.named_modules():
        if name.rpartition(".")[2] in {method.mark for method in methods}:
            part.start(generator)
    if draw:
        for name in {name for method in methods for name in method.trains(stack)}:
            stack.get_parameter(name).data.normal_(generator=generator)
    return plain, stack


def each_map(stack, plain, names):
    """(name, the changed map, rows, the map before) of each map that gives one of `names`."""
    for cell, own in zip(find_cells(stack), find_cells(plain), strict=True):
        for name, part in cell.projections().maps.items():
            if name in names:
                yield name, part.linear, part.rows, own.projections().maps[name].linear


def read(stack):
    last, _ = run_stack(stack, make_input(torch.float64), make_env())
    return last


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_begins_as_the_model_that_it_is_added_to(method) -> None:
    plain, stack = build(method(), draw=False)
    torch.testing.assert_close(read(stack), read(plain), rtol=0, atol=0)
    names = set(stack.state_dict()) - set(plain.state_dict())
    assert names
    assert names == set(method().trains(stack))
    assert set(plain.state_dict()) <= set(stack.state_dict())  # which keep their names


def test_adapters_of_houlsby_begin_near_the_model() -> None:
    method = Bottleneck(cells=["attention", "feed-forward"], inner_width=5, activation="gelu")
    plain, stack = build(method, draw=False)
    apart = (read(stack) - read(plain)).norm() / read(plain).norm()
    assert 0 < apart < 1e-3


def test_lora_is_the_published_sum_of_maps() -> None:
    plain, stack = build(LowRank(**LORA))
    for cell, own in zip(find_cells(stack), find_cells(plain), strict=True):
        for name, part in cell.projections().maps.items():
            if name not in LORA["maps"]:
                continue
            change = part.linear.lora
            x = torch.randn(7, part.linear.in_features, dtype=torch.float64)
            wanted = own.projections().maps[name].linear(x)[:, part.rows].clone()
            for row in range(7):  # W x + (alpha / r) B A x
                low = change.down[name] @ x[row]
                wanted[row] += LORA["alpha"] / LORA["rank"] * (change.up[name] @ low)
            torch.testing.assert_close(part.linear(x)[:, part.rows], wanted)
    keys = [cell for cell in find_cells(stack) if "key" in cell.projections().maps]
    for cell, own in zip(
        keys, (c for c in find_cells(plain) if "key" in c.projections().maps), strict=True
    ):
        x = torch.randn(7, cell.qkv.in_features, dtype=torch.float64)
        rows = cell.projections().maps["key"].rows
        torch.testing.assert_close(cell.qkv(x)[:, rows], own.qkv(x)[:, rows], rtol=0, atol=0)


def test_dora_gives_each_row_of_the_sum_a_learned_length() -> None:
    """A loop over rows; their norm is a constant in the gradient (sec. 4.3)."""
    plain, stack = build(WeightDecomposed(**LORA))
    for name, linear, rows, own in each_map(stack, plain, LORA["maps"]):
        change = linear.dora
        x = torch.randn(4, linear.in_features, dtype=torch.float64)
        summed = own.weight[rows] + LORA["alpha"] / 3 * change.up[name] @ change.down[name]
        wanted = [
            change.magnitude[name][row] * (x @ v) / v.detach().square().sum().sqrt()
            for row, v in enumerate(summed)
        ]
        wanted = torch.stack(wanted, 1) + (0 if own.bias is None else own.bias[rows])
        found = linear(x)[:, rows]
        torch.testing.assert_close(found, wanted)
        learned = [change.up[name], change.down[name], change.magnitude[name]]
        grads = zip(
            torch.autograd.grad(wanted.square().sum(), learned, retain_graph=True),
            torch.autograd.grad(found.square().sum(), learned),
            strict=True,
        )
        for grad, other in grads:
            torch.testing.assert_close(other, grad)


def test_dora_measures_the_map_that_it_belongs_to() -> None:
    _, stack = build(WeightDecomposed(**LORA))
    twin, before = copy.deepcopy(stack), read(stack)
    for name, linear, rows, _ in each_map(twin, stack, LORA["maps"]):
        linear.dora.up[name].data.zero_()
        linear.weight.data[rows] *= 2
        linear.dora.fit_in()
        wanted = linear.weight[rows].norm(dim=1)
        torch.testing.assert_close(linear.dora.magnitude[name].data, wanted)
    torch.testing.assert_close(read(stack), before, rtol=0, atol=0)
    for _, linear, _, _ in each_map(stack, twin, LORA["maps"]):
        linear.dora.settle()
    torch.testing.assert_close(read(stack), before, rtol=0, atol=0)


def test_dora_comes_before_what_changes_its_maps() -> None:
    stack = make_stack("af")
    LowRank(**LORA).add_to(stack)
    with pytest.raises(ConfigError, match="before lora") as refused:
        WeightDecomposed(**LORA).add_to(stack)
    assert "first" in refused.value.fix


def test_vera_scales_random_matrices_that_all_maps_share() -> None:
    method = SharedRandom(maps=LORA["maps"], rank=9, seed=3)
    plain, stack = build(method)
    matrices = {linear.vera.matrices for _, linear, _, _ in each_map(stack, plain, LORA["maps"])}
    (shared,) = matrices
    a, b = shared.draw()
    torch.testing.assert_close(shared.down, a.double(), rtol=0, atol=0)
    assert b.shape[0] == W
    assert 0.9 * (6 / a.shape[1]) ** 0.5 < a.abs().max() < (6 / a.shape[1]) ** 0.5
    assert not torch.equal(a, RandomMatrices(rank=9, inputs=INNER, outputs=W, seed=4).down)
    assert torch.equal(a, RandomMatrices(rank=9, inputs=INNER, outputs=W, seed=3).down)
    for name, linear, rows, own in each_map(stack, plain, LORA["maps"]):
        x = torch.randn(4, linear.in_features, dtype=torch.float64)
        wanted = own(x)[:, rows].clone()
        inner, outer = linear.vera.inner[name], linear.vera.outer[name]
        for row in range(len(x)):
            for out in range(len(outer)):
                low = sum(
                    shared.up[out, k] * inner[k] * (shared.down[k, : x.shape[1]] @ x[row])
                    for k in range(9)
                )
                wanted[row, out] += outer[out] * low
        torch.testing.assert_close(linear(x)[:, rows], wanted)
    assert not [name for name in stack.state_dict() if "matrices" in name]


def test_adalora_keeps_the_directions_that_matter_most() -> None:
    """Loops over triplets, from the definitions of the paper (eq. 4, 8 to 12)."""
    rates = {"smooth": 0.7, "uncertain": 0.6, "penalty": 0.3}
    method = AdaptiveRank(**LORA, final_rank=1, begin_at=0.25, end_at=0.75, every=2, **rates)
    _, stack = build(method)
    (budget,) = find_restrained(stack)
    changes = [part for part in stack.modules() if hasattr(part, "values") and hasattr(part, "up")]
    triplets = [(part.down[n], part.values[n], part.up[n]) for part in changes for n in part.rows]
    grams = [gram for q, _, p in triplets for gram in (q @ q.T, p.T @ p)]
    norms = [((gram - torch.eye(3)) ** 2).sum().sqrt() for gram in grams]
    torch.testing.assert_close(budget.penalty(), 0.3 * sum(norms) / len(norms))
    budget.memory.double()
    mean = {weight: torch.zeros_like(weight) for own in triplets for weight in own}
    apart = {weight: torch.zeros_like(weight) for own in triplets for weight in own}
    for step in range(1, 9):
        for n, weight in enumerate(mean):
            weight.grad = torch.randn(
                weight.shape, generator=torch.Generator().manual_seed(100 * step + n)
            ).double()
            now = (weight * weight.grad).abs().detach()
            mean[weight] = 0.7 * mean[weight] + 0.3 * now
            apart[weight] = 0.6 * apart[weight] + 0.4 * (now - mean[weight]).abs()
        before = [values.detach().clone() for _, values, _ in triplets]
        budget.before_step(step / 8)
        for _, values, _ in triplets:
            values.data += 0.01  # the update, with which directions return
        budget.after_step(step)
        score = {weight: mean[weight] * apart[weight] for weight in mean}
        scores = [
            float(score[lam][i, 0] + score[q][i].mean() + score[p][:, i].mean())
            for q, lam, p in triplets
            for i in range(3)
        ]
        zero = [bool(values[i] == 0) for _, values, _ in triplets for i in range(3)]
        if step in (4, 6):  # 18 directions shrink to 6 of 6 maps
            kept = math.floor(12 * (1 - (step / 8 - 0.25) / 0.5) ** 3 + 6)
            lowest = sorted(range(18), key=scores.__getitem__)[: 18 - kept]
            assert {i for i, own in enumerate(zero) if own} == set(lowest)
        elif step > 6:
            assert zero == [bool(v == 0) for values in before for v in values]
            assert sum(zero) == 12
        else:
            assert not any(zero)


def test_what_a_budget_of_ranks_refuses() -> None:
    with pytest.raises(ConfigError, match="at most rank=3"):
        AdaptiveRank(**LORA, final_rank=4, begin_at=0.1, end_at=0.2)
    with pytest.raises(ConfigError, match=r"at most end_at=0\.2"):
        AdaptiveRank(**LORA, final_rank=2, begin_at=0.5, end_at=0.2)


def test_lora_scales_by_the_root_of_the_rank_where_asked() -> None:
    assert LowRank(maps=["query"], rank=16, alpha=8.0).scale == 0.5
    assert LowRank(maps=["query"], rank=16, alpha=8.0, root=True).scale == 2.0


def test_ia3_scales_keys_values_and_inner_states() -> None:
    plain, stack = build(LearnedScales(maps=["key", "value"], inputs=["down"]))
    for cell, own in zip(find_cells(stack), find_cells(plain), strict=True):
        if hasattr(cell, "qkv"):
            x = torch.randn(5, cell.qkv.in_features, dtype=torch.float64)
            wanted = own.qkv(x)
            for name in ("key", "value"):
                rows = cell.projections().maps[name].rows
                wanted[:, rows] = wanted[:, rows] * cell.qkv.ia3.factors[name]
            torch.testing.assert_close(cell.qkv(x), wanted)
        else:
            x = torch.randn(5, cell.down.in_features, dtype=torch.float64)
            wanted = own.down(cell.down.ia3.factors["down"] * x)
            torch.testing.assert_close(cell.down(x), wanted)


@pytest.mark.parametrize("parallel", [False, True])
def test_an_adapter_adds_its_network_to_the_result_of_a_cell(parallel) -> None:
    method = Bottleneck(
        cells=["feed-forward"],
        inner_width=5,
        activation="relu",
        parallel=parallel,
        scale=4.0 if parallel else 1.0,
    )
    plain, stack = build(method, layout="f")
    (cell,), (own,) = find_cells(stack), find_cells(plain)
    x, added = make_input(torch.float64), cell.adapter
    streams = {"text": x}
    y = own(streams, None)
    inner = (x if parallel else y) @ added.down.T + added.down_bias
    wanted = y + method.settings["scale"] * (inner.clamp(min=0) @ added.up.T + added.up_bias)
    torch.testing.assert_close(cell(streams, None), wanted)


def test_compacter_sums_kronecker_products_of_shared_factors() -> None:
    """A loop over products."""
    method = Compacter(cells=["feed-forward"], inner_width=12, activation="gelu", rank=2)
    plain, stack = build(method, layout="f*2")
    maps = []
    for cell, own in zip(find_cells(stack), find_cells(plain), strict=True):
        change, x = cell.compacter, make_input(torch.float64)
        maps += [change.down, change.up]
        wanted = y = own({"text": x}, None)
        for part in (change.down, change.up):
            products = [
                torch.kron(part.factors.weight[i], part.left[i] @ part.right[i]) for i in range(4)
            ]
            wanted = wanted @ sum(products) + part.bias
            wanted = torch.nn.functional.gelu(wanted) if part is change.down else wanted
        torch.testing.assert_close(cell({"text": x}, None), y + wanted)
    assert len({part.factors for part in maps}) == 1


def test_the_lowest_layers_go_without_an_adapter() -> None:
    settings = {"cells": ["feed-forward"], "inner_width": 4, "activation": "relu"}
    for kind in (Bottleneck, Compacter):
        method = kind(**settings, skip=2)
        _, stack = build(method, layout="af*3", draw=False)
        marked = [hasattr(cell, method.mark) for cell in find_cells(stack)]
        assert sum(marked) == 1
        assert hasattr(stack.blocks["f"][2].cell, method.mark)
        with pytest.raises(ConfigError, match=r"skip.*less than the number of layers"):
            kind(**settings, skip=3).add_to(make_stack("af*3"))


def build_normed(residual=PostNorm):
    """A feed-forward block, and its adapter that reads the normed sum."""
    stack = make_stack("f", residual=residual)
    method = Bottleneck(cells=["feed-forward"], inner_width=5, activation="relu", normed=True)
    method.add_to(stack)
    (block,) = find_blocks(stack)
    stack.double()
    block.cell.adapter.start(torch.Generator().manual_seed(1))
    for weight in block.cell.adapter.parameters():
        weight.data.normal_(generator=torch.Generator().manual_seed(2))
    return stack, block


def test_an_adapter_of_pfeiffer_reads_the_normed_sum_of_the_layer() -> None:
    plain = next(find_blocks(make_stack("f", residual=PostNorm)))
    stack, block = build_normed()
    x, added = make_input(torch.float64), block.cell.adapter
    y = plain.cell({"text": x}, None)
    inner = block.norm_sum(x + y) @ added.down.T + added.down_bias
    wanted = y + inner.clamp(min=0) @ added.up.T + added.up_bias
    torch.testing.assert_close(block.cell({"text": x}, None), wanted)
    assert sum(name.startswith("blocks.f.0.norm_sum") for name in stack.state_dict()) == 2
    assert not [name for name in stack.state_dict() if "adapter" in name and "norm" in name]
    twin = copy.deepcopy(stack)
    block.norm_sum.weight.data.zero_()
    torch.testing.assert_close(next(find_cells(twin))({"text": x}, None), wanted)
    assert (block.cell({"text": x}, None) - wanted).abs().max() > 1e-3


def test_an_adapter_of_pfeiffer_takes_the_norm_of_its_model_along() -> None:
    _, block = build_normed()
    added = block.cell.adapter
    added.float()
    assert block.norm_sum.weight.dtype == torch.float32


def test_an_adapter_of_pfeiffer_reads_the_result_where_no_norm_follows() -> None:
    plain = next(find_blocks(make_stack("f")))
    _, block = build_normed(PreNorm)
    x, added = make_input(torch.float64), block.cell.adapter
    y = plain.cell({"text": x}, None)
    inner = y @ added.down.T + added.down_bias
    wanted = y + inner.clamp(min=0) @ added.up.T + added.up_bias
    torch.testing.assert_close(block.cell({"text": x}, None), wanted)
    with pytest.raises(ConfigError, match=r"normed.*reads what the cell reads"):
        Bottleneck(
            cells=["feed-forward"], inner_width=5, activation="relu", parallel=True, normed=True
        )


@pytest.mark.parametrize(
    "names",
    [["lora"], ["dora", "lora", "ia3"], ["vera", "adalora"], ["lora", "ia3"], ["ia3", "lora"]],
)
def test_what_was_learned_folds_into_the_weights(names) -> None:
    methods = [METHODS[name]() for name in names]
    plain, stack = build(*methods)
    before = read(stack)
    assert (before - read(plain)).abs().max() > 1e-3
    fold(stack, methods)
    torch.testing.assert_close(read(stack), before, rtol=1e-10, atol=1e-10)
    assert set(stack.state_dict()) == set(plain.state_dict())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in stack.modules())
    with pytest.raises(ConfigError, match="it was done before"):
        fold(stack, methods)


@pytest.mark.parametrize("method", NO_WEIGHTS.values(), ids=NO_WEIGHTS)
def test_what_no_weights_compute_is_not_folded(method) -> None:
    methods = [LowRank(**LORA), method()]
    _, stack = build(*methods)
    before = read(stack)
    with pytest.raises(ConfigError, match="not to be put into the weights"):
        fold(stack, methods)
    torch.testing.assert_close(read(stack), before, rtol=0, atol=0)


@pytest.mark.parametrize("inner", [None, 4])
@pytest.mark.parametrize("weights", [None, "entmax"])
def test_a_prefix_is_seen_by_every_token_before_its_own_past(inner, weights) -> None:
    """A loop over queries: softmax over [P_k; keys up to the query]."""
    made = None if weights is None else partial(Entmax, alpha=1.5)
    cell = partial(Attention, width=W, num_heads=HEADS, dropout=0.0, weights=made)
    stack = make_stack("a", dtype=torch.float64, more={"a": cell})
    PrefixTuning(length=3, inner_width=inner).add_to(stack)
    (attention,) = find_cells(stack)
    stack.double()
    for name in PrefixTuning(length=3).trains(stack):
        weight = stack.get_parameter(name)
        weight.data.normal_(generator=torch.Generator().manual_seed(weight.numel()))
    x = make_input(torch.float64)
    found = attention(Streams({"text": x}), make_env())
    size = W // HEADS
    p = attention.prefix if inner is None else stack.prefix
    table = p.vectors
    if inner is not None:
        table = torch.tanh(table @ p.first.T + p.first_bias)
        table = table @ p.second.T + p.second_bias
    for row in range(B):
        q, k, v = attention.qkv(x[row]).chunk(3, -1)
        for query in range(T):
            heads = []
            for head in range(HEADS):
                own = slice(head * size, (head + 1) * size)
                keys = torch.cat([table[:, :W][:, own], k[: query + 1, own]])
                values = torch.cat([table[:, W:][:, own], v[: query + 1, own]])
                scores = keys @ q[query, own] / size**0.5
                shares = (
                    scores.softmax(-1)
                    if weights is None
                    else attention.weigh(scores.expand(1, HEADS, 1, -1))[0, head, 0]
                )
                heads.append(shares @ values)
            wanted = attention.out(torch.cat(heads))
            torch.testing.assert_close(found[row, query], wanted)


def test_several_methods_stand_in_one_model() -> None:
    methods = [METHODS["lora"](), METHODS["adapter"](), METHODS["ia3"]()]
    _, stack = build(*methods)
    read(stack).square().sum().backward()
    for method in methods:
        names = method.trains(stack)
        assert names
        assert all(stack.get_parameter(name).grad.abs().sum() > 0 for name in names)


def test_a_copy_has_parts_of_its_own() -> None:
    _, stack = build(LowRank(**LORA))
    before, twin = read(stack), copy.deepcopy(stack)
    for name in LowRank(**LORA).trains(twin):
        twin.get_parameter(name).data.zero_()
    torch.testing.assert_close(read(stack), before, rtol=0, atol=0)
    assert (read(twin) - before).abs().max() > 1e-3


def test_the_first_weights_are_those_of_the_method() -> None:
    _, stack = build(LowRank(**LORA), draw=False)
    normal(stack, std=0.02, generator=torch.Generator().manual_seed(0))
    change = next(iter(find_maps(stack, ["query"], "lora", "maps")))["query"].linear.lora
    assert change.up["query"].abs().max() == 0
    bound = change.down["query"].shape[1] ** -0.5
    assert bound / 2 < change.down["query"].abs().max() <= bound


def test_methods_of_bert_base_have_the_published_counts() -> None:
    """On queries and values: 2 x 12 x 2 x 768 x 8 of LoRA, 2 x 12 x (768 + 1024) of VeRA;
    2,376 of each adapter of Compacter, and 64 of all."""
    spec = compose("pretrain", "bert", ["size=base"])
    with without_weights():
        model = build_model(spec, vocab_size=30522)
        lora = LowRank(maps=["query", "value"], rank=8, alpha=8.0)
        compacter = Compacter(
            cells=["attention", "feed-forward"], inner_width=24, activation="gelu"
        )
        vera = SharedRandom(maps=["query", "value"], rank=1024)
        for method, count in ((lora, 294_912), (vera, 43_008), (compacter, 24 * 2_376 + 64)):
            method.add_to(model)
            sizes = [model.get_parameter(name).numel() for name in method.trains(model)]
            assert sum(sizes) == count


def node_of(part: str) -> dict:
    node = load(part_files("peft")[part])
    if node.get("runs") == "???":  # what these are is known once they are there
        own = {"cells": ["feed-forward"], "inner_width": 4, "activation": "relu"}
        own["_target_"] = "plmctl.nn.peft.bottleneck.Bottleneck"
        node |= {"runs": ["runs/a"], "adapters": [own]}
    return node


@pytest.mark.parametrize("part", part_files("peft"))
def test_every_part_file_makes_a_method_of_a_model(part: str) -> None:
    config = {**plain(compose("pretrain", "bert", ["size=tiny"])), "peft": {part: node_of(part)}}
    with without_weights():
        model = build_model(config, vocab_size=100)
    own = model.methods[0].trains(model.backbone)
    assert 0 < len(own) + model.methods[0].takes_runs < len(list(model.backbone.parameters()))


SIZES = [
    (part, name)
    for part in part_files("peft")
    for name in ("rank", "inner_width", "length")
    if name in node_of(part)
]


@pytest.mark.parametrize(("part", "name"), SIZES)
def test_a_size_that_no_memory_holds_is_refused_before_it_is_taken(part: str, name: str) -> None:
    """Its fix is a size that the method takes."""
    config = plain(compose("pretrain", "bert", ["size=tiny"]))
    with pytest.raises(ConfigError, match=r"at most") as refused:
        build_model(config | {"peft": {part: node_of(part) | {name: 10**12}}}, vocab_size=100)
    path, _, most = refused.value.fix.partition("=")
    assert refused.value.path == path == f"peft.{part}.{name}"
    with without_weights():
        build_model(config | {"peft": {part: node_of(part) | {name: int(most)}}}, vocab_size=100)
        one_more = node_of(part) | {name: int(most) + 1}
        with pytest.raises(ConfigError, match=rf"at most {most}"):
            build_model(config | {"peft": {part: one_more}}, vocab_size=100)


def test_the_rank_of_lora_is_at_most_that_of_its_map() -> None:
    """A map of 128 columns to 512 has no more than 128."""
    config = plain(compose("pretrain", "bert", ["size=tiny", "size.inner_width=512"]))
    for maps, rank in ((["up"], 128), (["query", "up"], 128)):
        node = node_of("lora") | {"maps": maps, "rank": rank + 1}
        with without_weights(), pytest.raises(ConfigError, match=f"at most {rank}"):
            build_model(config | {"peft": {"lora": node}}, vocab_size=100)


LSTM = {  # what a model of recurrent cells has no place for
    *("adapter", "adapter_parallel", "adapter_pfeiffer", "attention_only", "compacter"),
    "feed_forward_only",
    *("adalora", "dora", "fusion", "ia3", "lora", "prefix", "prompt", "trained_adapters", "vera"),
    "unipelt",
}
REFUSED = {
    "bart": {"unipelt"},
    "t5": {"bitfit", "unipelt"},
    "xlnet": {"prefix", "prompt", "unipelt"},
    "elmo": LSTM,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", REFUSED)
def test_other_models_take_a_method_or_say_in_one_sentence_why_not(recipe: str) -> None:
    config = plain(compose("pretrain", recipe, ["size=tiny"]))
    refused: dict[str, ConfigError] = {}
    for part in part_files("peft"):
        try:
            with without_weights():
                model = build_model({**config, "peft": {part: node_of(part)}}, vocab_size=100)
        except ConfigError as error:
            refused[part] = error
        else:
            assert model.methods[0].trains(model.backbone) or model.methods[0].takes_runs
    assert set(refused) == REFUSED[recipe]
    for part, error in refused.items():
        assert error.path.startswith(f"peft.{part}"), part
        assert not error.allowed.endswith(": "), part  # a list of nothing
        assert error.fix, part


def test_a_subset_trains_biases_or_one_kind_of_cell() -> None:
    stack = make_stack("af*2", dtype=torch.float64)
    method = Subset(biases=True)
    method.add_to(stack)
    assert set(method.trains(stack)) == {
        name for name, _ in stack.named_parameters() if name.endswith("bias")
    }
    names = Subset(cells=["attention"]).trains(stack)
    assert names
    assert all(name.startswith("blocks.a.") and ".cell." in name for name in names)


def test_what_a_model_lacks_is_named() -> None:
    stack = make_stack("af*2", dtype=torch.float64)
    with pytest.raises(ConfigError, match=r"query, key, value, output, up, down.*'query'"):
        LowRank(maps=["qury"], rank=2, alpha=1.0).add_to(stack)
    with pytest.raises(ConfigError, match="one map at least"):
        LowRank(maps=[], rank=2, alpha=1.0).add_to(stack)
    with pytest.raises(ConfigError, match="attention, feed-forward"):
        Bottleneck(cells=["atention"], inner_width=2, activation="relu").add_to(stack)
    for part in stack.modules():
        if isinstance(part, torch.nn.Linear | torch.nn.LayerNorm):
            part.bias = None
    with pytest.raises(ConfigError, match="this model has no biases"):
        Subset(biases=True).add_to(stack)
    with pytest.raises(ConfigError, match="by one softmax"):
        PrefixTuning(length=2).add_to(make_stack("f"))
    LowRank(**LORA).add_to(stack)
    with pytest.raises(ConfigError, match="once"):
        LowRank(**LORA).add_to(stack)


def test_a_model_trains_what_its_methods_add_and_its_heads() -> None:
    stack = make_stack("af*2", dtype=torch.float64)
    model = Model(backbone=stack, heads={"class": torch.nn.Linear(4, 2)})  # type: ignore[arg-type]
    assert model.trainable(["backbone.x"]) == ["backbone.x"]
    method = LowRank(**LORA)
    method.add_to(stack)
    model.methods.append(method)
    names = model.trainable()
    assert {"heads.class.weight", "heads.class.bias"} <= set(names)
    assert len(names) == 2 + len(method.trains(stack))
