"""One small trained model for all that look into one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli import app as cli


@pytest.fixture(scope="session")
def trained(tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two updates of a small ALBERT of four layers."""
    folder = tmp_path_factory.mktemp("albert") / "run"
    words = [
        "pretrain",
        "albert",
        f"data.path={tokens_of('unigram')}",
        "size.width=32",
        "size.inner_width=64",
        "train.steps=2",
        "model.embedding.table_width=16",
        "train.batch_size=4",
        "format.max_length=64",
        f"run.dir={folder}",
        "train.threads=1",
        "eval.rows=16",
    ]
    made = CliRunner().invoke(cli.make_app(), words)
    assert made.exit_code == 0, made.output
    return folder
