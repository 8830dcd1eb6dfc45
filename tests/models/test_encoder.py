"""The whole backbone: published sizes, parity with transformers, leaks, packed rows, recorded
states, compilation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from plmctl.attention.patterns.anticausal import Anticausal
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.prefix import CausalWithPrefix
from plmctl.attention.patterns.window import Window
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.heads.pooler import Pooler
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import ALiBi, Learned, NoPosition, Position, Rotary
from plmctl.nn.residual import PostNorm, PreNorm
from plmctl.nn.stack import Stack
from plmctl.nn.tables import count
from plmctl.training.checkpoint import load_exactly
from tests.marks import mark_slow

V, T = 50, 9


def encoder(
    *,
    pattern: Pattern | None = None,
    position: Position | None = None,
    pre: bool = False,
    layers: int = 2,
    width: int = 16,
    heads: int = 2,
    inner: int = 32,
    vocab_size: int = V,
    max_length: int = 16,
    dropout: float = 0.0,
) -> Encoder:
    norm = partial(layer_norm, width=width, eps=1e-12)
    cells = {
        "a": partial(Attention, width=width, num_heads=heads, dropout=dropout),
        "f": partial(FeedForward, width=width, inner_width=inner, activation="gelu"),
    }
    return Encoder(
        embedding=Embedding(
            vocab_size=vocab_size, width=width, dropout=dropout, segments=2, norm=norm
        ),
        position=position or Learned(width=width, max_length=max_length),
        stack=Stack(
            layout=f"af*{layers}",
            cells=cells,
            residual=(PreNorm if pre else PostNorm)(norm=norm, dropout=dropout),
        ),
        pattern=pattern or Full(),
    )


def perturbed(module: nn.Module, seed: int = 0) -> nn.Module:
    """Norm weights and biases away from 1 and 0: a wrong place for either must show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return module


def batch(ids: torch.Tensor, length: torch.Tensor | None = None, **tracks: torch.Tensor) -> Batch:
    full = length is None
    length = torch.full((len(ids),), ids.shape[1]) if length is None else length
    return Batch(torch.arange(len(ids)), {"text": Seq(ids, length, tracks, full)})


def ids(rows: int, length: int = T, seed: int = 0) -> torch.Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("layers", "width", "heads", "published"),
    [
        (2, 128, 2, 4_385_920),
        (4, 256, 4, 11_170_560),
        (4, 512, 8, 28_763_648),
        (8, 512, 8, 41_373_184),
        (12, 768, 12, 109_482_240),
        (24, 1024, 16, 335_141_888),
    ],
)
def test_bert_sizes_have_the_published_parameter_counts(
    layers: int, width: int, heads: int, published: int
) -> None:
    with torch.device("meta"):
        backbone = encoder(
            layers=layers,
            width=width,
            heads=heads,
            inner=4 * width,
            vocab_size=30522,
            max_length=512,
        )
        model = Model(backbone=backbone, heads={"pooler": Pooler(width=width)})
    assert count(model) == published


@pytest.mark.parity
@pytest.mark.parametrize("padded", [False, True])
def test_hidden_states_are_those_of_transformers(padded: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=V,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    theirs = perturbed(transformers.BertModel(config)).eval()
    ours = encoder().eval()
    load_exactly(
        ours,
        _from_bert({k: v for k, v in theirs.state_dict().items() if "pooler" not in k}),
        file=Path("bert"),
    )
    text, segment = ids(3), torch.tensor([[0] * 4 + [1] * 5]).expand(3, T)
    length = torch.tensor([9, 6, 1]) if padded else None
    mask = torch.ones(3, T) if length is None else (torch.arange(T) < length[:, None]).float()
    expected = theirs(
        input_ids=text, token_type_ids=segment, attention_mask=mask, output_hidden_states=True
    ).hidden_states
    found = ours(batch(text, length, segment=segment), record=frozenset({"hidden"})).recorded[
        "hidden"
    ]
    assert len(found) == len(expected) == 3
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a[mask.bool()], b[mask.bool()], atol=1e-5, rtol=1e-5)


