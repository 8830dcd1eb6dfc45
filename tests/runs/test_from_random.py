"""The line that proposes the same fine-tuning from random weights."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plmctl.config.compose import compose
from plmctl.runs import finetuning

TASK = ["task=classification", "task.path=builtin"]


@pytest.mark.parametrize(
    ("own", "built"),
    [
        (["size=mini"], "size=mini"),
        (["size=tiny", "size.width=64"], "size.num_layers=2 size.width=64"),
        (["size=tiny", "model.stack.residual.dropout=0.3"], ""),
    ],
)
def test_it_builds_the_model_of_the_run_or_is_absent(
    own: list[str], built: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = [*TASK, "checkpoint=runs/x", "run.dir=runs/a"]
    monkeypatch.setattr(finetuning, "first_words", lambda folder: started)
    monkeypatch.setattr(finetuning, "read_origins", lambda folder: {"checkpoint": [{"step": 4}]})
    spec = compose("finetune", None, [*TASK, "checkpoint=null", *own])
    session: Any = SimpleNamespace(spec=spec, folder=Path("runs/a"))
    line = finetuning._spell_random(session)
    assert (built in line) if built else not line
    assert not line or "tokenizer.path=runs/a/tokenizer run.dir=runs/a-random" in line
    assert "runs/x" not in line
