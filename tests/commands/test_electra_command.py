"""`plmctl pretrain` with a generator beside the model: resume bit for bit, previews and costs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.test_pretrain_command import TINY, curve, pretrain, same


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "settings",
    [[], ["objective=[two_stage]", "objective.two_stage.updates=2"]],
    ids=["electra", "two_stage"],
)
def test_resume_continues_bit_for_bit(
    settings: list[str], tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Dropout and sampling on: the weights, moments, generators and the curve of a run that was
    never stopped.
    """
    whole, part = tmp_path / "whole", tmp_path / "part"
    words = [
        "electra",
        *settings,
        *TINY,
        f"data.path={tokens_of('wordpiece')}",
        "train.micro_batch_size=4",
        "eval.rows=8",
    ]
    pretrain(
        *words,
        "train.steps=6",
        "train.save_every=3",
        "train.keep_last=9",
        "train.log_every=2",
        f"run.dir={whole}",
    )
    shutil.copytree(whole, part)
    shutil.rmtree(part / "checkpoints/step-6")
    output = pretrain("--resume", f"run.dir={part}")
    assert same(whole / "checkpoints/step-6", part / "checkpoints/step-6"), output
    assert curve(whole) == curve(part)


def test_preview_and_dry_run_know_the_generator(tokens_of: Callable[..., Path]) -> None:
    words = ["electra", *TINY, f"data.path={tokens_of('wordpiece')}"]
    assert "[MASK]" in pretrain(*words, "--preview", "1")
    with_it = json.loads(pretrain(*words, "--dry-run", "--json"))
    larger = json.loads(
        pretrain(*words, "objective.electra.generator.share=0.5", "--dry-run", "--json")
    )
    assert 0 < with_it["parameters"]["objective"] < larger["parameters"]["objective"]
    assert 0 < with_it["macs_per_token"]["objective"] < larger["macs_per_token"]["objective"]
    assert with_it["run"]["training FLOPs per token"] < larger["run"]["training FLOPs per token"]
