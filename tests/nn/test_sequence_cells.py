"""LSTM, GRU and convolutions in place of attention: loops over tokens, documents apart, padding
unread, token by token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.nn.cache import Cache
from plmctl.nn.cells.base import Cell, RowSize
from plmctl.nn.cells.branches import ConvolutionBranches
from plmctl.nn.cells.convolution import (
    Convolution,
    DepthwiseConvolution,
    PlainConvolution,
    SeparableConvolution,
)
from plmctl.nn.cells.lightweight import (
    DynamicConvolution,
    KernelConvolution,
    LightweightConvolution,
)
from plmctl.nn.cells.recurrent import GRU, LSTM
from plmctl.nn.cells.separable_feedforward import SeparableFeedForward
from plmctl.nn.env import Env, Streams
from plmctl.nn.init import normal
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import NoPosition

W, HIDDEN = 6, 4
# -1: padding
DOCUMENTS = torch.tensor(
    [[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, -1, -1], [-1, -1, 0, 0, 1, 1, 1], [-1] * 7]
)
KINDS: dict[str, Callable[[bool], Cell]] = {
    "lstm": lambda causal: LSTM(width=W, hidden_width=HIDDEN, causal=causal),
    "gru": lambda causal: GRU(width=W, hidden_width=HIDDEN, causal=causal),
    "convolution": lambda causal: Convolution(
        width=W, hidden_width=HIDDEN, kernel=3, causal=causal
    ),
    "depthwise": lambda causal: DepthwiseConvolution(width=W, kernel=3, causal=causal),
    "lightweight": lambda causal: LightweightConvolution(
        width=W, num_heads=2, kernel=3, causal=causal, gated=False
    ),
    "gated lightweight": lambda causal: LightweightConvolution(
        width=W, num_heads=2, kernel=3, causal=causal, gated=True
    ),
    "dynamic": lambda causal: DynamicConvolution(
        width=W, num_heads=2, kernel=3, causal=causal, gated=True
    ),
    "ungated dynamic": lambda causal: DynamicConvolution(
        width=W, num_heads=3, kernel=3, causal=causal, gated=False
    ),
    "plain": lambda causal: PlainConvolution(
        width=W, kernel=3, causal=causal, outputs=4, activation="relu"
    ),
    "separable": lambda causal: SeparableConvolution(
        width=W, kernel=3, causal=causal, activation="silu"
    ),
    "branches": lambda causal: ConvolutionBranches(
        width=W,
        left=partial(PlainConvolution, width=W, kernel=1, outputs=9, activation="relu"),
        right=partial(SeparableConvolution, width=W, kernel=3, outputs=4),
        join=partial(SeparableConvolution, kernel=3, outputs=5),
        norm=partial(layer_norm, eps=1e-6),
        causal=causal,
        dropout=0.1,
    ),
    "separable feed-forward": lambda causal: SeparableFeedForward(
        width=W, inner_width=9, kernel=3, last_kernel=3, causal=causal, dropout=0.1
    ),
}
KIND = pytest.mark.parametrize("kind", KINDS)
TWICE = {"branches", "separable feed-forward"}  # a window of 3 over a window of 3
CAUSAL = pytest.mark.parametrize("causal", [True, False])


def made(kind: str, causal: bool) -> Cell:
    torch.manual_seed(0)
    return KINDS[kind](causal).double().eval()


def stream(rows: int = 4, length: int = 7) -> Tensor:
    return torch.randn(
        rows, length, W, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


def streams(x: Tensor) -> Streams:
    return Streams({"text": x})


def packed(documents: Tensor, cache: Cache | None = None, start: int = 0) -> Env:
    """The surroundings of rows whose tokens are of these documents."""
    real = documents >= 0
    tracks = {"document": documents.clamp(min=0), "real": real}
    seq = Seq(torch.zeros_like(documents), real.sum(1), tracks)
    places = torch.arange(start, start + documents.shape[1])[None]
    return Env({"text": BoundOp(Mask(None), NoPosition(), places)}, cache=cache, seq=seq)


def plain(rows: int, length: int, cache: Cache | None = None, start: int = 0) -> Env:
    seq = Seq(torch.zeros(rows, length, dtype=torch.long), torch.full((rows,), length), full=True)
    places = torch.arange(start, start + length)[None]
    return Env({"text": BoundOp(Mask(None), NoPosition(), places)}, cache=cache, seq=seq)


def lstm(p: dict[str, Tensor], x: list[Tensor]) -> list[Tensor]:
    """Gers et al., 2000: i, f, g, o = W x + U h + b; c = f c + i g; h = o tanh(c)."""
    h = c = torch.zeros(HIDDEN, dtype=torch.float64)
    found = []
    for token in x:
        i, f, g, o = (
            p["weight_ih"] @ token + p["bias_ih"] + p["weight_hh"] @ h + p["bias_hh"]
        ).split(HIDDEN)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        found.append(h)
    return found


def gru(p: dict[str, Tensor], x: list[Tensor]) -> list[Tensor]:
    """Cho et al., 2014, with the reset gate on U h + b: h = (1 - z) n + z h."""
    h = torch.zeros(HIDDEN, dtype=torch.float64)
    found = []
    for token in x:
        given, past = p["weight_ih"] @ token + p["bias_ih"], p["weight_hh"] @ h + p["bias_hh"]
        (r, z, n), (ur, uz, un) = given.split(HIDDEN), past.split(HIDDEN)
        z = torch.sigmoid(z + uz)
        h = (1 - z) * torch.tanh(n + torch.sigmoid(r + ur) * un) + z * h
        found.append(h)
    return found


def recurrent(cell: LSTM | GRU, x: Tensor, causal: bool) -> Tensor:
    """One document [T, W] -> [T, W]."""
    step = lstm if isinstance(cell, LSTM) else gru
    net = cell.read.net
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    states = step({name: getattr(net, f"{name}_l0") for name in names}, list(x))
    if not causal:
        back = step({name: getattr(net, f"{name}_l0_reverse") for name in names}, list(x.flip(0)))[
            ::-1
        ]
        states = [torch.cat(both) for both in zip(states, back, strict=True)]
    return torch.stack([cell.out.weight @ state + cell.out.bias for state in states])


def convolved(cell: Convolution, x: Tensor, causal: bool) -> Tensor:
    """One document [T, W] -> [T, W] (Gehring et al., 2017, sec. 3.2)."""
    found = []
    for t in range(len(x)):
        total = cell.taps.bias.clone()
        for tap in range(cell.kernel):
            place = t + tap - (cell.kernel - 1 if causal else cell.kernel // 2)
            if 0 <= place < len(x):
                total += cell.taps.weight[:, tap * W : (tap + 1) * W] @ x[place]
        found.append(
            cell.out.weight @ (total[:HIDDEN] * torch.sigmoid(total[HIDDEN:])) + cell.out.bias
        )
    return torch.stack(found)


def convolved_by_column(cell: DepthwiseConvolution, x: Tensor, causal: bool) -> Tensor:
    """One document [T, W] -> [T, W], by torch's own convolution with a group for each column."""
    before = cell.kernel - 1 if causal else cell.kernel // 2
    padded = functional.pad(x.T, (before, cell.kernel - 1 - before))
    return functional.conv1d(padded, cell.taps.weight[:, None], groups=W).T


