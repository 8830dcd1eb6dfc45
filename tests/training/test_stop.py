"""Signals: warnings of a cluster save, and none of those that follow destroys the save."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from plmctl.training import checkpoint
from plmctl.training.stop import ends_at_once
from tests.training.toy import make_trainer


@pytest.mark.parametrize("first", [signal.SIGUSR2, signal.SIGUSR1, signal.SIGTERM])
def test_a_cluster_may_warn_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: signal.Signals
) -> None:
    """SLURM sends SIGTERM and SIGUSR2 one after the other, while the run saves."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    trainer = make_trainer(tmp_path, steps=9)
    real = trainer.objective.after_step

    def after_step(model: Any, step: int) -> None:
        real(model, step)
        if step == 3:
            os.kill(os.getpid(), first)

    def interrupt(folder: Path) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), number)

    trainer.objective.after_step = after_step  # type: ignore[method-assign]
    trainer.checkpoints.extras = interrupt
    result = trainer.fit()
    assert (result.exit_code, result.progress.step) == (128 + first, 4)
    assert result.checkpoint is not None
    assert checkpoint.damage(result.checkpoint) == ""


def test_a_person_ends_a_process_with_the_second_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SUBMITIT_EXECUTOR"):
        monkeypatch.delenv(name, raising=False)
    assert ends_at_once(signal.SIGTERM)
    assert not ends_at_once(signal.SIGUSR1)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert ends_at_once(signal.SIGINT)
    assert not ends_at_once(signal.SIGTERM)
