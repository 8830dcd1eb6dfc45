"""What `plmctl ablate --dry-run` finds out about the tokenizers of the arms."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.asked import is_asked
from plmctl.config.spec import Provenance
from plmctl.study import tokenizers
from plmctl.study.plan import StudyPlan
from tests.study import toy_study

BITS = {"bits": {"of": "pretrain", "key": "bits_per_byte/mlm"}}
PLAIN = {"recipe": "roberta", "overrides": ["size=tiny"]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toy_study.write_files(tmp_path)
    return tmp_path


def dry_run(*words: str) -> Any:
    return CliRunner().invoke(make_app(), ["ablate", "./toy.yaml", "--dry-run", *words])


def write_arm(here: Path, *words: str) -> None:
    arms = {"slow": [], "fast": list(words)}
    toy_study.write_study(here, arms=arms, metrics=BITS, finetune=None)


def test_a_text_too_small_for_the_vocabulary_of_an_arm(here: Path) -> None:
    write_arm(here, "tokenizer.vocab_size=30000")
    done = dry_run()
    assert done.exit_code == 2
    assert "arm 'fast': tokenizer.vocab_size=30000: this text is too small for it" in done.stderr
    assert "\n  fix: tokenizer.vocab_size=" in done.stderr


def test_a_size_that_no_arm_asks_for_is_the_largest_that_works(
    here: Path, planned: Callable[..., StudyPlan]
) -> None:
    plan = planned(finetune=None, metrics=BITS, pretrain=PLAIN)
    done = dry_run()
    assert done.exit_code == 0, done.output
    found = re.search(
        r"tokenizer\.vocab_size=(\d+) instead of \d+: the text yields no more", done.stderr
    )
    assert found
    arm = plan.arms["slow"]
    assert arm.count(None) == arm.count(int(found[1])) < arm.count(8192)


def test_the_job_that_tokenizes_knows_what_was_asked(planned: Callable[..., StudyPlan]) -> None:
    arms = {"slow": [], "fast": ["tokenizer.vocab_size=280"]}
    plan = planned(arms=arms, finetune=None, metrics=BITS, pretrain=PLAIN)
    asked = {
        job.config["tokenizer"]["vocab_size"] == 280: is_asked(
            Provenance("tokenize", overrides=job.words, within=True), "tokenizer.vocab_size"
        )
        for job in plan.jobs.values()
        if job.verb == "tokenize"
    }
    assert asked == {True: True, False: False}


def test_an_arm_whose_special_tokens_its_noise_lacks(here: Path) -> None:
    write_arm(here, "tokenizer=byte_bpe", "tokenizer.specials=gpt2")
    done = dry_run()
    assert done.exit_code == 2
    assert "arm 'fast': " in done.stderr
    assert "this tokenizer has no 'sep' token" in done.stderr


def test_of_a_long_text_its_beginning_is_tried(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "SHORT", 4096)
    write_arm(here, "tokenizer.vocab_size=30000")
    done = dry_run()
    assert done.exit_code == 0, done.output
    assert "not checked: whether the text yields 30,000 tokens (arm 'fast')" in done.stderr
    assert "arm 'slow'" not in done.stderr