def convolved_by_head(cell: KernelConvolution, x: Tensor, causal: bool) -> Tensor:
    """One document [T, W] -> [T, W] (Wu et al., 2020, sec. 4; Wu et al., 2019, sec. 3 and 4): the
    released modules' order of maps, token by token, tap by tap, column by column.
    """
    kernel, before = cell.window.kernel, cell.window.kernel - 1 if causal else 1
    z = x @ cell.inputs.weight.T + cell.inputs.bias
    if cell.gated:
        z = z[:, :W] * torch.sigmoid(z[:, W:])
    weight = cell.taps.weight  # type: ignore[attr-defined]
    y = torch.zeros_like(x)
    for t in range(len(x)):
        for column in range(W):
            head = column // (W // cell.num_heads)
            if isinstance(cell, DynamicConvolution):
                scores = torch.stack([weight[head * kernel + j] @ z[t] for j in range(kernel)])
            else:
                scores = weight[head]
            for tap, share in enumerate(scores.softmax(0)):
                if 0 <= t + tap - before < len(x):
                    y[t, column] += share * z[t + tap - before, column]
    return y @ cell.out.weight.T + cell.out.bias


def torchs(cell: PlainConvolution | SeparableConvolution, x: Tensor, causal: bool) -> Tensor:
    """One document [T, W] -> [T, outputs], by torch's own convolutions."""
    before = cell.kernel - 1 if causal else cell.kernel // 2
    padded = functional.pad(x.T, (before, cell.kernel - 1 - before))
    weight, last = cell.taps.weight, cell.projection
    if isinstance(cell, SeparableConvolution):
        y = functional.conv1d(padded, weight[:, None], groups=x.shape[1]).T
        return cell.activation(y @ last.weight.T + last.bias)
    kernels = weight.unflatten(1, (cell.kernel, -1)).mT
    return cell.activation(functional.conv1d(padded, kernels, last.bias).T)


