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

from plmctl.config.recipes import STUDIES, load, recipes_dir
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


def keep(table: Mapping[str, Any], where: str, form: str) -> dict[str, Any]:
    """The entry of a `table.json`, its numbers with six digits."""

    def shorten(value: Any) -> Any:
        return float(f"{value:.6g}") if isinstance(value, float) else value

    rows = [
        {name: shorten(row[name]) for name in (*KEPT, *JUDGED) if row.get(name) not in (None, "")}
        for row in table["rows"]
        if row.get("difference") is not None
    ]
    return {"where": where, "form": form, "rows": rows}


def count(name: str) -> str:
    """The verdicts of a study, as its file has it, where it was measured: `2 held, 1 undecided`."""
    entries = read().get(name, [])
    settings = load(recipes_dir() / STUDIES / f"{name}.yaml")
    credited = [
        each for each in entries if "copy" not in each and each["form"] == identify(settings)
    ]
    if not credited:
        return "not in this form" if entries else "not measured"
    rows = [row for entry in credited for row in entry["rows"] if row.get("verdict")]
    idle = set(find_idle(settings))
    counts = Counter(row["verdict"] for row in rows if (row["metric"], row["arm"]) not in idle)
    told = [f"{counts[each]} {each}" for each in VERDICTS if counts[each]]
    if number := len(rows) - counts.total():
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
