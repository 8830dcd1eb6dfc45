"""What a run with stages costs is what runs of each stage alone cost together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.stage_settings import stage_config
from plmctl.core.errors import ConfigError, ConfigErrors
from plmctl.data.token_batches import count_rows
from plmctl.runs.check import check_settings
from plmctl.runs.estimate import estimate
from plmctl.training.log import read_metrics
from plmctl.training.stages import Stage
from tests.training.toy import ToyBatches, make_trainer

WORDS = ("size=tiny", "data.path=x", "train.device=cpu", "tokenizer.vocab_size=300")
SHORT, LONG = ("format.max_length=16", "train.batch_size=12"), ("format.max_length=64",)
STAGES = "train.stages=[{share:0.75,format.max_length:16,train.batch_size:12},{share:0.25}]"


def measure(*words: str, recipe: str = "bert") -> dict[str, dict[str, Any]]:
    """The estimate of a run with rows of 64 tokens and updates of 4 rows, if not told otherwise."""
    own = ["format.max_length=64", "train.batch_size=4", "position.max_length=64"]
    return estimate(compose("pretrain", recipe, [*WORDS, *own, *words]))


def flops(report: dict[str, dict[str, Any]]) -> float:
    return report["run"]["training FLOPs per token"] * report["run"]["tokens"]


def test_updates_are_shared_out() -> None:
    """30 updates of 12 rows of 16 tokens, and 10 of 4 rows of 64."""
    both = measure("train.steps=40", STAGES)
    short, long = measure("train.steps=30", *SHORT), measure("train.steps=10", *LONG)
    assert both["run"]["tokens"] == 30 * 12 * 16 + 10 * 4 * 64
    assert both["run"]["tokens"] == short["run"]["tokens"] + long["run"]["tokens"]
    assert flops(both) == pytest.approx(flops(short) + flops(long), rel=1e-5)
    assert both["run"]["tokens per update, at most"] == 256
    assert both["stages"]["stage 1"].startswith("30 updates of 192 tokens, ")
    assert both["stages"]["stage 2"].startswith("10 updates of 256 tokens, ")
    share = 30 * 192 / both["run"]["tokens"]
    for name, macs in both["macs_per_token"].items():
        mean = share * short["macs_per_token"][name] + (1 - share) * long["macs_per_token"][name]
        assert macs == pytest.approx(mean, rel=1e-3, abs=1)


def test_memory_is_that_of_the_largest_stage() -> None:
    both = measure("train.steps=40", STAGES)
    alone = [measure("train.steps=1", *words)["memory"] for words in (SHORT, LONG)]
    assert both["memory"] == max(alone, key=lambda memory: memory["activations"])


def test_tokens_are_shared_out() -> None:
    """7,680 tokens in updates of 192, and 2,560 in updates of 256."""
    both = measure("train.tokens=10240", "train.steps=null", STAGES)
    assert both["run"]["updates"] == 7680 // 192 + 2560 // 256
    short = measure("train.tokens=7680", "train.steps=null", *SHORT)
    long = measure("train.tokens=2560", "train.steps=null", *LONG)
    assert flops(both) == pytest.approx(flops(short) + flops(long), rel=1e-5)


def test_in_the_same_time_costly_tokens_are_fewer() -> None:
    """a tokens of the first stage take three quarters of the time, b of the second a quarter."""
    both = measure("train.minutes=1", STAGES)["run"]["training FLOPs per token"]
    short, long = (
        measure("train.steps=1", *words)["run"]["training FLOPs per token"]
        for words in (SHORT, LONG)
    )
    a, b = 0.75 / short, 0.25 / long
    assert both == pytest.approx((a * short + b * long) / (a + b), rel=1e-5)


def test_noise_and_pattern_of_a_stage_count() -> None:
    more = "train.stages=[{share:0.5,noise.token_mask.rate:0.45},{share:0.5}]"
    plain, noisy = (measure("train.steps=4", *words) for words in ((), (more,)))
    assert noisy["macs_per_token"]["heads"] > 1.5 * plain["macs_per_token"]["heads"]
    words = ("train.steps=4", "format.max_length=512", "pattern=window", "kernel=banded")
    words += ("position.max_length=512",)
    narrow = "train.stages=[{share:0.5,pattern.reach:8},{share:0.5}]"
    wide, both = (measure(*words, *more) for more in ((), (narrow,)))
    assert both["run"]["tokens"] == wide["run"]["tokens"]
    assert both["macs_per_token"]["attention scores"] < wide["macs_per_token"]["attention scores"]


def test_the_first_lines_of_a_run_and_its_epochs_tell_stages_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rows of 32 or 16 bytes; an epoch has half as many updates of the long ones."""
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("a few words\n" * 300)
    words = "pretrain gpt2 size=tiny size.width=32 data.path=t.txt data.lines=running"
    words += " tokenizer=byte_bpe tokenizer.vocab_size=265 train.batch_size=8 train.epochs=1"
    words += " format.max_length=32 data.valid_share=0"
    told = []
    for stages in ("[]", "[{share:0.5,format.max_length:16},{share:0.5}]"):
        own = [f"train.stages={stages}", f"run.dir=run{len(told)}"]
        done = CliRunner().invoke(make_app(), [*words.split(), *own])
        assert done.exit_code == 0, done.output
        told.append(done.output + done.stderr)
    assert "updates of 8 rows of at most 32 tokens" in told[0]
    stages = "8 rows of at most 16 tokens (0.5), 8 rows of at most 32 tokens (0.5)"
    assert f"updates in stages of {stages}" in told[1]
    plain, staged = (
        [record["step"] for record in read_metrics(Path(f"run{number}/metrics.jsonl"))][-1]
        for number in (0, 1)
    )
    assert staged == pytest.approx(plain / 0.75, abs=1)