def branched(cell: ConvolutionBranches, x: Tensor, causal: bool) -> Tensor:
    """One document [T, W] -> [T, W] (So et al., 2019, fig. 3): the narrower branch at the left."""
    parts: Any = (cell.left, cell.right)
    branches = [torchs(part, x, causal) for part in parts]
    both = torch.zeros(len(x), max(branch.shape[1] for branch in branches), dtype=x.dtype)
    for branch in branches:
        both[:, : branch.shape[1]] += branch
    normed = functional.layer_norm(both, both.shape[1:], cell.norm.weight, cell.norm.bias, 1e-6)
    y, joined = torch.zeros_like(x), torchs(cell.join, normed, causal)  # type: ignore[arg-type]
    y[:, : joined.shape[1]] = joined
    return y


def alone(cell: Cell, x: Tensor, causal: bool) -> Tensor:
    if isinstance(cell, PlainConvolution | SeparableConvolution):
        return torchs(cell, x, causal)
    if isinstance(cell, ConvolutionBranches):
        return branched(cell, x, causal)
    if isinstance(cell, SeparableFeedForward):
        return torchs(cell.down, torchs(cell.up, x, causal), causal)
    if isinstance(cell, KernelConvolution):
        return convolved_by_head(cell, x, causal)
    if isinstance(cell, Convolution):
        return convolved(cell, x, causal)
    if isinstance(cell, DepthwiseConvolution):
        return convolved_by_column(cell, x, causal)
    assert isinstance(cell, LSTM | GRU)
    return recurrent(cell, x, causal)


@pytest.mark.sampled(5)
@KIND
@CAUSAL
@torch.no_grad()
def test_it_is_the_loop_over_each_document_alone(kind: str, causal: bool) -> None:
    cell, x = made(kind, causal), stream()
    found = cell(streams(x), packed(DOCUMENTS))
    for row, documents in enumerate(DOCUMENTS):
        for number in documents.unique()[documents.unique() >= 0]:
            own = documents == number
            torch.testing.assert_close(
                found[row, own], alone(cell, x[row, own], causal), rtol=1e-10, atol=1e-10
            )
    assert found.isfinite().all()


@pytest.mark.sampled(5)
@KIND
@CAUSAL
@torch.no_grad()
def test_whole_rows_need_no_tracks(kind: str, causal: bool) -> None:
    cell, x = made(kind, causal), stream()
    whole = cell(streams(x), plain(4, 7))
    torch.testing.assert_close(
        whole, torch.stack([alone(cell, row, causal) for row in x]), rtol=1e-10, atol=1e-10
    )
    torch.testing.assert_close(
        cell(streams(x), packed(torch.zeros_like(DOCUMENTS))), whole, rtol=1e-12, atol=1e-12
    )


@pytest.mark.sampled(5)
@KIND
@CAUSAL
def test_no_gradient_crosses_documents_padding_or_time(kind: str, causal: bool) -> None:
    cell, x = made(kind, causal), stream().requires_grad_()
    y = cell(streams(x), packed(DOCUMENTS))
    weights = torch.randn(y.shape[-1], dtype=torch.float64)
    reach = 99 if isinstance(cell, LSTM | GRU) else 5 if kind in TWICE else 3
    for row, place in ((0, 3), (0, 4), (1, 4), (2, 3)):
        (grad,) = torch.autograd.grad(y[row, place] @ weights, x, retain_graph=True)
        for t in range(7):
            behind = t > place and causal
            near = abs(t - place) < reach if causal else abs(t - place) <= reach // 2
            read = DOCUMENTS[row, t] == DOCUMENTS[row, place] and not behind and near
            assert bool(grad[row, t].any()) == bool(read), (row, place, t)
        grad[row] = 0
        assert not grad.any()


