"""A model without the residual columns that are 0 computes the same as with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from plmctl.artifacts.compacting import compact_source
from plmctl.artifacts.loading import Source
from plmctl.artifacts.narrowing import find_axes
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from plmctl.nn.norm import CountedLayerNorm, CountedRMSNorm
from plmctl.training.checkpoint import tensors_of
from plmctl.training.pruning.width import ResidualWidth
from plmctl.training.stabilisers.base import Beginning
from tests.artifacts.test_compacting import emptied
from tests.artifacts.test_shrinking import batch, built, source

HOW: Any = {"sparsity": 0.3, "begin_at": 0.0, "end_at": 0.0, "every": 1, "importance": "magnitude"}
HALVES = "model.stack.columns={a: [0, 0.5], w: [0.5, 1]}"


def pruned(found: Source, sparsity: float = 0.3, noise: float = 0.3) -> Source:
    """`found` after one choice of columns, with `noise` on every tensor before it."""
    model = built(found)
    draws = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        weight.data += noise * torch.randn(weight.shape, generator=draws, dtype=weight.dtype)
    part = ResidualWidth(**HOW | {"sparsity": sparsity}, find_axes=lambda: find_axes(found.config))
    nothing: Any = None
    part.begin(Beginning(model, nothing, frozenset(), 1, False, lambda: iter(())))
    part.share.set(1.0)
    part.after_step(model, 1)
    return replace(found, tensors=tensors_of(model))


def kept_columns(found: Source) -> Tensor:
    return next(tensor for name, tensor in found.tensors.items() if name.endswith(".counted"))


def answers(found: Source) -> dict[str, Tensor]:
    """The states of a batch, and what each head makes of them."""
    model, rows = built(found), batch()
    with torch.no_grad():
        last = model.backbone(rows).last
        out = {name: head(last) for name, head in model.heads.items() if name in ("mlm", "clm")}
        if "pooler" in model.heads:
            out["nsp"] = model.heads["nsp"](model.heads["pooler"](last[:, 0]))
    return {"states": last, **out}


CASES = {
    "after norms": ("bert", "size.num_heads=4"),
    "before norms": ("modern_encoder",),
    "shared layers": ("albert", "heads={}", "objective=[mlm]"),
    "narrow table": ("albert", "heads={}", "objective=[mlm]", "model.embedding.table_width=8"),
    "decoder": ("gpt",),
    "gated": ("modern_decoder",),
    "parallel": ("bert", "model.stack.layout=a|f*2"),
    "convolutions": ("bert", "model.stack.layout=akpf*2"),
    "unlike layers": ("bert", "model.stack.by_layer={a: {num_heads: [4, 2]}}"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_the_narrow_model_computes_the_same(name: str) -> None:
    found = pruned(source(*CASES[name], "size.num_layers=2")[0])
    compact, line = compact_source(found)
    assert line == "left out, since they add nothing: 5 of 16 residual columns"
    assert compact.config["size"]["width"] == 11
    wide, narrow = answers(found), answers(compact)
    kept = kept_columns(found)
    assert not bool(wide["states"][..., ~kept].any())
    wide["states"] = wide["states"][..., kept]
    assert wide.keys() == narrow.keys()
    for own, other in zip(wide.values(), narrow.values(), strict=True):
        torch.testing.assert_close(other, own, rtol=1e-9, atol=1e-9)
    kinds = {type(part) for part in built(compact).modules()}
    assert not kinds & {CountedLayerNorm, CountedRMSNorm}
    assert kept_columns(found).sum() == 11


def test_columns_heads_and_neurons_go_together() -> None:
    found = pruned(emptied(source("bert", "size.num_layers=2")[0], 0.5), 0.5, 0.0)
    compact, line = compact_source(found)
    assert line.endswith("2 of 4 heads, 32 of 64 neurons, 8 of 16 residual columns")
    wide = answers(found)["states"][..., kept_columns(found)]
    torch.testing.assert_close(answers(compact)["states"], wide, rtol=1e-9, atol=1e-9)


def test_a_published_class_holds_it_where_heads_are_as_wide_as_the_stream() -> None:
    compact, _ = compact_source(pruned(emptied(source("bert")[0], 0.5), 0.5, 0.0))
    exported = hf.export(compact.config, compact.tensors, pad=0)
    config = transformers.BertConfig(**exported.settings)
    assert (config.hidden_size, config.num_attention_heads, config.intermediate_size) == (8, 1, 16)
    theirs = transformers.BertForPreTraining(config).double().eval()
    left = theirs.load_state_dict(exported.tensors, strict=False)
    assert not left.unexpected_keys
    rows = batch().text
    seen = theirs.bert(rows.ids, attention_mask=rows.real.long()).last_hidden_state
    wanted = answers(compact)["states"]
    torch.testing.assert_close(seen[rows.real], wanted[rows.real], rtol=1e-6, atol=1e-6)
    for wrong, words in (
        (pruned(source("bert")[0], 0.5), "norms that count all columns"),
        (compact_source(pruned(source("bert")[0], 0.5))[0], "cells.a.head_width=8"),
    ):
        with pytest.raises(ConfigError, match=words):
            hf.export(wrong.config, wrong.tensors, pad=0)


def test_a_part_that_was_trained_anew_is_named() -> None:
    found = pruned(source("bert")[0])
    new = {**found.tensors, "heads.pooler.dense.weight": torch.ones(16, 16).double()}
    with pytest.raises(ConfigError, match=r"pooler.dense.weight has been trained anew"):
        compact_source(replace(found, tensors=new))


REFUSED = {
    "t5": (("t5",), "EncoderDecoder"),
    "waves": (("bert", "position=sinusoidal"), "Sinusoidal"),
    "scaled": (("bert", "model.embedding.scaled=true"), "Embedding"),
    "recurrent": (("bert", "model.stack.layout=alf*2"), "LSTM with .*"),
    "groups": (("bert", "model.stack.layout=awf*2"), "LightweightConvolution"),
    "branches": (("bert", "model.stack.layout=avf*2"), "ConvolutionBranches"),
    "distances": (("bert", "model.stack.layout=ef*2", "position=none"), "DistanceAttention"),
    "halves": (("bert", "model.stack.layout=a|wf*2", HALVES), "stack.columns"),
    "no maps": (("bert", "model.stack.cells.a.projections=none"), "a.head_width"),
    "boundaries": (("spanbert",), "heads.sbo.inner.weight"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_ties_columns_together_is_named(name: str) -> None:
    words, message = REFUSED[name]
    with pytest.raises(ConfigError, match=f"{message} ties them together"):
        find_axes(source(*words)[0].config)
