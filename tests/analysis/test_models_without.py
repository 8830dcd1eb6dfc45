"""Panels of what only some models have: none for other runs, and none without a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from plmctl.report.panel import Panel
from plmctl.report.panels import attention, buckets, halting, patterns, positions
from plmctl.report.subject import find_subject

SILENT = [attention.density, attention.spans]
SILENT += [each.panel for each in (buckets, halting, patterns)]


@pytest.mark.parametrize("panel", SILENT)
def test_other_runs_have_no_such_panel(trained: Path, panel: Panel[Any]) -> None:
    assert panel(find_subject([trained])) == []


@pytest.mark.parametrize("panel", [each.panel for each in (buckets, halting, patterns, positions)])
def test_a_run_without_a_checkpoint_has_none(
    trained: Path, tmp_path: Path, panel: Panel[Any]
) -> None:
    shutil.copy(trained / "config.yaml", tmp_path)
    assert panel(find_subject([tmp_path])) == []
