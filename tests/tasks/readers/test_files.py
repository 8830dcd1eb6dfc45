"""The file of a split."""

from __future__ import annotations

import pytest

from plmctl.core.errors import ConfigError
from plmctl.tasks.readers import files


def test_a_task_without_files_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"(?s)task\.path.*fix: task\.path=FOLDER"):
        files.need(None, "dev", ["dev.tsv"])
