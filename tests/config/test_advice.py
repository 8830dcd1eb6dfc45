"""Every message about a setting of the command line says what to type instead."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.advice import add_fixes
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError
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


@pytest.mark.parametrize(
    ("path", "value", "allowed", "own", "fix"),
    [
        ("abstain", 95, "must be more than 0, at most 1", "", "abstain=0.95"),
        ("abstain", "99.5%", "must be a number or null", "", "abstain=0.995"),
        (
            "task.dev_share",
            12.0,
            "at least 0 and below 1",
            "task.dev_share=0.1",
            "task.dev_share=0.12",
        ),
        ("schedule.warmup_share", 6.0, "a share, 0 to 1", "", "schedule.warmup_share=0.06"),
        ("model.start", 30, "a share of the longest span, 0 to 1", "", "model.start=0.3"),
        ("task.fold", 7, "from 0 to 1, as task.folds=2", "task.fold=0", "task.fold=0"),
        ("train.steps", "10%", "must be a whole number", "", ""),
        ("model.stack.width", 64, "at most 16", "model.stack.width=16", "model.stack.width=16"),
        ("abstain", 250, "must be more than 0, at most 1", "", ""),
    ],
)
def test_a_percent_is_written_as_a_share(
    path: str, value: object, allowed: str, own: str, fix: str
) -> None:
    found = add_fixes(ConfigError(path, value, allowed, fix=own), Provenance("eval"))
    assert isinstance(found, ConfigError)
    assert found.fix == fix


def test_of_two_words_each_has_its_own_value() -> None:
    words = ["adaptive_span", f"{SPAN}.penalty=-1", f"{SPAN}.start=2", "--dry-run"]
    done = CliRunner().invoke(make_app(), ["pretrain", *words])
    assert "2 problems" in done.stderr
    assert f"fix: {SPAN}.penalty=2e-06" in done.stderr
    assert f"fix: {SPAN}.start=0.0" in done.stderr
