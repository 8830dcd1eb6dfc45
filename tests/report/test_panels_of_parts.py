"""Panels of what only some models have: none for other runs, and none without a model."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from plmctl.report.panels import buckets, density, halting, patterns, positions, spans
from plmctl.report.subject import find_subject


@pytest.mark.parametrize("module", [buckets, density, halting, patterns, spans])
def test_other_runs_have_no_such_panel(trained: Path, module: ModuleType) -> None:
    assert module.panel(find_subject([trained])) == []


@pytest.mark.parametrize("module", [buckets, halting, patterns, positions])
def test_a_run_without_a_checkpoint_has_none(
    trained: Path, tmp_path: Path, module: ModuleType
) -> None:
    shutil.copy(trained / "config.yaml", tmp_path)
    assert module.panel(find_subject([tmp_path])) == []
