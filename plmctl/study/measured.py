"""Results of shipped studies, stored in `recipes/studies/measured.json` next to the studies: the
catalogue counts them. `python docs/measured.py` adds the table of a study that has run.

An entry has the rows of a `table.json` that have a difference, and the form of the study that was
measured. It is credited as long as the file has this form. `copy` says how an edited copy differs
from the study; a copy is not credited.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.config.recipes import STUDIES, recipes_dir
from plmctl.study.study import Metric, Published
from plmctl.study.untrained import find_untrained

FILE = "measured.json"
KEPT = ("metric", "arm", "n", "mean", "sd", "difference", "low", "high", "p_holm")
JUDGED = ("expected", "verdict")
FORM = ("pretrain", "start", "arms", "baseline")
VERDICTS = ("held", "not held", "undecided")


def read() -> dict[str, list[dict[str, Any]]]:
    """{study: its results, the oldest first}."""
    file = recipes_dir() / STUDIES / FILE
    entries: dict[str, list[dict[str, Any]]] = json.loads(file.read_text(encoding="utf-8"))
    return entries


def identify(settings: Mapping[str, Any]) -> str:
    """The identity of a study's training, 8 hexadecimal digits."""
    form = {name: settings.get(name) for name in FORM}
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()[:8]


def keep(table: Mapping[str, Any], where: str, form: str, date: str) -> dict[str, Any]:
    """The entry of a `table.json` of this `date` (ISO 8601), its numbers with six digits."""

    def shorten(value: Any) -> Any:
        return float(f"{value:.6g}") if isinstance(value, float) else value

    rows = [
        {name: shorten(row[name]) for name in (*KEPT, *JUDGED) if row.get(name) not in (None, "")}
        for row in table["rows"]
        if row.get("difference") is not None
    ]
    return {"where": where, "date": date, "form": form, "rows": rows}


def credited(name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results of a study in the form that its file has, the oldest first."""
    form = identify(settings)
    return [each for each in read().get(name, []) if "copy" not in each and each["form"] == form]


def judge(name: str, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows with a verdict of a study as its file has it, without heads that are not trained."""
    idle = set(find_idle(settings))
    return [
        row
        for entry in credited(name, settings)
        for row in entry["rows"]
        if row.get("verdict") and (row["metric"], row["arm"]) not in idle
    ]


def count(name: str, settings: Mapping[str, Any]) -> str:
    """The verdicts of a study, as its file has it, where it was measured: `2 held, 1 undecided`."""
    entries = credited(name, settings)
    if not entries:
        return "not in this form" if read().get(name) else "not measured"
    counts = Counter(row["verdict"] for row in judge(name, settings))
    told = [f"{counts[each]} {each}" for each in VERDICTS if counts[each]]
    given = sum(bool(row.get("verdict")) for entry in entries for row in entry["rows"])
    if number := given - counts.total():
        told.append(f"{number} against an untrained head")
    return ", ".join(told) or "no verdicts"


def spell(entries: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The file with these entries, a row on each line."""
    lines = []
    for name, found in sorted(entries.items()):
        texts = []
        for entry in found:
            facts = {key: value for key, value in entry.items() if key != "rows"}
            rows = ",\n".join(f"   {json.dumps(row)}" for row in entry["rows"])
            whole = f"[\n{rows}\n  ]" if rows else "[]"
            texts.append(f'  {json.dumps(facts)[:-1]}, "rows": {whole}}}')
        lines.append(f" {json.dumps(name)}: [\n" + ",\n".join(texts) + "\n ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def find_idle(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The (metric, arm) of a study of which one side's head is not trained."""
    arms = {
        str(name): (arm.get("overrides") or ()) if isinstance(arm, Mapping) else arm
        for name, arm in settings["arms"].items()
    }
    metrics = {}
    for name, node in settings["metrics"].items():
        figures = Published(**node["published"]) if node.get("published") else None
        metrics[name] = Metric(node["of"], node["key"], published=figures)
    return find_untrained(arms, str(settings["baseline"]), metrics)
