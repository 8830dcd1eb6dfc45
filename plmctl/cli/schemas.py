"""Whose settings a command takes."""

from __future__ import annotations

from plmctl.config.schema import VERBS as SCHEMAS


def schema_of(command: str) -> str:
    """The command whose settings this one takes: "data" of "data check"; or nothing."""
    return next((word for word in reversed(command.split()) if word in SCHEMAS), "")
