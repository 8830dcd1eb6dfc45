"""The varlen kernel: the dense answer with a loop in place of torch's function, what it refuses,
and that torch's function takes what it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen as torch_varlen
from typer.testing import CliRunner

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import cost
from plmctl.attention.kernels import auto, varlen
from plmctl.attention.kernels.banded import HeadsPlan
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense, Mask
from plmctl.attention.kernels.varlen import Packing, Varlen, VarlenPlan, find_varlen
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.window import Window
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from plmctl.models.remarks import remark_on_model
from plmctl.nn.positions import ALiBi
from plmctl.runs.contract.stand_in import TINY
from tests.attention import varlen_loop
from tests.attention.test_banded import PATTERNS, B, H, T, inputs, positions, rows
from tests.attention.varlen_loop import BANDS


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over documents in place of torch's function, on the CPU."""
    monkeypatch.setattr(torch_varlen, "varlen_attn", varlen_loop.varlen_attn)
    monkeypatch.setattr(Varlen, "devices", frozenset({"cpu"}))


def computed(made: Kernel, pattern: Pattern, seq: Seq) -> list[Tensor]:
    """The answer for real tokens, and the gradients of a sum of it with weights."""
    q, k, v = inputs(seq.ids.shape[1])
    place = positions(seq)
    y = made.plan(pattern, seq).attend(q, k, v, q_positions=place, k_positions=place)
    y = y * seq.real[:, None, :, None]
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return [y, *torch.autograd.grad((y * weight).sum(), [q, k, v])]


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_it_is_the_dense_answer(name: str, packed: bool, padded: bool) -> None:
    seq = rows(padded=padded, packed=packed)
    pattern = BANDS[name] & Padding() & Documents()
    plan = Varlen().plan(pattern, seq)
    assert isinstance(plan, VarlenPlan | HeadsPlan)
    found, expected = (computed(made, pattern, seq) for made in (Varlen(), Dense()))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize("name", sorted(PATTERNS.keys() - BANDS.keys()))
def test_what_is_no_band_is_refused(name: str) -> None:
    pattern = PATTERNS[name] & Padding() & Documents()
    with pytest.raises(ConfigError, match=r"dense, banded or flex for this pattern.*\n.*auto"):
        Varlen().plan(pattern, rows(padded=True, packed=True))
    problem = Varlen().problem(pattern, 1000, bias=None, dropout=0.0)
    assert "without global tokens, gaps or blocks" in str(problem)


@pytest.mark.usefixtures("loop")
def test_a_pattern_alone_sees_padding() -> None:
    seq = rows(padded=True, packed=True)
    found, expected = (computed(made, Window(reach=5), seq) for made in (Varlen(), Dense()))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.usefixtures("loop")
def test_columns_of_heads_are_filled_up() -> None:
    seq = rows(padded=True, packed=False)
    place = positions(seq)
    given = [torch.randn(B, H, T, 5, dtype=torch.float64) for _ in range(3)]
    pattern = Window(reach=3) & Padding()
    found, expected = (
        made.plan(pattern, seq).attend(*given, q_positions=place, k_positions=place)
        for made in (Varlen(), Dense())
    )
    real = seq.real[:, None, :, None]
    torch.testing.assert_close(found * real, expected * real, atol=1e-10, rtol=1e-10)
    assert not found[2, :, -1].any()  # padding


def packed_rows(documents: list[list[int]]) -> Seq:
    document = torch.tensor(documents)
    length = (document >= 0).sum(1)
    tracks = {"document": document, "real": document >= 0}
    return Seq(torch.zeros_like(document), length, tracks, full=bool((document >= 0).all()))


def test_where_documents_begin() -> None:
    made = Packing.of(
        packed_rows([[0, 0, 0, 1, 1], [0, 0, 0, -1, -1]]), padding=True, documents=True
    )
    assert made is not None
    assert made.index is not None
    assert made.index.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert made.begins.tolist() == [0, 3, 5, 8]
    assert made.begins.dtype == torch.int32
    assert made.longest == 5  # at most a row; rounded to 128
    full = packed_rows([[0, 0, 1], [0, 0, 0]])
    made = Packing.of(full, padding=True, documents=True)
    assert made is not None
    assert made.index is None
    assert made.begins.tolist() == [0, 2, 3, 6]
    made = Packing.of(full, padding=True, documents=False)
    assert made is not None
    assert made.begins.tolist() == [0, 3, 6]
    long = Packing.of(rows(padded=False, packed=False, length=500), padding=True, documents=False)
    assert long is not None
    assert long.longest == 500


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize(
    ("documents", "served"),
    [
        ([[0, 0, 1, 0, 0, 1]], set()),  # two places
        ([[0, 0, -1, -1, 0, 0]], {"causal", "full"}),  # distances count in a window alone
        ([[-1, -1, 0, 0, 0, 0]], {"causal", "full", "window"}),  # padded at the left
        ([[-1, -1, -1]], set()),
    ],
)
def test_rows_that_it_cannot_pack_are_computed_elsewhere(
    documents: list[list[int]], served: set[str]
) -> None:
    seq = packed_rows(documents)
    for name in ("causal", "full", "window"):
        pattern = BANDS[name] & Window(reach=2 if name == "window" else 99) & Documents()
        pattern = pattern & Padding()
        assert isinstance(Varlen().plan(pattern, seq), VarlenPlan) == (name in served)
        q = torch.randn(1, H, seq.ids.shape[1], 8)
        place = positions(seq)
        found, expected = (
            made.plan(pattern, seq).attend(q, q, q, q_positions=place, k_positions=place)
            for made in (Varlen(), Dense())
        )
        real = seq.real[:, None, :, None]
        torch.testing.assert_close(found * real, expected * real)