@KIND
@torch.no_grad()
def test_token_by_token_equals_all_at_once(kind: str) -> None:
    cell, x = made(kind, True), stream()
    cache = Cache.of(1)
    steps = [cell(streams(x[:, t : t + 1]), plain(4, 1, cache, t)) for t in range(7)]
    torch.testing.assert_close(
        torch.cat(steps, 1), cell(streams(x), plain(4, 7)), rtol=1e-12, atol=1e-12
    )


@pytest.mark.sampled(5)
@KIND
@pytest.mark.parametrize("cuts", [[3, 1, 3], [1] * 7, [2, 5]])
@torch.no_grad()
def test_packed_and_padded_rows_in_pieces(kind: str, cuts: list[int]) -> None:
    cell, x = made(kind, True), stream()
    cache, found, start = Cache.of(1), [], 0
    for cut in cuts:
        piece = slice(start, start + cut)
        found.append(cell(streams(x[:, piece]), packed(DOCUMENTS[:, piece], cache, start)))
        start += cut
    torch.testing.assert_close(
        torch.cat(found, 1), cell(streams(x), packed(DOCUMENTS)), rtol=1e-12, atol=1e-12
    )


@KIND
@torch.no_grad()
def test_a_prompt_padded_in_front_goes_on_without_tracks(kind: str) -> None:
    """What generation does: rows of unequal length, then one token a row."""
    cell, x = made(kind, True), stream(2, 5)
    documents = torch.tensor([[0, 0, 0, 0], [-1, -1, 0, 0]])
    cache = Cache.of(1)
    cell(streams(x[:, :4]), packed(documents, cache))
    found = cell(streams(x[:, 4:]), plain(2, 1, cache, 4))
    torch.testing.assert_close(found[0, 0], alone(cell, x[0], True)[-1], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found[1, 0], alone(cell, x[1, 2:], True)[-1], rtol=1e-10, atol=1e-10)


@KIND
@torch.no_grad()
def test_rows_of_a_cache_can_be_chosen(kind: str) -> None:
    cell, x, cache = made(kind, True), stream(2, 4), Cache.of(1)
    cell(streams(x[:, :3]), plain(2, 3, cache))
    cache.select(torch.tensor([1, 1, 0]))
    found = cell(streams(x[:, 3:].repeat(2, 1, 1)[:3]), plain(3, 1, cache, 3))
    for row, before in enumerate((1, 1, 0)):
        text = torch.cat([x[before, :3], x[row % 2, 3:]])
        torch.testing.assert_close(
            found[row, 0], alone(cell, text, True)[-1], rtol=1e-10, atol=1e-10
        )


@KIND
def test_what_looks_ahead_cannot_read_token_by_token(kind: str) -> None:
    with pytest.raises(UsageError, match="token by token"):
        made(kind, False)(streams(stream(1, 1)), plain(1, 1, Cache.of(1)))


def test_an_even_window_has_no_middle() -> None:
    with pytest.raises(ConfigError, match="odd"):
        Convolution(width=W, hidden_width=HIDDEN, kernel=2, causal=False)
    assert Convolution(width=W, hidden_width=HIDDEN, kernel=2, causal=True).reach == 1


def test_a_depthwise_convolution_counts_its_taps() -> None:
    cell = DepthwiseConvolution(width=W, kernel=3, causal=False)
    assert cell.work(RowSize(tokens=7)).macs == 7 * 3 * W


