"""A mistake in a stage is named as it stands in `train.stages`, with a list that can be typed."""

from __future__ import annotations

import shlex

import pytest

from plmctl.config.compose import compose
from plmctl.core.errors import UsageError
from plmctl.runs.check import check_settings
from plmctl.runs.contract.contract import check_contract

WORDS = ("size=tiny", "data.path=x", "format.max_length=32", "train.batch_size=4", "train.steps=4")
WINDOW = "_target_:plmctl.attention.patterns.window.Window"


def check(recipe: str, *words: str) -> None:
    spec = compose("pretrain", recipe, [*WORDS, *words])
    check_settings(spec)
    check_contract(spec)


def refuse(recipe: str, first: str, second: str = "share:0.5") -> tuple[str, str]:
    """The message and the fix for two stages, the fix as the shell reads it."""
    with pytest.raises(UsageError) as raised:
        check(recipe, f"train.stages=[{{{first}}},{{{second}}}]")
    message, _, fix = str(raised.value).partition("\n  fix: ")
    return message, fix


# (recipe, the first of two stages, what the message begins with, the first stage of the fix)
MISTAKES = [
    (
        "bert",
        "share:0.5,trainable:[backbone.stak]",
        "train.stages.0.trainable='backbone.stak': matches no parameter (did you mean",
        "share:0.5,trainable:[backbone.stack]",
    ),
    (
        "bert",
        "share:0.5,frozen:[heads.mlm,nothing]",
        "train.stages.0.frozen='nothing': matches no parameter; there are backbone.embedding,",
        "share:0.5,frozen:[heads.mlm]",
    ),
    (
        "bert",
        "share:0.5,trainable:backbone",
        "train.stages.0.trainable='backbone': must be a list",
        "share:0.5,trainable:[backbone]",
    ),
    (
        "bert",
        "share:0.5,pattern.variant:fixed",
        "train.stages.0.pattern.variant='fixed': there is no such setting; this pattern has none",
        "share:0.5",
    ),
    (
        "longformer",
        "share:0.5,pattern.reach:4",
        "train.stages.0.pattern.reach=4: there is no such setting; there are pattern.parts",
        "share:0.5,pattern.parts.0.reach:4",
    ),
    (
        "bert",
        f"share:0.5,pattern:{{{WINDOW},reach:3,left:3}}",
        "train.stages.0.pattern.left=3: there is no such setting; there are pattern.reach",
        f"share:0.5,pattern:{{{WINDOW},reach:3}}",
    ),
    (
        "bert",
        "share:0.5,pattern:window",
        "train.stages.0.pattern='window': a whole part, with its _target_",
        f"share:0.5,pattern:{{{WINDOW},reach:128}}",
    ),
    (
        "bert",
        "share:0.5,format:{max_length:16}",
        "train.stages.0.format={'max_length': 16}: a whole part, with its _target_; or a setting"
        " of the run's own: format.max_length,",
        "share:0.5,format.max_length:16",
    ),
    (
        "bert",
        "share:0.5,format.max_length:2",
        "train.stages.0.format.max_length=2: at least 5",
        "share:0.5",
    ),
    (
        "bert",
        "share:0.5,noise.token_mask.rate:3",
        "train.stages.0.noise.token_mask.rate=3.0: 0 < rate < 1",
        "share:0.5",
    ),
    (
        "bert",
        "share:0.5,noise:[span_mask]",
        "train.stages.0.noise=['span_mask']: a whole part",
        "share:0.5",
    ),
    (
        "bert",
        "share:0.5,noise:null",
        "train.stages.0.noise: objective.mlm needs 'targets.mlm'",
        "share:0.5",
    ),
    (
        "bert",
        "share:0.5,schedule.warmup_stps:3",
        "train.stages.0.schedule.warmup_stps=3: there is no such setting (did you mean"
        " 'warmup_steps'?); there are schedule.warmup_steps,",
        "share:0.5,schedule.warmup_steps:3",
    ),
    (
        "bert",
        "share:0.5,train.batch_size:6,train.micro_batch_size:4",
        "train.stages.0.train.micro_batch_size=4: must divide the 6 rows",
        "share:0.5,train.batch_size:6,train.micro_batch_size:3",
    ),
    (
        "gpt",
        "share:0.5,pattern.x:3",
        "train.stages.0.pattern.x=3: there is no such setting",
        "share:0.5",
    ),
    (
        "gpt2",
        f"share:0.5,pattern:{{{WINDOW},reach:3}}",
        "train.stages.0.pattern: objective.clm asks for the next token",
        "share:0.5",
    ),
    (
        "bert",
        "share:0.5,noise.rate:0.2",
        "train.stages.0.noise.rate=0.2: there is no such setting (did you mean"
        " 'noise.token_mask.rate'?)",
        "share:0.5,noise.token_mask.rate:0.2",
    ),
    (
        "bert",
        "share:0.5,noise.span_mask.rate:0.2",
        "train.stages.0.noise.span_mask.rate=0.2: there is no such setting",
        "share:0.5",
    ),
    (
        "bert",
        "share:0.5,noise:{x:{_target_:plmctl.nothing.Nothing}}",
        "train.stages.0.noise.x._target_='plmctl.nothing.Nothing': there is no module",
        "share:0.5",
    ),
    (
        "longformer",
        "share:0.5,pattern.parts.7.reach:4",
        "train.stages.0.pattern.parts.7.reach=4: there is no such setting",
        "share:0.5",
    ),
    ("bert", "shar:0.5", "train.stages.0.shar=0.5: a stage may set share, rate,", "share:0.5"),
    ("bert", "share:0.5,rate:-1", "train.stages.0.rate=-1: 0 or more", "share:0.5,rate:0.5"),
]


