"""Settings in YAML: what is written is read again, value by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plmctl.storage import settings_file
from plmctl.storage.settings_file import read_settings, to_yaml

TEXTS = [
    "1e-3",
    "1e3",
    "yes",
    "null",
    "~",
    "",
    " lead",
    "- a",
    "#b",
    ": c",
    "'q'",
    '"d"',
    "2020-01-01",
]
STRANGE: dict[str, Any] = {
    "texts": [*TEXTS, "two\nlines\n", "第一 é 😀", "bell \x07\ttab", "word " * 60, "x" * 200],
    "numbers": [1e-5, float("inf"), -0.0, 10**30, 0, 1.0],
    "others": [None, True, {}, [], {"a": [{"b": 1}, 2]}],
}


@pytest.mark.parametrize("in_c", [True, False])
def test_strange_values_come_back(
    in_c: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where YAML was built without its part in C."""
    settings_file._dumper.cache_clear()
    if not in_c:
        monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    try:
        text = to_yaml(STRANGE)
    finally:
        settings_file._dumper.cache_clear()
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")
    assert repr(read_settings(tmp_path / "a.yaml")) == repr(STRANGE)
