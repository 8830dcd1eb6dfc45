"""The settings that decide a model, and the lengths of the rows that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plmctl.config.build import plain

OF_A_MODEL = ("size", "pattern", "position", "kernel", "model", "heads", "peft", "format", "task")


def model_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a model as plain values, with the formats of all sources and stages."""
    settings = {slot: plain(spec[slot]) for slot in OF_A_MODEL if slot in spec}
    sources = plain((spec.get("data") or {}).get("sources") or {})
    stages = plain((spec.get("train") or {}).get("stages") or [])
    return settings | {"data": {"sources": sources}, "train": {"stages": stages}}