@pytest.mark.parametrize(("recipe", "first", "message", "fixed"), MISTAKES)
def test_a_mistake_names_the_stage_and_its_fix_runs(
    recipe: str, first: str, message: str, fixed: str
) -> None:
    found, fix = refuse(recipe, first)
    assert found.startswith(message)
    (word,) = shlex.split(fix)
    assert word == f"train.stages=[{{{fixed}}},{{share:0.5}}]"
    check(recipe, word)


@pytest.mark.parametrize(
    ("first", "second", "fixed"),
    [
        ("share:0.5", "share:0.6", "[{share:0.5},{share:0.5}]"),
        ("share:0.5,rate:2", "share:1", "[{share:0.5,rate:2},{share:0.5}]"),
        ("format.max_length:16", "share:0.3", "[{share:0.625,format.max_length:16},{share:0.375}]"),
        ("share:2", "share:1", "[{share:0.6667},{share:0.3333}]"),
        ("share:90", "share:10", "[{share:0.9},{share:0.1}]"),
        ("share:a", "share:0.4", "[{share:0.5556},{share:0.4444}]"),
    ],
)
def test_shares_that_add_up_to_no_run(first: str, second: str, fixed: str) -> None:
    """As they stand, where something is left for the last one."""
    found, fix = refuse("bert", first, second)
    assert "the share of each stage must be above 0, and all add up to 1" in found
    (word,) = shlex.split(fix)
    assert word == f"train.stages={fixed}"
    check("bert", word)


def test_the_last_stage_has_the_pattern_of_the_run() -> None:
    found, fix = refuse("longformer", "share:0.5", "share:0.5,pattern.parts.0.reach:4")
    assert found.startswith("train.stages.1.pattern.parts.0.reach=4: none in the last stage")
    words = shlex.split(fix)
    assert words == ["pattern.parts.0.reach=4", "train.stages=[{share:0.5},{share:0.5}]"]
    check("longformer", *words)


def test_a_stage_may_be_wrong_where_the_run_is_right_and_the_run_where_no_stage_is() -> None:
    """Problems of two stages come together; one of the run alone names no stage."""
    stages = "train.stages=[{share:0.5,format.max_length:2},{share:0.5,noise:null}]"
    with pytest.raises(UsageError, match=r"2 problems[^$]*stages\.0\.format[^$]*stages\.1\.noise"):
        check("bert", stages)
    with pytest.raises(UsageError, match=r"^noise\.token_mask\.rate=3"):
        check("bert", "noise.rate=3", "train.stages=[{share:0.5},{share:0.5}]")
