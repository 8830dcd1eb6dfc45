"""Cells as data: blocks of two branches (So et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.nn.cells.branched import LAYERS, BranchedCell, plan_blocks
from plmctl.nn.cells.convolution import DepthwiseConvolution, PlainConvolution
from plmctl.nn.env import Streams
from plmctl.nn.norm import layer_norm
from tests.nn.evolved import normalize
from tests.nn.stacks import HEADS, W, make_env, make_input, make_stack, run_stack

LENGTH, SOURCE = 14, 5
WIDTH = 32  # 16 heads divide it
# the hand-made cells of a published cell: (module of the hand-made one, module of the data's)
ENCODER = {
    "u.norm_in": "norms.0",
    "u.cell": "layers.left_0",
    "v.norm_in": "norms.1",
    "v.cell.left": "layers.left_1",
    "v.cell.right": "layers.right_1",
    "v.cell.norm": "norms.2",
    "v.cell.join": "layers.left_2",
    "a.norm_in": "norms.3",
    "a.cell": "layers.left_3",
    "f.norm_in": "norms.4",
    "f.cell.up": "layers.left_4.taps",
    "f.cell.down": "layers.left_5.taps",
}
DECODER = {
    "m.norm_in": "norms.0",
    "m.cell": "layers.left_0",
    "c.0.cell": "layers.right_0",
    "x.norm_in": "norms.2",
    "x.cell.left": "layers.left_2",
    "x.cell.right": "layers.right_2",
    "x.cell.norm": "norms.3",
    "x.cell.join": "layers.left_3",
    "a.norm_in": "norms.4",
    "a.cell": "layers.left_4",
    "c.1.norm_in": "norms.5",
    "c.1.cell": "layers.left_5",
    "g.norm_in": "norms.6",
    "g.cell.up": "layers.left_6.taps",
    "g.cell.norm": "norms.7",
    "g.cell.down": "layers.left_7.taps",
}


@cache
def make_model(*words: str) -> Model:
    tiny = ["size=tiny", f"size.width={WIDTH}", f"size.inner_width={4 * WIDTH}", "data.path=x"]
    cfg = compose(
        "pretrain", "evolved_transformer", [*tiny, "data.target_path=y", "model.start=1", *words]
    )
    model = build_model(cfg, vocab_size=32, seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():  # norms, too, are not those of the start
        noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.data.add_(0.1 * noise)
    return model


def make_batch(source: Tensor, target: Tensor) -> Batch:
    seqs = {
        name: Seq(ids, torch.full((len(ids),), ids.shape[1]), full=True)
        for name, ids in (("source", source), ("target", target))
    }
    return Batch(torch.arange(len(source)), seqs)


def copy_cells(stack: nn.Module, to: nn.Module, pairs: Mapping[str, str], letter: str) -> None:
    """Copy the weights of hand-made cells into cells of data, cell by cell."""
    for number, block in enumerate(to.blocks[letter]):  # type: ignore[index, arg-type]
        for hand, data in pairs.items():
            name, *rest = hand.split(".")
            copies = stack.blocks[name]  # type: ignore[index]
            # a letter that runs twice in a cell: c.0 and c.1
            own = int(rest.pop(0)) if rest[0].isdigit() else 0
            per_cell = len(copies) // len(to.blocks[letter])  # type: ignore[index, arg-type]
            part = copies[number * per_cell + own].get_submodule(".".join(rest))
            block.cell.get_submodule(data).load_state_dict(part.state_dict())


@torch.no_grad()
def test_the_published_cells_as_data_are_the_hand_made_ones() -> None:
    """Both stacks of a translator, two cells each: equal logits, as many weights."""
    hand = make_model(
        "model.encoder.stack.layout=uvaf*2",
        "model.decoder.stack.layout=m|cxacg*2",
        "model.decoder.stack.cells.m.num_heads=16",
    )
    data = make_model("model.encoder.stack.layout=n*2", "model.decoder.stack.layout=o*2")
    sizes = [sum(p.numel() for p in model.parameters()) for model in (hand, data)]
    assert sizes[0] == sizes[1]
    rest = {name: x for name, x in hand.state_dict().items() if ".blocks." not in name}
    data.load_state_dict(rest, strict=False)
    for end, pairs, letter in (("encoder", ENCODER, "n"), ("decoder", DECODER, "o")):
        stacks = [getattr(model.backbone, end).stack for model in (hand, data)]
        copy_cells(*stacks, pairs, letter)
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(4, 32, (2, n), generator=generator) for n in (9, 20)]
    one, two = (model(make_batch(*ids)).last for model in (hand, data))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-10)
    assert one.std() > 0.1


def make_cell(blocks: list[Any], **more: Any) -> BranchedCell:
    torch.manual_seed(0)
    settings = {"width": W, "num_heads": HEADS, "causal": False, "dropout": 0.0, **more}
    cell = BranchedCell(blocks=blocks, norm=partial(layer_norm, eps=1e-6), **settings)
    for parameter in cell.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return cell.double()


@torch.no_grad()
def test_blocks_by_the_definition() -> None:
    """Zeros behind a narrower sum, ones behind a narrower product, states that nobody reads added
    up, and a linear map from their columns to those of the stream.
    """
    blocks = [
        {"left": {"layer": "convolution_1", "width": 0.5, "activation": "leaky_relu", "norm": True},
         "right": {"layer": "gate", "width": 2}, "combine": "multiply"},
        {"left": {"layer": "identity", "state": 1, "norm": True, "activation": "silu"},
         "right": {"layer": "identity"}, "combine": "concat"},
        {"right": {"layer": "separable_3", "state": 0, "norm": True}},
    ]  # fmt: skip
    cell, x = make_cell(blocks), torch.randn(1, 6, W, dtype=torch.float64)
    result = cell(Streams({"text": x}), make_env(6))[0]
    layers, norms = cell.layers, cell.norms
    n = normalize(norms["0"], x[0])
    narrow = F.leaky_relu(layers["left_0"].taps(n))
    wide = layers["right_0"].value(x[0]) * torch.sigmoid(layers["right_0"].gate(x[0]))
    product = torch.cat([narrow * wide[:, : W // 2], wide[:, W // 2 :]], 1)
    first = normalize(norms["1"], product)
    both = torch.cat([first * torch.sigmoid(first), x[0]], 1)  # 3 W columns
    third = layers["right_2"](Streams({"text": n[None]}), make_env(6))[0]
    loose = both + torch.cat([third, torch.zeros(6, 2 * W, dtype=x.dtype)], 1)
    torch.testing.assert_close(result, cell.resize(loose), rtol=1e-9, atol=1e-9)
    assert sorted(norms) == ["0", "1"]  # two branches share the norm of state 0


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_convolutions_by_torch(causal: bool) -> None:
    """Two results a column, dilated taps, and kernels that columns share."""
    x, kernel = torch.randn(2, 9, 10, dtype=torch.float64), 5
    columns = x.transpose(1, 2)

    def pad(reach: int) -> Tensor:
        return F.pad(columns, (reach, 0) if causal else (reach // 2, reach // 2))

    def run(cell: nn.Module) -> Tensor:
        return cell.double()(Streams({"text": x}), make_env(9)).transpose(1, 2)

    twice = DepthwiseConvolution(width=10, kernel=kernel, causal=causal, outputs=20).double()
    expected = F.conv1d(pad(4), twice.taps.weight[:, None], groups=10)
    torch.testing.assert_close(run(twice), expected, rtol=1e-9, atol=1e-9)
    dilated = PlainConvolution(width=10, kernel=kernel, causal=causal, outputs=6, dilation=2)
    weight = dilated.double().taps.weight.unflatten(1, (kernel, 10)).transpose(1, 2)
    expected = F.conv1d(pad(8), weight, dilated.taps.bias, dilation=2)
    torch.testing.assert_close(run(dilated), expected, rtol=1e-9, atol=1e-9)
    shared = DepthwiseConvolution(
        width=10, kernel=kernel, causal=causal, outputs=20, sharing=4, softmax=True
    ).double()
    rows = shared.taps.weight.softmax(1).unflatten(0, (-1, 2))  # [4 kernels, 2 results, taps]
    base = torch.cat([rows[:2]] * 4 + [rows[2:]])  # 10 // 4 kernels four times, 10 % 4 once
    expected = F.conv1d(pad(4), base.flatten(0, 1)[:, None], groups=10)
    torch.testing.assert_close(run(shared), expected, rtol=1e-9, atol=1e-9)


EACH = [name for name in LAYERS if name not in ("dead", "attention_16", "attention_32")]


@pytest.mark.parametrize("layer", EACH)
def test_no_layer_of_a_decoder_reads_later_tokens(layer: str) -> None:
    """The gradient of each state reaches its own token and none behind it."""
    blocks = [{"left": {"layer": layer, "norm": True}, "right": {"layer": "identity"}}]
    cell = make_cell(blocks, causal=True)
    x = make_input(length=LENGTH)
    source = torch.randn(len(x), SOURCE, W, dtype=x.dtype)
    stack = make_stack("n", more={"n": lambda: cell})
    result, _ = run_stack(stack, x, make_env(LENGTH, source=SOURCE), source=source)
    for t in range(0, LENGTH, 4):
        (gradient,) = torch.autograd.grad(result[0, t].square().sum(), x, retain_graph=True)
        seen = gradient[0].abs().sum(-1) > 0
        assert seen[t]
        assert not seen[t + 1 :].any()


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([], r"blocks=\[\]: at least one block"),
        ([{"left": {"layer": "dead"}}], r"blocks\[0\]='dead': at least one branch"),
        ([{"left": {"layer": "seperable_9"}}], r"left\.layer='seperable_9': .*separable_9'\?"),
        ([{"left": {"layer": "gate", "state": 1}}], r"left\.state=1: 0 to 0"),
        ([{"left": {"layer": "gate", "width": 0.3}}], r"left\.width=0\.3: whole columns of 8"),
        ([{"left": {"layer": "attention_16"}}], r"divide its 8 columns: 16 do not"),
        ([{"right": {"layer": "depthwise_3", "width": 1.5}}], r"right\.width=1\.5: a multiple of"),
        ([{"left": {"layer": "gate", "activation": "swish"}}], r"activation='swish': one of"),
        ([{"left": {"layer": "gate"}, "combine": "sum"}], r"combine='sum': one of add, concat"),
        ([{"rihgt": {"layer": "gate"}}], r"blocks\[0\]='rihgt': one of left, right"),
        ([{"left": {"layer": "gate", "input": 0}}], r"blocks\[0\]\.left='input': one of layer"),
    ],
)
def test_blocks_that_cannot_be_built(blocks: list[Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_blocks(blocks, width=W, num_heads=HEADS)


def test_a_cell_of_blocks_is_complete() -> None:
    """Its result replaces its stream, no other norm is around it, and no stack inverts it."""
    blocks = [{"left": {"layer": "gate"}, "right": {"layer": "identity"}}]
    cell = partial(
        BranchedCell, width=W, num_heads=HEADS, norm=partial(layer_norm, eps=1e-6), causal=True,
        dropout=0.0, blocks=blocks,
    )  # fmt: skip
    stack = make_stack("n*2", more={"n": cell})
    assert not any("norm_in" in name for name, _ in stack.named_parameters())
    with pytest.raises(ConfigError, match="inverted, unlike BranchedCell"):
        make_stack("n*2", more={"n": cell}, reversible=True)
