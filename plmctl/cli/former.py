"""Spellings of earlier versions, which are taken for one version more, with a warning."""

from __future__ import annotations

from plmctl.core.errors import UsageError
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import WARN, remark


def warn_of_former(former: str, now: str) -> None:
    """Say how what was typed is spelled from the next version on."""
    remark(f"plmctl: {former} is the former spelling; the next version takes only: {now}", WARN)


def choose_place(typed: str, former: str | None, out: str | None) -> str | None:
    """Where to write: `--out`, or the word that stood there in earlier versions, with a warning."""
    if former is None:
        return out
    if out is not None:
        what = f"the target appears twice: {former} and --out {out}"
        raise UsageError(f"{what}\n  fix: leave out {former}")
    warn_of_former(f"{typed} {former}", f"{typed} --out {spell_word(former)}")
    return former