def _from_bert(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    e = "embeddings."
    found = {
        f"embedding.{n}.weight": weights[f"{e}{o}_embeddings.weight"]
        for n, o in (("token", "word"), ("segment", "token_type"))
    }
    found["position.table.weight"] = weights[f"{e}position_embeddings.weight"]
    for kind in ("weight", "bias"):
        found[f"embedding.norm.{kind}"] = weights[f"{e}LayerNorm.{kind}"]
        for i in range(2):
            a, f, layer = f"stack.blocks.a.{i}.", f"stack.blocks.f.{i}.", f"encoder.layer.{i}."
            parts = [
                weights[f"{layer}attention.self.{name}.{kind}"]
                for name in ("query", "key", "value")
            ]
            found[f"{a}cell.qkv.{kind}"] = torch.cat(parts)
            found[f"{a}cell.out.{kind}"] = weights[f"{layer}attention.output.dense.{kind}"]
            found[f"{a}norm_sum.{kind}"] = weights[f"{layer}attention.output.LayerNorm.{kind}"]
            found[f"{f}cell.up.{kind}"] = weights[f"{layer}intermediate.dense.{kind}"]
            found[f"{f}cell.down.{kind}"] = weights[f"{layer}output.dense.{kind}"]
            found[f"{f}norm_sum.{kind}"] = weights[f"{layer}output.LayerNorm.{kind}"]
    return found


DOCUMENT = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1, 1, 1, 1]])
SEGMENT = torch.tensor([[0] * 4 + [1] * 5, [0] * 2 + [1] * 7])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "pattern",
    [Full(), Causal(), Anticausal(), CausalWithPrefix(), Window(reach=2)],
    ids=lambda p: type(p).__name__,
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.2])  # with dropout: the other kernel
def test_gradients_flow_exactly_where_the_pattern_allows(
    pattern: Pattern, packed: bool, dropout: float
) -> None:
    torch.manual_seed(0)
    model = perturbed(encoder(pattern=pattern, layers=1, dropout=dropout))
    tracks = {"segment": SEGMENT} | ({"document": DOCUMENT} if packed else {})
    given = batch(ids(2), torch.tensor([9, 7]), **tracks)
    seq = given.text
    dense = (pattern & Padding() & Documents()).dense(seq)
    assert dense is not None
    # the residual connection sees oneself
    allowed = dense.expand(2, 1, T, T)[:, 0] | torch.eye(T, dtype=torch.bool)
    x = model.embed(given).detach().requires_grad_()
    for i in range(T):
        flows = torch.zeros(2, T, dtype=torch.bool)
        # a dropped probability hides an allowed place, seldom eight times
        for _ in range(8 if dropout else 1):
            (grad,) = torch.autograd.grad(model.encode(x, given).last[:, i].pow(3).sum(), x)
            flows |= grad.abs().sum(-1) > 0
        assert torch.equal(flows, allowed[:, i])


@pytest.mark.parametrize("pattern", [Full(), Causal()], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize(
    "position", [None, Rotary(), ALiBi(num_heads=2), NoPosition()], ids=lambda p: type(p).__name__
)
def test_packed_documents_are_what_each_is_alone(
    pattern: Pattern, position: Position | None
) -> None:
    torch.manual_seed(0)
    model = perturbed(encoder(pattern=pattern, position=position)).eval()
    text = ids(1, 12)
    sizes = [5, 3, 4]
    document = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))[None]
    places = torch.cat([torch.arange(n) for n in sizes])[None]
    packed = model(batch(text, document=document, position=places)).last[0]
    alone = torch.cat([model(batch(part)).last[0] for part in text.split(sizes, dim=1)])
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)


def test_padding_changes_nothing_and_an_empty_row_is_finite() -> None:
    torch.manual_seed(0)
    model = perturbed(encoder()).eval()
    text = ids(3)
    out = model(batch(text, torch.tensor([9, 4, 0]))).last
    torch.testing.assert_close(
        out[1, :4], model(batch(text[1:2, :4])).last[0], atol=1e-5, rtol=1e-5
    )
    assert torch.isfinite(out).all()


def test_pre_norm_records_the_normed_last_state() -> None:
    model = encoder(pre=True, layers=3).eval()
    hidden = model(batch(ids(2)), record=frozenset({"hidden"}))
    assert len(hidden.recorded["hidden"]) == model.stack.num_layers + 1 == 4
    assert hidden.recorded["hidden"][-1] is hidden.last
    assert not model(batch(ids(2))).recorded


def test_rows_longer_than_the_places_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 16"):
        encoder()(batch(ids(1, 17)))


def test_missing_segments_are_segment_zero() -> None:
    model = encoder().eval()
    text = ids(2)
    assert torch.equal(
        model(batch(text)).last, model(batch(text, segment=torch.zeros_like(text))).last
    )


def test_dropout_resumes_with_the_global_generator() -> None:
    model = encoder(dropout=0.3)
    torch.manual_seed(1)
    model(batch(ids(2)))
    state = torch.get_rng_state()
    first = model(batch(ids(2))).last
    torch.set_rng_state(state)
    assert torch.equal(first, model(batch(ids(2))).last)
    assert not torch.equal(first, model(batch(ids(2))).last)


GIVEN = {"full": batch(ids(2)), "packed": batch(ids(2), torch.tensor([9, 4]), document=DOCUMENT)}
GRAPHS = [(rows, lengths) for rows in GIVEN for lengths in ("one length", "any length")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("rows", "lengths"), mark_slow(GRAPHS, [("full", "one length"), ("packed", "any length")])
)
def test_the_model_is_one_graph(rows: str, lengths: str) -> None:
    given, dynamic = GIVEN[rows], lengths == "any length"
    torch.manual_seed(0)
    model = perturbed(encoder(pattern=Causal())).eval()
    torch.compiler.reset()
    graph = torch.compile(model, backend="eager", fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(graph(given).last, model(given).last, atol=1e-6, rtol=1e-6)
