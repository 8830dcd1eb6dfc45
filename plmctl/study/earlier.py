"""Earlier tables of a study, which seeds, drops and directions of now may follow from. P-values and
verdicts know nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.analysis.sequences import Comparison
from plmctl.core.terminal import counted
from plmctl.storage.reading import read_json
from plmctl.study.study import Study

ADDED = (
    "seeds were added after a first table of {first}, which had p-values: those of now are of the"
    " last look alone; until=decided corrects them for all looks"
)
DROPPED = (
    "{what} had results in an earlier table and is dropped now: p-values are corrected for"
    " {now}, not for {before}"
)
MARK = "§"
CHANGED = (
    "{mark} {metric}: {changes}. Directions changed after the first results{at} are not planned:"
    " such a verdict confirms nothing"
)
NEW = "{metrics}: added after the first results{at}, so no direction there was planned"
Earlier = Mapping[str, Any]
First = dict[str, dict[str, dict[str, str]]]  # {metric: {arm: its direction and the time}}


def read_earlier(study: Study, file: Path) -> list[dict[str, Any]]:
    """The earlier tables of a study, the oldest first: their seeds, whether they had p-values, and
    their comparisons with a result.

    Args:
        study: The study as it is now; a table with the same seeds and no other comparisons is none
            that is earlier.
        file: Its table.json, of the start before this one.
    """
    table = read_json(file) if file.is_file() else {}
    known: list[dict[str, Any]] = list(table.get("earlier") or ())
    rows = [row for row in table.get("rows") or () if row["difference"] is not None]
    last: dict[str, Any] = {
        "seeds": table.get("planned_seeds") or len(table.get("seeds") or ()),
        "tested": any(row["p"] is not None for row in rows),
        "comparisons": [[r["metric"], r["arm"]] for r in rows if not r.get("p_of")],
    }
    fewer = last["seeds"] < len(study.seeds) and last["tested"]
    return [*known, last] if fewer or _find_dropped(study, [last]) else known


def describe_earlier(study: Study, earlier: Sequence[Earlier], first: First) -> list[str]:
    """The notes on them below a table."""
    tested = [look["seeds"] for look in earlier if look["tested"]]
    lines = [ADDED.format(first=tested[0])] if tested and tested[0] < len(study.seeds) else []
    if dropped := _find_dropped(study, earlier):
        what = ", ".join(_name(study, dropped))
        now = counted(len(study.comparisons), "comparison")
        before = len({*study.comparisons, *dropped})
        lines.append(DROPPED.format(what=what, now=now, before=before))
    return [*lines, *_describe_changed(study, first)]


def keep_first(study: Study, rows: Iterable[Mapping[str, Any]], file: Path) -> First:
    """The directions as of the first results of a study, with the time; empty before them.

    An arm that is added later has its direction before it has results. A metric that is added for
    known arms has none.

    Args:
        study: The study as it is now.
        rows: The rows of the table that is written now.
        file: Its table.json, of the start before this one.
    """
    table = read_json(file) if file.is_file() else {}
    known: First = table.get("first") or {}
    before = table.get("rows") or ()
    if not known and any(row["difference"] is not None for row in before):  # an older version
        for row in before:
            entry = {"expected": row["expected"], "at": ""}
            known.setdefault(row["metric"], {})[row["arm"]] = entry
    if not known and all(row["difference"] is None for row in rows):
        return {}
    now, arms = time.strftime("%Y-%m-%d %H:%M"), {arm for own in known.values() for arm in own}
    added = {*study.metrics} - {*known} if known else set()
    for name, metric in study.metrics.items():
        for arm in study.arms:
            late = name in added and arm in arms
            entry = {"expected": "" if late else metric.expect.get(arm, ""), "at": now}
            known.setdefault(name, {}).setdefault(arm, entry | ({"added": now} if late else {}))
    return known


def find_changed(study: Study, first: First) -> dict[str, dict[str, tuple[str, str]]]:
    """{metric: {arm: its direction at first, and now}}, where they differ."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for name, metric in study.metrics.items():
        for arm, entry in first.get(name, {}).items():
            now = metric.expect.get(arm, "")
            if arm in study.arms and now != entry["expected"]:
                found.setdefault(name, {})[arm] = entry["expected"], now
    return found


def _describe_changed(study: Study, first: First) -> list[str]:
    """The notes on directions and metrics that came after the first results."""
    entries = [entry for own in first.values() for entry in own.values()]
    when = min((entry["at"] for entry in entries), default="")
    at, lines = f" ({when})" if when else "", list[str]()
    for metric, arms in find_changed(study, first).items():
        changes = "; ".join(
            f"{arm}: {old or 'no direction'} before, {new or 'none'} now"
            for arm, (old, new) in arms.items()
        )
        lines.append(CHANGED.format(mark=MARK, metric=metric, changes=changes, at=at))
    added = [m for m in study.metrics if any("added" in e for e in first.get(m, {}).values())]
    return [*lines, *([NEW.format(metrics=", ".join(added), at=at)] if added else [])]


def _find_dropped(study: Study, earlier: Iterable[Earlier]) -> list[Comparison]:
    """The comparisons of earlier tables that a study has no more."""
    seen = ((metric, arm) for look in earlier for metric, arm in look["comparisons"])
    kept = {*study.metrics}, {*study.arms}
    return [*dict.fromkeys((m, a) for m, a in seen if m not in kept[0] or a not in kept[1])]


def _name(study: Study, dropped: Collection[Comparison]) -> list[str]:
    """The metrics and arms that are gone, each once."""
    names = (metric if metric not in study.metrics else f"arm '{arm}'" for metric, arm in dropped)
    return [*dict.fromkeys(names)]
