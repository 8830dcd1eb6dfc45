"""Values of modules that no list names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plmctl import analysis
from plmctl.analysis.measure import Measure
from plmctl.core.members import find_members


def test_modules_of_packages_are_read_and_packages_inside_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "found_here" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "found_here/__init__.py").write_text("first = 1001")
    (tmp_path / "found_here/one.py").write_text("from found_here import first\nsecond = 1002")
    (tmp_path / "found_here/__main__.py").write_text("raise SystemExit")
    (inner / "__init__.py").write_text("third = 1003")
    (inner / "deep.py").write_text("fourth = 1004")
    (tmp_path / "single_file.py").write_text("fifth = 1005")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_members(
        analysis,
        ["found_here", "single_file"],
        lambda value: isinstance(value, int) and value > 1000,
    )
    assert [value for value in found if value < 1010] == [1001, 1003, 1002, 1005]
    for name in [name for name in sys.modules if name.startswith(("found_here", "single_file"))]:
        del sys.modules[name]


def test_each_once() -> None:
    found = find_members(analysis, [], lambda value: value is Measure)  # many modules import it
    assert found == [Measure]