@CAUSAL
@pytest.mark.parametrize("kernel", [1, 7, 31])
@pytest.mark.parametrize("length", [5, 32, 70])
@torch.no_grad()
def test_lightweight_convolution_is_torchs_with_a_group_a_column(
    causal: bool, kernel: int, length: int
) -> None:
    """Also over several blocks of tokens, and with kernels longer than the row."""
    torch.manual_seed(0)
    cell = LightweightConvolution(
        width=W, num_heads=2, kernel=kernel, causal=causal, gated=False
    ).double()
    x = stream(2, length)
    before = kernel - 1 if causal else kernel // 2
    padded = functional.pad(cell.inputs(x).mT, (before, kernel - 1 - before))
    kernels = cell.taps.weight.softmax(-1).repeat_interleave(W // 2, 0)[:, None]
    convolved = cell.out(functional.conv1d(padded, kernels, groups=W).mT)
    torch.testing.assert_close(
        cell(streams(x), plain(2, length)), convolved, rtol=1e-10, atol=1e-10
    )


@torch.no_grad()
def test_dynamic_convolution_over_several_blocks_is_the_loop() -> None:
    torch.manual_seed(0)
    cell, x = (
        DynamicConvolution(width=W, num_heads=2, kernel=9, causal=True, gated=True).double(),
        stream(1, 40),
    )
    torch.testing.assert_close(
        cell(streams(x), plain(1, 40))[0],
        convolved_by_head(cell, x[0], True),
        rtol=1e-10,
        atol=1e-10,
    )


def test_dropout_acts_on_kernels_after_the_softmax() -> None:
    """With one tap of three left, an output is 0 or 1.5 times one third of what is read."""
    cell = LightweightConvolution(
        width=W, num_heads=2, kernel=3, causal=False, gated=False, dropout=0.5
    )
    with torch.no_grad():
        for map_ in (cell.inputs, cell.out):
            map_.weight.copy_(torch.eye(W))
            map_.bias.zero_()
        cell.taps.weight.zero_()
    torch.manual_seed(0)
    y = cell.train()(streams(torch.ones(1, 40, W)), plain(1, 40))[0, 1:-1]
    kept = (y * 3 / 2).round()  # taps that are left, of each token and head
    torch.testing.assert_close(y, kept * 2 / 3, rtol=0, atol=1e-4)
    assert set(kept.unique().tolist()) <= {0.0, 1.0, 2.0, 3.0}
    assert len(kept.unique()) >= 2
    assert torch.equal(kept[:, :3], kept[:, :1].expand(-1, 3))  # the columns of a head


@pytest.mark.parametrize(
    ("kind", "macs"),
    [
        # two maps of W x W and the sums; gates double the first map, and tokens make kernels
        ("lightweight", 2 * W * W + 3 * W),
        ("dynamic", 3 * W * W + W * 2 * 3 + 3 * W),
    ],
)
def test_work_of_convolutions_by_head(kind: str, macs: int) -> None:
    assert made(kind, True).work(RowSize(tokens=7)).macs == 7 * macs


@CAUSAL
@torch.no_grad()
def test_adjacent_tokens_count_before_anything_is_learned(causal: bool) -> None:
    """Of t - 1, t and t + 1, or of t - 2, t - 1 and t: half of those next to t."""
    cell = DepthwiseConvolution(width=W, kernel=3, causal=causal, adjacent=0.5).double()
    cell.taps.weight.zero_()
    x = torch.randn(1, 5, W, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = cell(streams(x), packed(torch.zeros(1, 5, dtype=torch.long)))[0]
    padded = functional.pad(x[0], (0, 0, 1, 1))
    behind = torch.zeros_like(x[0]) if causal else padded[2:]
    assert torch.allclose(found, (padded[:-2] + behind) / 2)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_first_weights_follow_the_seed_and_torchs_rule(kind: str) -> None:
    a, b = made(kind, True), made(kind, False)
    normal(a, std=0.02, generator=torch.Generator().manual_seed(3))
    c = KINDS[kind](True).double()
    normal(c, std=0.02, generator=torch.Generator().manual_seed(3))
    assert all(x.equal(y) for x, y in zip(a.parameters(), c.parameters(), strict=True))
    recurrence = a.read.net.weight_hh_l0  # type: ignore[union-attr]
    assert HIDDEN**-0.5 * 0.5 < float(recurrence.detach().abs().max()) <= HIDDEN**-0.5
    assert (
        float(a.projection.weight.detach().abs().max())
        < 0.1
        < float(b.projection.weight.detach().abs().max())
    )
