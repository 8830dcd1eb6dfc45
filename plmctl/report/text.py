"""Format numbers and settings for a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from plmctl.tasks.scores.bundles import DRAWN, remark_few, spell_bundles

SPELLED = 1e15  # from here on, a double has no digit after the point, and no reader counts digits
# the same where examples are in bundles, as those of one customer
BUNDLED = f"the 95% interval: {DRAWN}."
METHOD = (  # the way in which intervals of scores are found
    "the 95% interval: the middle 95% of the scores of 1,000 random draws of the examples"
    " (bootstrap); for a share of examples, such as accuracy, Wilson's formula."
)


def format_number(value: float | None, digits: int = 4) -> str:
    """`1,234`, `0.9123`, `1.2e-07`, `1.2e+295`; "" for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= SPELLED:
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 10_000 else f"{value:.{digits}g}"


def describe_method(*bundled: bool) -> str:
    """The ways in which the intervals of runs are found.

    Args:
        bundled: Whether the examples of a run are in bundles, for each run.
    """
    ways = [METHOD] if not all(bundled) or not bundled else []
    ways += [BUNDLED] if any(bundled) else []
    return " Where examples are in bundles: ".join(ways)


def spell_within(result: Mapping[str, Any] | None, split: str) -> str:
    """` in 18 bundles`, with a remark on few of them, for a split of a run; "" without bundles."""
    count = ((result or {}).get("bundles") or {}).get(split)
    if count is None:
        return ""
    few = remark_few(count)
    return f"{spell_bundles(count)}{f' ({few})' if few else ''}"


def format_percent(value: float | None) -> str:
    """`12.3%`; "" for None."""
    return "" if value is None else f"{100 * value:.1f}%"


def format_setting(value: Any) -> str:
    """A value of a config as text; for the class of a part, its short name."""
    if isinstance(value, list):
        return f"[{', '.join(map(format_setting, value))}]"
    text = (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
    return text.rpartition(".")[2] if text.startswith("plmctl.") else text


def clip(text: str, most: int = 240) -> str:
    """A text on one line, cut to about `most` characters."""
    text = " ".join(str(text).split())
    return text if len(text) <= most else f"{text[:most]}…"


def name_part(name: str, text: str) -> str:
    """`text`, behind the name of the part of a model that it is about, if that has one."""
    return f"{name}: {text}" if name else text


def spell_file(name: str) -> str:
    """A name as a part of a file name, "loss/mlm" as "loss-mlm"; it may be empty."""
    return re.sub(r"[^\w.]+", "-", name.lower()).strip("-.")


def name_files(names: Iterable[str]) -> dict[str, str]:
    """{a name: its part of a file name}, such as {"loss/mlm": "loss-mlm"}; no two are equal."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        word = spell_file(name)
        number = len(found)
        found[name] = f"{word}-{number}" if not word or word in found.values() else word
    return found


def describe_warmup(schedule: Mapping[str, Any], steps: int | None) -> str:
    """The warm-up of a run of so many updates, which a limit may cut; empty where nothing says how
    many they are.
    """
    warmup = schedule.get("warmup_share", 0) * (steps or 0) or schedule.get("warmup_steps", 0)
    if not steps or not warmup:
        return ""
    return f"{min(warmup, schedule.get('warmup_limit', 1) * steps):,.0f} of {steps:,} updates"