def test_the_share_of_the_peak_is_that_of_the_stage(tmp_path: Path) -> None:
    stages = [Stage(batches=ToyBatches, share=0.5, flops_per_token=flops) for flops in (1e3, 3e3)]
    make_trainer(
        tmp_path, steps=2, stages=stages, settings={"peak_flops": 1e9, "log_every": 1}
    ).fit()
    records = [record for record in read_metrics(tmp_path / "metrics.jsonl") if "mfu" in record]
    found = [record["mfu"] / record["tokens_per_second"] for record in records]
    assert found == pytest.approx([1e-6, 3e-6], rel=1e-3)


def test_an_update_limited_by_its_tokens_has_rows_of_full_length_at_most() -> None:
    words = [*WORDS, "format.max_length=64", "position.max_length=64", "train.steps=40"]
    limited = compose("pretrain", "bert", [*words, "train.batch_tokens=250"])
    counted = compose("pretrain", "bert", [*words, "train.batch_size=3"])
    assert estimate(limited)["run"] == estimate(counted)["run"]
    assert estimate(limited)["memory"] == estimate(counted)["memory"]
    stages = "train.stages=[{share:0.5,train.batch_size:12},{share:0.5}]"
    mixed = compose("pretrain", "bert", [*words, "train.batch_tokens=250", stages])
    trains = [stage_config(mixed, number).train for number in (0, 1)]
    rows = [count_rows(each.batch_size, each.batch_tokens, 64) for each in trains]
    assert rows == [12, 3]
    longer = [*WORDS, "format.max_length=64", "train.steps=40"]
    stages = "train.stages=[{share:0.5},{share:0.5,train.batch_tokens:128}]"
    given = compose("pretrain", "modern_encoder", [*longer, "train.batch_tokens=250", stages])
    with pytest.raises(ConfigErrors, match="format=blocks fills all rows") as full:
        check_settings(given)
    first, second = full.value.errors
    assert isinstance(first, ConfigError)
    assert first.fix == "train.batch_tokens=null train.batch_size=3"
    assert "train.stages.1.train.batch_tokens=128" in str(second)
    with pytest.raises(ConfigError, match=r"train\.batch_tokens says") as raised:
        compose("pretrain", "bert", [*words, "train.batch_tokens=250", "train.batch_size=3"])
    assert raised.value.fix == "train.batch_tokens=null"
