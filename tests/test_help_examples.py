"""The two examples at the end of each command's --help run as they stand, one after the other in one folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli import EXAMPLES, VERBS, make_app

ORDER = (
    "tokenize", "data check", "pretrain", "finetune", "eval", "convert", "embed", "generate", "average", "ablate", "report"
)  # fmt: skip
REVIEWS = [("a warm and funny film", 1), ("dull from start to finish", 0), ("great acting", 1), ("a waste of time", 0)] * 20


def test_every_command_has_two() -> None:
    assert set(EXAMPLES) == set(VERBS) == set(ORDER)
    assert all(len(lines) == 2 for lines in EXAMPLES.values())


def test_they_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "glue/SST-2"
    folder.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = "".join(f"{text}\t{label}\n" for text, label in REVIEWS)
        (folder / f"{split}.tsv").write_text(f"sentence\tlabel\n{rows}", encoding="utf-8")
    Path("README.md").write_text(
        "Any text will do.\n\nIt has two documents, and more than one sentence.\n" * 9, encoding="utf-8"
    )
    for line in (line for verb in ORDER for line in EXAMPLES[verb]):
        result = CliRunner().invoke(make_app(), shlex.split(line)[1:])
        assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception!r}"
    assert Path("tokens/manifest.json").exists()
    assert Path("exported/model.safetensors").exists()
    assert Path("compared.md").exists()
    assert Path("checked_files/lengths.svg").exists()
