"""Every message about a setting of the command line says what to type instead."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.pasted import spell_fix

SPAN, LITE = "model.stack.cells.a", "model.encoder.stack.columns"


@pytest.mark.parametrize(
    ("words", "problem", "fix"),
    [
        (["pretrain", "adaptive_span", f"{SPAN}.penalty=-1"], "0 or more", f"{SPAN}.penalty=2e-06"),
        (["pretrain", "adaptive_span", f"{SPAN}.span=abc"], "a whole number", f"{SPAN}.span=512"),
        (["pretrain", "sparse_transformer", "pattern.stride=0"], "1 or more", "pattern.stride=32"),
        (["pretrain", "noise.rate=2"], "0 < rate < 1", "noise.token_mask.rate=0.15"),
        (["pretrain", "train.steps=[3,4]"], "a whole number", "train.steps=3"),
        (["finetune", "train.eval_every=[5]", "task=sst2"], "a whole number", "train.eval_every=5"),
        (["ablate", "gpt_lstm", "seeds=1"], "must be a list", "seeds=[1]"),
        (["pretrain", "train.frozen=model"], "must be a list", "train.frozen=[model]"),
        (["pretrain", "train.frozen=my model"], "must be a list", "\"train.frozen=['my model']\""),
        (
            ["pretrain", "lite_transformer", LITE + ".a=[0.5,0.2]"],
            f"{LITE}.a=[0.5, 0.2]: two shares",
            f"{LITE}.a=[0,0.5]",
        ),
        (
            ["finetune", "task=sst2", "task.path=x", "checkpoint=y", "model.classifier.pooling=x"],
            "model.classifier.pooling='x': checkpoint decides this",
            "leave it out",
        ),
    ],
)
def test_a_wrong_value_has_a_fix(words: list[str], problem: str, fix: str) -> None:
    done = CliRunner().invoke(make_app(), [*words, "--dry-run"])
    assert done.exit_code == 2, done.output
    assert problem in done.stderr
    assert f"\n  fix: {spell_fix(fix)}" in done.stderr


def test_of_two_words_each_has_its_own_value() -> None:
    words = ["adaptive_span", f"{SPAN}.penalty=-1", f"{SPAN}.start=2", "--dry-run"]
    done = CliRunner().invoke(make_app(), ["pretrain", *words])
    assert "2 problems" in done.stderr
    assert f"fix: {SPAN}.penalty=2e-06" in done.stderr
    assert f"fix: {SPAN}.start=0.0" in done.stderr
