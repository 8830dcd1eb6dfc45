"""`--resume` with further words: only what they change counts, whatever had to be given the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from plmctl.config.compose import Flags, compose
from plmctl.config.resume import resumed
from plmctl.errors import ConfigError, UsageError
from plmctl.training import rundir

MINE = """# @package _global_
defaults:
  - override /objective: [mlm]
size: {num_layers: 1, width: 32, num_heads: 2, inner_width: 64}
train: {steps: 6}
"""


def started(verb: str, folder: Path, recipe: str | None, *words: str) -> Flags:
    cfg = compose(verb, recipe, [*words, f"run.dir={folder}"])
    first = [*([recipe] if recipe else []), *words, f"run.dir={folder}"]
    rundir.create(folder, config=OmegaConf.to_yaml(cfg, resolve=True), overrides=first)
    return Flags(verb, overrides=(f"run.dir={folder}",), resume=True)


def with_words(flags: Flags, *words: str) -> Flags:
    return Flags(flags.verb, overrides=(*flags.overrides, *words), resume=True)


def test_finetune_needs_neither_task_nor_checkpoint_again(tmp_path: Path) -> None:
    flags = started("finetune", tmp_path / "run", None, "task=cola", "task.path=data", "checkpoint=somewhere", "train.steps=5")
    cfg, noted = resumed(with_words(flags, "train.steps=9", "task.path=data"))
    assert (cfg.train.steps, cfg.task.name, cfg.checkpoint) == (9, "cola", "somewhere")
    assert noted.changes == ("train.steps: 5 -> 9",)
    cfg, noted = resumed(with_words(flags, "train.minutes=1"))
    assert (cfg.train.steps, cfg.train.minutes) == (None, 1)
    for word, message in (("task.path=other", "started with 'data'"), ("task=rte", "task.name='rte'"), ("seed=1", "seed=1")):
        with pytest.raises(UsageError, match=message):
            resumed(with_words(flags, word))


def test_a_recipe_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MINE, encoding="utf-8")
    flags = started("pretrain", tmp_path / "run", "./mine.yaml", "optim.lr=1e-3")
    cfg, noted = resumed(with_words(flags, "train.steps=12"))
    assert (cfg.train.steps, cfg.size.width, noted.changes) == (12, 32, ("train.steps: 6 -> 12",))
    with pytest.raises(ConfigError, match=r"noise\.token_mask\.rate=0\.2: the run was started with 0\.15"):
        resumed(with_words(flags, "noise.rate=0.2"))
    Path("mine.yaml").unlink()
    assert resumed(flags)[0].size.width == 32
    with pytest.raises(UsageError, match=r"(?s)mine.yaml: there is no such file.*fix: give run.dir alone"):
        resumed(with_words(flags, "train.steps=12"))