def small_config(*words: str, kernel: str) -> Any:
    small = ["size=tiny", "size.width=16", "size.num_heads=2", "size.inner_width=16"]
    small += ["size.num_layers=3", f"format.max_length={T}", f"kernel={kernel}"]
    return compose("pretrain", "bert", [*small, "model.embedding.dropout=0", *words])


def small_model(*words: str, kernel: str) -> Model:
    cfg = small_config(*words, kernel=kernel)
    return build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize(
    "words",
    [
        ["pattern=full"],
        ["pattern=window", "pattern.reach=[3,9,3]"],
        ["pattern=window", "pattern.reach=4", "position=rotary"],
        ["pattern=causal"],
    ],
    ids=str,
)
@pytest.mark.parametrize("packed", [False, True])
def test_whole_models(words: list[str], packed: bool) -> None:
    seq = rows(padded=True, packed=packed)
    seq = Seq(torch.arange(B * T).view(B, T) % TINY.size, seq.length, seq.tracks)
    batch = Batch(torch.arange(B), {"text": seq})
    found = []
    for kernel in ("varlen", "dense"):
        model = small_model(*words, kernel=kernel).double()
        last = model(batch).last * seq.real[..., None]
        used = [p for p in model.backbone.parameters() if p.requires_grad]
        grads = torch.autograd.grad(last.square().sum(), used, allow_unused=True)
        found.append([last, *[g for g in grads if g is not None]])
    torch.testing.assert_close(found[0], found[1], atol=1e-9, rtol=1e-9)


@pytest.mark.usefixtures("loop")
def test_a_batch_is_packed_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[bool, bool]] = []
    pack = Packing.of

    def counted(seq: Seq, *, padding: bool, documents: bool) -> Packing | None:
        made.append((padding, documents))
        return pack(seq, padding=padding, documents=documents)

    monkeypatch.setattr(Packing, "of", counted)
    model = small_model("pattern=window", "pattern.reach=[3,9,3]", kernel="varlen")
    for number in (1, 2):
        model(Batch(torch.arange(B), {"text": rows(padded=True, packed=True)}))
        assert made == [(True, True)] * number


def test_elsewhere_the_banded_kernel_computes() -> None:
    seq = rows(padded=True, packed=True)
    pattern = Window(reach=5) & Padding() & Documents()
    found, expected = (computed(made, pattern, seq) for made in (Varlen(), Dense()))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    assert not isinstance(Varlen().plan(pattern, seq), VarlenPlan)
    assert isinstance(Varlen().plan(pattern, seq, start=T - 1), Mask)


@pytest.mark.usefixtures("loop")
def test_what_it_cannot_add_is_said() -> None:
    seq = rows(padded=False, packed=False)
    plan = Varlen().plan(Window(reach=3), seq)
    q, k, v = inputs()
    given = {"q_positions": positions(seq), "k_positions": positions(seq)}
    with pytest.raises(ConfigError, match=r"dropout=0\.1: 0 with kernel=varlen"):
        plan.attend(q, k, v, dropout=0.1, **given)
    with pytest.raises(ConfigError, match="positions of this model change scores"):
        plan.attend(q, k, v, bias=ALiBi(num_heads=H).bias, **given)


def test_a_torch_without_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(query: Tensor, is_causal: bool = False) -> Tensor:
        return query

    monkeypatch.setattr(torch_varlen, "varlen_attn", older)
    with pytest.raises(ConfigError, match=r"torch 2\.11 or later.*window_size and scale\n.*auto"):
        find_varlen()
    monkeypatch.setitem(__import__("sys").modules, "torch.nn.attention.varlen", None)
    with pytest.raises(ConfigError, match="has no varlen_attn"):
        find_varlen()


