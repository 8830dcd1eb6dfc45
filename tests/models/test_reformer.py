"""The Reformer as a model: heads over both streams, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model

WORDS = [
    "size=tiny",
    "size.width=16",
    "size.num_heads=2",
    "size.inner_width=32",
    "format.max_length=24",
    "model.stack.layout=bf hf",
    "model.stack.cells.b.chunk=4",
    "model.stack.cells.h.chunk=4",
    "position=axial",
]
TWO = ["model.stack.reversible=true", "model.stack.join=concatenate", "heads.clm.tied=false"]


def make(*words: str) -> Model:
    config = compose("pretrain", "gpt2", [*WORDS, *words])
    return build_model(config, vocab_size=50, seed=0)


def test_the_head_reads_both_streams() -> None:
    model = make(*TWO)
    assert model.backbone.width == 32
    head: Any = model.heads["clm"]
    assert head.weight.shape[1] == 32
    assert model.backbone.token_embedding.weight.shape[1] == 16


def test_a_tied_head_says_what_fits() -> None:
    with pytest.raises(ConfigError, match=r"(?s)states of 32 do not fit.*tied=false"):
        make(*TWO[:2])


def test_what_the_models_cannot_join() -> None:
    words = [
        "size=tiny",
        "model.encoder.stack.reversible=true",
        "+model.encoder.stack.join=concatenate",
        "model.decoder.stack.residual._target_=plmctl.nn.residual.PreNorm",
    ]
    config = compose("pretrain", "bart", words)
    with pytest.raises(ConfigError, match=r"model\.encoder\.stack\.join"):
        build_model(config, vocab_size=50, seed=0)


@pytest.mark.parametrize("position", ["alibi", "relative_buckets"])
def test_positions_in_scores_are_refused(position: str) -> None:
    with pytest.raises(ConfigError, match=r"(?s)LSHAttention \(h\) adds none.*position=learned"):
        make(f"position={position}")
    make(f"position={position}", "model.stack.layout=bf*2")  # attention in chunks adds them
