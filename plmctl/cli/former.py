"""Spellings of earlier versions, which are taken for one version more, with a warning."""

from __future__ import annotations

from plmctl.core.terminal import WARN, remark


def warn_of_former(former: str, now: str) -> None:
    """Say how what was typed is spelled from the next version on."""
    remark(f"plmctl: {former} is the former spelling; the next version takes only: {now}", WARN)
