"""Other cells and scores by settings alone: what is counted, refused, exported, and read token
by token.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import cost
from plmctl.attention.patterns.base import Full
from plmctl.attention.patterns.causal import Causal
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError
from plmctl.interop.hf import export
from plmctl.models.base import Model
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY

W, L, HIDDEN = 32, 2, 48
SIZE = [
    "size=tiny",
    f"size.width={W}",
    "size.inner_width=64",
    "format.max_length=16",
    "data.path=x",
]
LAYOUT = "model.stack.layout={}f*${{size.num_layers}}"


def model(recipe: str, *words: str) -> Model:
    return build_model(
        compose("pretrain", recipe, [*SIZE, *words]), vocab_size=TINY.size, vocab=TINY, seed=0
    )


def in_place(letter: str, *words: str) -> list[str]:
    hidden = [f"model.stack.cells.{letter}.hidden_width={HIDDEN}"]
    return [LAYOUT.format(letter), *hidden, *words]


def recurrent(gates: int, directions: int) -> int:
    """Two matrices and two vectors for every gate and direction, and the map back to the stream."""
    return directions * gates * HIDDEN * (W + HIDDEN + 2) + directions * HIDDEN * W + W


@pytest.mark.parametrize(
    ("recipe", "words", "numbers", "macs"),
    [
        ("bert", [], 4 * W * W + 4 * W, 4 * W * W),
        ("bert", ["model.stack.cells.a.projections=shared"], 3 * W * W + 3 * W, 3 * W * W),
        ("bert", ["model.stack.cells.a.projections=none"], W * W + W, W * W),
        ("bert", ["model.stack.cells.a.scores=dot"], 4 * W * W + 4 * W, 4 * W * W),
        (
            "bert",
            ["model.stack.cells.a.scores=general"],
            4 * W * W + 4 * W + 2 * 16 * 16,
            4 * W * W + 2 * 16 * 16,
        ),
        ("bert", in_place("l"), recurrent(4, 2), recurrent(4, 2) - W - 2 * 4 * HIDDEN * 2),
        ("gpt", in_place("l"), recurrent(4, 1), recurrent(4, 1) - W - 4 * HIDDEN * 2),
        ("gpt", in_place("r"), recurrent(3, 1), recurrent(3, 1) - W - 3 * HIDDEN * 2),
        (
            "bert",
            in_place("k"),
            2 * HIDDEN * (3 * W + 1) + HIDDEN * W + W,
            2 * HIDDEN * 3 * W + HIDDEN * W,
        ),
    ],
)
def test_what_a_layer_costs(recipe: str, words: list[str], numbers: int, macs: int) -> None:
    """Against the layer without it: norms, feed-forward and heads are the same."""
    with_it, without = (
        model(recipe, *words),
        model(recipe, "model.stack.layout=f*${size.num_layers}"),
    )
    count = lambda m: sum(p.numel() for p in m.backbone.stack.parameters())  # noqa: E731
    assert count(with_it) - count(without) == L * (numbers + 2 * W)  # and a norm
    found, base = (cost(m, length=16, predicted={}).macs_per_token for m in (with_it, without))
    scores = found["attention scores"]
    assert sum(found.values()) - sum(base.values()) - scores == L * macs
    assert scores == (L * 2 * 16 * W if not words or "cells.a" in words[0] else 0)


@pytest.mark.parametrize(
    ("letter", "kind"), [("l", "recurrence"), ("r", "recurrence"), ("k", "convolution")]
)
def test_costs_are_shown_by_kind(letter: str, kind: str) -> None:
    found = cost(model("bert", *in_place(letter)), length=16, predicted={})
    assert found.macs_per_token[kind] > 0
    assert (
        found.saved_per_row
        > cost(model("bert", "model.stack.layout=f*2"), length=16, predicted={}).saved_per_row
    )


@pytest.mark.parametrize("letter", ["l", "r", "k"])
def test_what_reads_ahead_is_refused_in_a_decoder(letter: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"model\.stack\.cells\.{letter}.*Causal allows less"
    ) as error:
        check_contract(
            compose(
                "pretrain",
                "gpt",
                [*SIZE, *in_place(letter, f"model.stack.cells.{letter}.causal=false")],
            )
        )
    assert error.value.fix == f"model.stack.cells.{letter}.causal=true"


def test_other_patterns_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="Anticausal allows less"):
        model("bert", "pattern=anticausal", *in_place("l"))


WINDOWS = {
    "pattern=window pattern.reach=1": True,
    "pattern=window pattern.reach=0": False,
    "pattern=longformer pattern.parts.0.reach=1": True,
    "pattern=longformer pattern.parts.0.reach=[2,0]": False,
    "pattern=dilated pattern.reach=2 pattern.dilation=[2]": False,
}


@pytest.mark.parametrize("pattern", WINDOWS)
def test_a_convolution_may_stand_where_its_window_is_seen(pattern: str) -> None:
    """Three tokens; a pattern serves if each token sees both neighbours in every layer."""
    words = ["model.stack.layout=saf*2", *pattern.split()]
    if WINDOWS[pattern]:
        assert model("bert", *words)
    else:
        with pytest.raises(ConfigError, match="reads earlier and later tokens, but"):
            model("bert", *words)


def test_what_looks_back_may_stand_under_a_full_pattern() -> None:
    words = [*SIZE, *in_place("l", "model.stack.cells.l.causal=true")]
    made = check_contract(compose("pretrain", "bert", words))
    assert set(made.heads) == {"mlm", "nsp", "pooler"}


def test_cells_that_are_not_used_are_no_hindrance_to_export() -> None:
    cfg = compose("pretrain", "bert", [*SIZE])
    made = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0)
    assert export(cfg, made.state_dict(), pad=0).architecture == "BertForPreTraining"


@pytest.mark.parametrize(
    "word",
    [
        "model.stack.cells.a.scores=dot",
        "model.stack.cells.a.projections=shared",
        LAYOUT.format("l"),
    ],
)
def test_what_no_family_has_is_not_exported(word: str) -> None:
    cfg = compose("pretrain", "bert", [*SIZE, word])
    with pytest.raises(ConfigError, match="no published family"):
        export(cfg, build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).state_dict(), pad=0)


MIXED = [
    "model.stack.layout=lf kf rf af",
    "model.stack.cells.a.scores=general",
    "model.stack.cells.a.projections=shared",
]


@torch.no_grad()
def test_token_by_token_equals_all_at_once() -> None:
    made = model("gpt", *MIXED).double().eval()
    ids = torch.randint(0, TINY.size, (3, 7), generator=torch.Generator().manual_seed(0))

    def rows(ids):
        return Batch(torch.arange(3), {"text": Seq(ids, torch.full((3,), ids.shape[1]), full=True)})

    cache = made.backbone.fresh_cache(rows(ids))
    steps = [
        made(rows(ids[:, :3]), cache).last,
        *(made(rows(ids[:, t : t + 1]), cache).last for t in range(3, 7)),
    ]
    torch.testing.assert_close(torch.cat(steps, 1), made(rows(ids)).last, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize(("recipe", "pattern"), [("gpt", Causal), ("bert", Full)])
def test_packed_documents_are_what_they_are_alone(recipe: str, pattern: type) -> None:
    made = model(recipe, *MIXED).double().eval()
    assert isinstance(made.backbone.pattern.parts[0], pattern)  # type: ignore[union-attr]
    ids = torch.randint(0, TINY.size, (1, 7), generator=torch.Generator().manual_seed(0))
    tracks = {
        "document": torch.tensor([[0, 0, 0, 1, 1, 1, 1]]),
        "position": torch.tensor([[0, 1, 2, 0, 1, 2, 3]]),
    }
    together = made(Batch(torch.arange(1), {"text": Seq(ids, torch.tensor([7]), tracks)})).last
    parts = [ids[:, :3], ids[:, 3:]]
    alone = [
        made(Batch(torch.arange(1), {"text": Seq(p, torch.tensor([p.shape[1]]), full=True)})).last
        for p in parts
    ]
    torch.testing.assert_close(together, torch.cat(alone, 1), rtol=1e-12, atol=1e-12)


def test_a_wrong_name_is_answered() -> None:
    with pytest.raises(UsageError, match="did you mean 'shared'"):
        check_contract(
            compose("pretrain", "bert", [*SIZE, "model.stack.cells.a.projections=share"])
        )
