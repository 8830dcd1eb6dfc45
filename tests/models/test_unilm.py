"""UniLM: the pattern of every segment number is the paper's; under one number alone the model is
that pattern's.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.attention.patterns.base import Pattern
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.config.recipes import conf_dir, load
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.data.formats.base import Plan
from plmctl.data.formats.blocks import Blocks
from plmctl.data.formats.renumbered import Renumbered
from plmctl.models.base import Model
from plmctl.runs.contract.stand_in import TINY

T = 9
ROWS = torch.tensor(  # pairs, left to right, right to left, source and target; padding is 0
    [
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        [2] * T,
        [3] * T,
        [4, 4, 4, 4, 5, 5, 5, 5, 5],
        [4, 4, 5, 5, 5, 5, 0, 0, 0],
    ]
)
LENGTH = torch.tensor([9, 9, 9, 9, 6])


def may_see(row: int, q: int, k: int) -> bool:
    """The sheet's table, by the mode of a row: bidirectional, left to right, right to left,
    source of s tokens and target.
    """
    if k >= LENGTH[row]:
        return False
    if row == 0:
        return True
    if row == 1:
        return k <= q
    if row == 2:
        return k >= q
    s = {3: 4, 4: 2}[row]
    return k < s or (q >= s and k <= q)


def model_of(*settings: str) -> Model:
    cfg = compose(
        "pretrain",
        "unilm",
        ["data.path=x", "size=tiny", "size.width=32", "size.inner_width=48", *settings],
    )
    return build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=3).double().eval()


def batch(segment: torch.Tensor, length: torch.Tensor) -> Batch:
    ids = torch.randint(0, TINY.size, segment.shape, generator=torch.Generator().manual_seed(0))
    return Batch(torch.arange(len(ids)), {"text": Seq(ids, length, {"segment": segment})})


def test_who_sees_whom_is_the_papers_table() -> None:
    pattern = model_of().backbone.pattern
    assert isinstance(pattern, Pattern)
    dense = pattern.dense(batch(ROWS, LENGTH).text)
    assert dense is not None
    for row in range(len(ROWS)):
        for q in range(int(LENGTH[row])):
            assert [bool(dense[row, 0, q, k]) for k in range(T)] == [
                may_see(row, q, k) for k in range(T)
            ]


def test_the_gradient_flows_where_the_table_allows_and_nowhere_else() -> None:
    model, given = model_of("model.embedding.dropout=0"), batch(ROWS, LENGTH)
    x = model.backbone.embed(given).detach().requires_grad_()
    last = model.backbone.encode(x, given).last
    weights = torch.randn(
        last.shape[-1], dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    for row in range(len(ROWS)):
        for q in range(int(LENGTH[row])):
            (grad,) = torch.autograd.grad(last[row, q] @ weights, x, retain_graph=True)
            reached = grad.abs().amax(-1) > 0
            # two layers, but every mode is closed under seeing: what is seen sees no more
            for k in range(T):
                assert bool(reached[row, k]) == may_see(row, q, k)
            assert not reached[[r for r in range(len(ROWS)) if r != row]].any()


@torch.no_grad()
@pytest.mark.parametrize(
    ("segments", "pattern", "as_plain"),
    [
        ([0, 1], "full", [0, 1]),
        ([2, 2], "causal", [2, 2]),
        ([3, 3], "anticausal", [3, 3]),
        ([4, 5], "prefix", [4, 5]),
    ],
)
def test_under_one_mode_it_is_the_model_of_that_pattern(
    segments: list[int], pattern: str, as_plain: list[int]
) -> None:
    number = torch.tensor([segments[0]] * 4 + [segments[1]] * 5)[None].repeat(2, 1)
    setting = [f"pattern={pattern}", *(["+pattern.source=4"] if pattern == "prefix" else [])]
    one, other = model_of(), model_of(*setting)
    given = batch(number, torch.tensor([9, 7]))
    torch.testing.assert_close(one(given).last, other(given).last, rtol=0, atol=0)
    assert not torch.equal(one(given).last, one(batch((number + 1) % 6, torch.tensor([9, 7]))).last)


def test_a_composed_pattern_knows_which_segments_are_source_and_target() -> None:
    assert model_of().backbone.pattern.prefix_segments == (4, 5)  # type: ignore[union-attr]
    assert model_of("pattern=prefix").backbone.pattern.prefix_segments == (0, 1)
    assert model_of("pattern=causal").backbone.pattern.prefix_segments is None


def test_every_part_is_in_the_shipped_pattern() -> None:
    node = load(Path(conf_dir()) / "pattern" / "unilm.yaml")
    made = build(node, path="pattern")
    assert [type(part).__name__ for part in made.parts] == [
        "Full",
        "Full",
        "Causal",
        "Anticausal",
        "CausalWithPrefix",
        "CausalWithPrefix",
    ]
    with pytest.raises(ConfigError, match="number of a segment"):
        build({**node, "parts": []}, path="pattern")


def test_renumbered_rows_are_the_rows_with_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Blocks(vocab=TINY, max_length=6, crossing=False, specials=True)
    plain = Renumbered(format=inner, segments=[3])
    assert plain.provides == inner.provides | {"tracks.segment"}
    assert plain.max_length == 6
    assert plain.copies == inner.copies

    def rows(
        self: Blocks, shards: object, plan: Plan, index: np.ndarray, wanted: object = None
    ) -> object:
        from plmctl.core.batch import Rows

        track = {"segment": np.array([[0, 0, 1], [0, 1, 1]])} if wanted else {}
        return Rows(
            key=index, seqs={"text": Seq(np.ones((2, 3), np.int64), np.array([3, 3]), track)}
        )

    monkeypatch.setattr(Blocks, "rows", rows)
    index = np.arange(2)
    made = plain.rows(None, Plan(2, {}), index)  # type: ignore[arg-type]
    assert made.seqs["text"].tracks["segment"].tolist() == [[3] * 3] * 2
    pairs = Renumbered(format=inner, segments=[4, 5]).rows(
        None, Plan(2, {}), index, frozenset({"x"})
    )  # type: ignore[arg-type]
    assert pairs.seqs["text"].tracks["segment"].tolist() == [[4, 4, 5], [4, 5, 5]]
    with pytest.raises(ConfigError, match="from 0 on"):
        Renumbered(format=inner, segments=[-1])
    assert (
        Renumbered(format=inner, segments=[2]).settings
        != Renumbered(format=inner, segments=[3]).settings
    )
