"""Longformer's character model: the stages of table 12, and a run that changes its windows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.artifacts.model_facts import pattern_of
from plmctl.config.compose import compose
from plmctl.config.stage_settings import stage_config
from plmctl.core.errors import UsageError
from plmctl.runs.check import check_settings
from plmctl.runs.contract.contract import check_contract
from tests.attention.test_growing import measure
from tests.commands.test_pretrain_command import curve, pretrain, same, state
from tests.test_recipes import published

# table 12, small: window at the bottom and at the top, length, batch, rate, updates
TABLE_12 = [
    (32, 512, 2048, 32, 2.5e-4, 430_000),
    (64, 1024, 4096, 32, 1.25e-4, 50_000),
    (128, 2048, 8192, 16, 6.25e-5, 50_000),
    (256, 4096, 16384, 16, 3.125e-5, 35_000),
    (512, 8192, 23040, 16, 1.5625e-5, 5_000),
]
SMALL = ["size=tiny", "size.width=32", "size.inner_width=64", "size.num_heads=4", "seed=1"]
SMALL += ["format.max_length=48", "train.batch_size=4", "eval.rows=8", "train.precision=fp32"]
TWO = (
    "train.stages=[{share:0.5,pattern.divide:16,format.max_length:24,rate:0.5,"
    "schedule.warmup_steps:9},{share:0.5,schedule.warmup_steps:9}]"
)


def test_the_published_stages() -> None:
    spec = published("longformer_char")
    assert len(spec.train.stages) == len(TABLE_12)
    for number, row in enumerate(TABLE_12):
        bottom, top, length, batch, rate, updates = row
        staged, own = stage_config(spec, number), spec.train.stages[number]
        pattern = pattern_of(staged, ())
        reaches = [pattern.at_layer(layer).reach().back for layer in (0, 11)]
        assert reaches == [bottom, 4 * top]  # the upper one with gaps of 3 on two heads
        if number == 0:
            assert measure(pattern, 11, 0) == (top, 1)
        assert (staged.format.max_length, staged.train.batch_size) == (length, batch)
        assert spec.optim.lr * own.get("rate", 1) == pytest.approx(rate)
        assert spec.train.steps * own["share"] == pytest.approx(updates, rel=1e-3)
        assert staged.schedule.warmup_steps == 10_000
        assert staged.schedule.warmup_limit == 0.1


def test_the_scaled_stages() -> None:
    """A sixteenth of the published windows and rows."""
    spec = compose("pretrain", "longformer_char", ["data.path=x"])
    for number, (bottom, top, length, batch, *_) in enumerate(TABLE_12):
        staged = stage_config(spec, number)
        pattern = pattern_of(staged, ())
        layers = [pattern.at_layer(layer) for layer in (0, 3)]
        assert layers[0].reach().back == bottom / 16
        assert layers[1].of_head(0).reach().back == top / 16
        assert (staged.format.max_length, staged.train.batch_size) == (length / 16, batch)


def run(tokens_of: Callable[..., Path], folder: Path, *words: str) -> str:
    text = f"data.path={tokens_of('byte_bpe')}"
    return pretrain("longformer_char", *SMALL, text, f"run.dir={folder}", *words)


@pytest.mark.slow  # test_pretrain_command.py resumes
def test_resume_within_a_stage_is_bit_for_bit(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """8 updates, stopped after the fifth, the first of the second stage."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    words = ["train.steps=8", "train.save_every=1", "train.keep_last=9", "train.log_every=1", TWO]
    said = run(tokens_of, whole, *words)
    assert "stage 2 of 2 begins after update 4" in said
    records = [record for record in curve(whole) if "lr" in record]
    assert [record["stage"] for record in records] == [0] * 4 + [1] * 4
    # a warm-up over a tenth of 4 updates is over at once
    assert [record["lr"] for record in records] == pytest.approx([1e-3] * 4 + [2e-3] * 4)
    shutil.copytree(whole, part)
    for step in (6, 7, 8):
        shutil.rmtree(part / f"checkpoints/step-{step}")
    shutil.rmtree(part / "checkpoints/best", ignore_errors=True)
    pretrain("--resume", f"run.dir={part}")
    assert same(whole / "checkpoints/step-8", part / "checkpoints/step-8")
    assert curve(whole) == curve(part)


