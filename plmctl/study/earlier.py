"""Earlier tables of a study: who has seen a table, and then adds seeds or drops comparisons, has
p-values that know nothing of it.
"""

from __future__ import annotations

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
Earlier = Mapping[str, Any]


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


def describe_earlier(study: Study, earlier: Sequence[Earlier]) -> list[str]:
    """The notes on them below a table."""
    tested = [look["seeds"] for look in earlier if look["tested"]]
    lines = [ADDED.format(first=tested[0])] if tested and tested[0] < len(study.seeds) else []
    if dropped := _find_dropped(study, earlier):
        what = ", ".join(_name(study, dropped))
        now = counted(len(study.comparisons), "comparison")
        before = len({*study.comparisons, *dropped})
        lines.append(DROPPED.format(what=what, now=now, before=before))
    return lines


def _find_dropped(study: Study, earlier: Iterable[Earlier]) -> list[Comparison]:
    """The comparisons of earlier tables that a study has no more."""
    seen = ((metric, arm) for look in earlier for metric, arm in look["comparisons"])
    kept = {*study.metrics}, {*study.arms}
    return [*dict.fromkeys((m, a) for m, a in seen if m not in kept[0] or a not in kept[1])]


def _name(study: Study, dropped: Collection[Comparison]) -> list[str]:
    """The metrics and arms that are gone, each once."""
    names = (metric if metric not in study.metrics else f"arm '{arm}'" for metric, arm in dropped)
    return [*dict.fromkeys(names)]
