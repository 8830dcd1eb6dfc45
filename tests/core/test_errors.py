"""Errors of parts have the paths of their settings in the whole config."""

from __future__ import annotations

import pytest

from plmctl.core.errors import ConfigError


@pytest.mark.parametrize(
    ("fix", "whole"),
    [
        ("rank=4", "peft.gated.parts.lora.rank=4"),
        ("peft.lora.rank=4 x.rank=3", "peft.gated.parts.lora.rank=4 x.rank=3"),
        ("peft=bitfit", "peft=bitfit"),
    ],
)
def test_an_error_is_placed_with_its_fix(fix: str, whole: str) -> None:
    found = ConfigError("rank", 0, "1 or more", fix=fix).under("peft.gated.parts.lora")
    assert str(found) == f"peft.gated.parts.lora.rank=0: 1 or more\n  fix: {whole}"