@pytest.mark.parametrize("compiled", [False, True])
def test_torchs_own_function_takes_what_it_is_given(
    monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    """Tensors without numbers go through its arguments, forward and backward."""
    seq = rows(padded=True, packed=True)
    monkeypatch.setattr(Varlen, "devices", frozenset({"cpu"}))
    plan = Varlen().plan(Window(reach=5) & Padding() & Documents(), seq)
    assert isinstance(plan, VarlenPlan)
    assert plan.function is torch_varlen.varlen_attn
    index, begins = plan.packing.index, plan.packing.begins
    assert index is not None
    packing = Packing(index.to("meta"), begins.to("meta"), plan.packing.longest, True)
    plan = VarlenPlan(plan.pattern, seq, plan.band, packing, plan.function)
    q = torch.empty(B, H, T, 8, device="meta", dtype=torch.bfloat16, requires_grad=True)
    place = torch.empty(1, T, device="meta", dtype=torch.long)

    def run(q: Tensor) -> Tensor:
        return plan.attend(q, q, q, q_positions=place, k_positions=place)

    call = torch.compile(run, backend="eager", fullgraph=True) if compiled else run
    y = call(q)
    assert (y.shape, y.dtype) == (q.shape, q.dtype)
    (grad,) = torch.autograd.grad(y.sum(), q)
    assert grad.shape == q.shape


def test_types_and_widths_that_the_gpu_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for x, problem in [
        (torch.zeros(1, 8), r"train\.precision: bf16 or fp16 with kernel=varlen, not float32"),
        (torch.zeros(1, 264).half(), "264: at most 256 columns"),
    ]:
        with pytest.raises(ConfigError, match=problem):
            varlen._check_tensors(x)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Old")
    with pytest.raises(ConfigError, match=r"flex on Old: varlen needs compute capability 8\.0"):
        varlen._check_tensors(torch.zeros(1, 8).half())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "kernel varlen: 100% of the scores are computed, by torch's varlen_attn on CUDA"),
        (
            ["model.embedding.dropout=0.1"],
            "model.stack.cells.a.dropout=0.1: 0 with kernel=varlen, which has no dropout on"
            " probabilities\n  fix: kernel=auto  # or model.stack.cells.a.dropout=0",
        ),
        (["position=alibi"], "the positions of this model change scores"),
        (["pattern=longformer", "pattern.parts.0.reach=4"], "for this pattern"),
    ],
    ids=str,
)
def test_what_is_said_before_training(words: list[str], told: str) -> None:
    model = small_model(*words, kernel="varlen")
    try:
        found = remark_on_model(model.backbone, Full(), 16)["attention"]
    except ConfigError as error:
        found = str(error)
    assert told in found
    assert ("fix: kernel=auto" in found) == bool(words)


def test_the_dry_run_refuses_what_it_cannot_train(tokens_of: Callable[..., Path]) -> None:
    words = ["size=tiny", "format.max_length=64", f"data.path={tokens_of('wordpiece')}"]
    words = ["pretrain", "bert", *words, "objective=[mlm]", "kernel=varlen", "--dry-run"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 2
    assert "model.stack.cells.a.dropout=0.1: 0 with kernel=varlen, which has no" in done.output
    mended = CliRunner().invoke(make_app(), [*words, "model.stack.cells.a.dropout=0"])
    assert mended.exit_code == 0, mended.output
    of_two = ["pretrain", "bart", words[2], words[3], words[4], "kernel=varlen", "--dry-run"]
    assert (
        "- model.decoder.stack.cells.a.dropout=0.1: 0"
        in CliRunner().invoke(make_app(), of_two).output
    )


def test_its_cost_has_no_stored_scores() -> None:
    """2 L H T keys fewer numbers of a row than the dense kernel, and the FLOPs of its blocks."""
    models = [small_model("pattern=full", kernel=kernel) for kernel in ("dense", "varlen")]
    dense, own = (cost(model, length=1024, predicted={}) for model in models)
    assert dense.saved_per_row - own.saved_per_row == 2 * 3 * 2 * 1024 * 1024
    assert own.flops_per_token == dense.flops_per_token
    banded = small_model("pattern=window", "pattern.reach=64", kernel="varlen")
    share = Varlen().share(Window(reach=64), 1024)
    assert share == pytest.approx((8 + 2 * 7) / 64)
    scores = cost(banded, length=1024, predicted={}).macs_per_token["attention scores"]
    assert scores == pytest.approx(share * dense.macs_per_token["attention scores"])


def test_narrow_heads_are_refused_for_flex() -> None:
    backbone: Any = small_model(kernel="flex").backbone
    assert "heads of 16 columns or more" in str(backbone.find_kernel_problem(T))
    wide: Any = small_model("size.width=32", kernel="flex").backbone
    assert wide.find_kernel_problem(T) is None


def test_a_model_settles_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout on probabilities, or cells that flex does not know, leave the banded kernel."""
    monkeypatch.setattr(auto, "can_compile_for_gpu", lambda: True)
    for words, fits in [
        (["size.width=32"], True),
        ([], False),  # heads of 8 columns
        (["size.width=32", "model.stack.cells.a.dropout=0.1"], False),
        (["model.stack.cells.o.dropout=0", "model.stack.layout=of*2", "position=none"], False),
    ]:
        backbone: Any = small_model(*words, kernel="auto").backbone
        assert (backbone.kernel.flex is not None) is fits
