"""The file of a split."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.readers import files


def test_a_task_without_files_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"(?s)task\.path.*fix: task\.path=FOLDER"):
        files.need(None, "dev", ["dev.tsv"])


def test_a_missing_file_is_set_anew_and_no_model_is_proposed(tmp_path: Path) -> None:
    run = tmp_path / "mails"
    run.mkdir()
    (run / "config.yaml").write_text("version: 2\n")
    with pytest.raises(DataError, match=r"no such file .*\n  fix: task\.path=FILE"):
        files.existing(tmp_path / "mails.csv", "task.path")
    (tmp_path / "mail.csv").write_text("text\n")
    with pytest.raises(DataError, match=f"fix: task.path={tmp_path / 'mail.csv'}"):
        files.existing(tmp_path / "mails.csv", "task.path")