def test_windows_of_a_stage_matter(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    """The negative control: with the run's windows in the first stage, too, weights differ."""
    narrow, wide = tmp_path / "narrow", tmp_path / "wide"
    run(tokens_of, narrow, "train.steps=2", "pattern.first=16", "pattern.last=64", TWO)
    all_wide = TWO.replace("divide:16", "divide:1")
    run(tokens_of, wide, "train.steps=2", "pattern.first=16", "pattern.last=64", all_wide)
    one, other = (state(folder / "checkpoints/step-2") for folder in (narrow, wide))
    assert one.keys() == other.keys()
    assert not all(torch.equal(one[name], other[name]) for name in one)


def check_all(spec: Any) -> None:
    check_settings(spec)
    check_contract(spec)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            "[{share:0.5},{share:0.5,pattern.divide:2}]",
            r"train.stages.1.pattern.divide=2: none in the last stage.*\n  fix: pattern.divide=2",
        ),
        (
            "[{share:0.5,pattern.causal:false},{share:0.5}]",
            r"train.stages.0.pattern: objective.clm asks for the next token.*answer stands in",
        ),
        (
            "[{share:0.5,pattern.num_layers:3},{share:0.5}]",
            r"train.stages.0.pattern='windows for 3 layers': one for each layer",
        ),
        (
            "[{share:0.5,pattern.devide:2},{share:0.5}]",
            r"train.stages.0.pattern.devide=2: .*did you mean 'divide'",
        ),
        ("[{share:0.5,rate:-1},{share:0.5}]", r"train.stages.0.rate=-1: 0 or more"),
        (
            "[{share:0.5,optim.lr:1},{share:0.5}]",
            r"train.stages.0.optim.lr=1: a stage may set share, rate, .*pattern\.\*, schedule\.\*",
        ),
        (
            "[{share:0.5,schedule.warmup_steps:-1},{share:0.5}]",
            r"train.stages.0.schedule.warmup_steps=-1",
        ),
    ],
)
def test_what_a_stage_may_not_set(stages: str, message: str) -> None:
    spec = compose("pretrain", "longformer_char", ["data.path=x", f"train.stages={stages}"])
    with pytest.raises(UsageError, match=message):
        check_all(spec)


def test_a_stage_reads_no_fields_that_the_run_leaves_out() -> None:
    """Rows have the tracks that the run's pattern reads, in all stages."""
    kind = "plmctl.attention.patterns.global_tokens.Global"
    part = f"pattern.parts.0._target_:{kind},pattern.parts.0.tokens:1"
    past = "{_target_:plmctl.attention.patterns.causal.Causal}"
    words = ["pattern=by_layer", f"pattern.parts=[{past},{past}]", "data.path=x", "size=tiny"]
    words += [f"train.stages=[{{share:0.5,{part}}},{{share:0.5}}]"]
    with pytest.raises(UsageError, match=r"train.stages.0.pattern.*reads tracks.global"):
        check_contract(compose("pretrain", "gpt2", words))


def test_a_model_without_a_pattern_has_none_in_a_stage() -> None:
    words = ["data.path=x", "train.stages=[{share:0.5,pattern.reach:2},{share:0.5}]"]
    with pytest.raises(UsageError, match=r"train.stages.0.pattern.*none for a BiLM"):
        check_contract(compose("pretrain", "elmo", ["pattern=window", *words]))


def test_a_kernel_that_cannot_compute_the_pattern_of_a_stage() -> None:
    words = ["size=tiny", "data.path=x", "model.embedding.dropout=0", "kernel=varlen"]
    words += ["pattern=windows", "pattern.reach=4"]
    stages = "train.stages=[{share:0.5,pattern.dilation:2},{share:0.5}]"
    problem = r"train.stages.0.pattern: kernel=varlen: .*\n  fix: kernel=auto"
    with pytest.raises(UsageError, match=problem):
        check_all(compose("pretrain", "bert", [*words, stages]))
