"""What is said of a pattern before training: that it forbids nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from plmctl.attention.patterns.base import And, Full, Or, Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.dilated import Dilated
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.remarks import remark_on
from plmctl.attention.patterns.sparse_transformer import sparse_transformer
from plmctl.attention.patterns.window import Window
from plmctl.cli.app import make_app
from plmctl.core.batch import Seq

BANDED = ["kernel=banded", "kernel.block=4"]
PAST = "forbids no more than pattern=causal in rows of {} tokens, the longest here"
IDLE = "forbids nothing in rows of {} tokens, the longest here: the same as pattern=full"


def sparse(*, stride: int, factors: str) -> Pattern:
    return sparse_transformer(
        variant="fixed", stride=stride, columns=2, factors=factors, num_heads=2, num_layers=4
    )


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (Full(), ""),
        (Causal(), ""),
        (Window(reach=10), ""),
        (Window(reach=30), ""),
        (Window(reach=31), IDLE.format(32)),
        (Dilated(reach=31, dilation=[1]), IDLE.format(32)),
        (Dilated(reach=31, dilation=[1, 2]), ""),
        (Dilated(reach=9, dilation=[2]), ""),
        (And(parts=[Window(reach=9), Causal()]), ""),
        (And(parts=[Window(reach=99), Full()]), IDLE.format(32)),
        (Or(parts=[Window(reach=9), Causal()]), ""),
        (Or(parts=[Window(reach=9), Dilated(reach=2, dilation=[4])]), ""),
        (Full() & Padding() & Documents(), ""),
        (Causal() & Window(reach=31), PAST.format(32)),
        (Causal() & Window(reach=30), ""),
        (Causal() & Full(), ""),
        (sparse(stride=32, factors="merged"), PAST.format(32)),
        (sparse(stride=31, factors="merged"), ""),
        (sparse(stride=32, factors="layers"), f"{PAST.format(32)}, in layers 1, 3"),
        (sparse(stride=31, factors="layers"), ""),
    ],
    ids=lambda part: type(part).__name__,
)
def test_rows_of_32_tokens(pattern: Pattern, told: str) -> None:
    assert remark_on(pattern, 32) == told


@pytest.mark.parametrize(
    "pattern",
    [Window(reach=3), Dilated(reach=3, dilation=[1])],
    ids=lambda part: type(part).__name__,
)
def test_a_window_that_covers_the_row_makes_no_mask(pattern: Pattern) -> None:
    def row(length):
        return Seq(torch.zeros(1, length, dtype=torch.long), torch.tensor([length]), full=True)

    assert pattern.dense(row(4)) is None
    allowed = pattern.dense(row(5))
    assert allowed is not None
    assert allowed[0, 0].tolist() == [[abs(q - k) <= 3 for k in range(5)] for q in range(5)]
    assert Dilated(reach=9, dilation=[1, 2]).dense(row(4)) is not None


def pretrain(*words: str) -> str:
    done = CliRunner().invoke(make_app(), ["pretrain", "bert", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pattern=window", "pattern.reach=8"], {}),
        (["pattern=window", "pattern.reach=47"], {"pattern": IDLE.format(48)}),
        (
            [
                "pattern=window",
                "pattern.reach=32",
                "train.stages=[{share:0.5,format.max_length:32},{share:0.5}]",
            ],
            {},
        ),
        (
            ["pattern=window", "pattern.reach=8", *BANDED],
            {"attention": "kernel banded: 42% of the scores are computed"},
        ),
        (["pattern=full"], {}),
    ],
)
def test_it_is_said_at_the_start_and_in_the_dry_run(
    words: list[str], told: dict[str, str], tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Stages with short rows first may have a window that only later ones are longer than."""
    small = [
        "size=tiny",
        "size.width=32",
        "size.inner_width=64",
        "format.max_length=48",
        "train.batch_size=8",
        "eval.rows=8",
    ]
    words = [
        *words,
        *small,
        "objective=[mlm]",
        f"data.path={tokens_of('wordpiece')}",
        "train.steps=2",
    ]
    run = json.loads(pretrain(*words, "--dry-run", "--json"))["run"]
    assert {name: run[name] for name in ("pattern", "attention") if name in run} == told
    lines = [
        line
        for line in pretrain(*words, f"run.dir={tmp_path / 'run'}").splitlines()
        if line.startswith(("pattern ", "attention "))
    ]
    assert lines == [f"{name} {line}" for name, line in told.items()]
