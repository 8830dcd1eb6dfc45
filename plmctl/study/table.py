"""The result of a study: table.md (and .html), table.csv, table.tex, table.json, from what its
jobs have left.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import AXES
from plmctl.analysis.sequences import Comparison, Evidence, Look, evaluate_looks
from plmctl.analysis.statistics import ALPHA, Difference, compare, find_detectable, summarise
from plmctl.core.errors import PlmctlError, first_problem
from plmctl.core.progress import clock
from plmctl.report.charts import draw_means
from plmctl.report.page import Block, Chart, Heading, Paragraph, TableBlock, write_page
from plmctl.report.study_tables import (
    LISTED,
    count_seeds,
    describe_cut,
    explain_table,
    format_budget,
    make_cost_table,
    make_metric_table,
    name_metric,
    spell_floors,
)
from plmctl.storage.atomic import write_json, write_text
from plmctl.storage.formulas import guard
from plmctl.study.costs import spell_tuning_lengths
from plmctl.study.earlier import MARK as CHANGED
from plmctl.study.earlier import describe_earlier, find_changed, keep_first, read_earlier
from plmctl.study.latex import format_latex
from plmctl.study.learned import MARK, Unlearned
from plmctl.study.looks import Looks, judge_tested
from plmctl.study.masks import MARK as OTHER_NOISE
from plmctl.study.masks import explain_other_noise, find_other_noise, name_noises
from plmctl.study.results import Results, list_missing
from plmctl.study.study import PRETRAIN, Study
from plmctl.study.untrained import describe_untrained

ONE_SEED = "One seed says nothing about the spread between runs: no interval, no p, no verdict."
MORE_SEEDS = f"{ONE_SEED} More of them: seeds=[0,1,2]."
PAIRED = ("paired t", "no spread")
UNEVEN = (
    "Arms have different numbers of seeds: a difference is of the seeds that both arms have, and no"
    " difference of the means that are shown."
)
CHOSEN = (
    "The grid of fine-tuning: its best setting on the dev split that is reported, in every arm."
)

# seconds between two tables of a running study; times as long as a table takes
PAUSE, WRITING = 10.0, 20
SHADED = "The mean of the seeds of an arm, shaded from the lowest to the highest."

Row = dict[str, Any]


def make_rows(study: Study, results: Results, looks: Looks | None = None) -> list[Row]:
    """One row for each metric and arm, the baseline first; plain numbers and names.

    Args:
        study: The study of these results.
        results: The results of its jobs.
        looks: The looks that p-values and verdicts follow from; without, they follow from these
            results as they are.
    """
    arms = [study.baseline, *(name for name in study.arms if name != study.baseline)]
    cells = [(name, arm) for name in study.metrics for arm in arms]
    values = {(name, arm): results.values(study.metrics[name], arm) for name, arm in cells}
    differences = {
        (name, arm): difference
        for name, arm in cells
        if arm != study.baseline
        and (difference := compare(values[name, arm], values[name, study.baseline]))
    }
    family = {cell: differences[cell] for cell in study.comparisons if cell in differences}
    tested = looks.test() if looks else study.share_tests(_test_once(family))
    rows = []
    for cell in cells:
        row = _row(study, cell, values[cell], differences.get(cell), tested.get(cell))
        name, arm = cell
        row["percent"] = results.is_percent(study.metrics[name])
        row["absent"] = "" if row["n"] else results.explain_absence(study.metrics[name], arm)
        rows.append(row)
    return rows


def _test_once(differences: Mapping[Comparison, Difference]) -> dict[Comparison, Evidence]:
    """The ordinary test: one look, which has the whole level."""
    known = [cell for cell, difference in differences.items() if difference.p is not None]
    return evaluate_looks([Look(0, 1.0, differences)], known)


def _row(
    study: Study,
    cell: Comparison,
    values: Mapping[int, float],
    difference: Difference | None,
    tested: Evidence | None,
) -> Row:
    name, arm = cell
    metric = study.metrics[name]
    mean, deviation = summarise(list(values.values())) if values else (None, None)
    expected, published = metric.expect.get(arm, ""), metric.published
    known = published is not None and arm in published.values
    limits = difference.interval(ALPHA * tested.share) if difference and tested else None
    low, high = limits or (None, None)
    judged = difference is not None and (difference.test != "no spread" or tested is not None)
    # some tasks give a score in percent
    span = metric.span if values and max(map(abs, values.values())) <= 1 else None
    return {
        "metric": name,
        "arm": arm,
        "n": len(values),
        "mean": mean,
        "sd": deviation,
        "difference": difference.mean if difference else None,
        "low": low,
        "high": high,
        "detectable": find_detectable(difference, tested.level if tested else None),
        "span": span,
        "test": difference.test if difference else "",
        "p": tested.p if tested else None,
        "p_holm": tested.p_holm if tested else None,
        "p_of": same if tested and (same := study.find_same(name)) != name else "",
        "expected": expected,
        "verdict": judge_tested(expected, tested) if judged else "",
        "published": published.values[arm] if known else None,
        "unit": published.unit if known else "",
        "values": dict(values),
    }


def write_table(
    study: Study,
    results: Results,
    folder: Path,
    *,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    looks: Looks | None = None,
    seconds: float = 0.0,
    again: str | None = None,
) -> dict[str, Any]:
    """Write all forms of the table into the study's folder.

    Args:
        study: The study of these results.
        results: The results of the jobs that have run.
        folder: The folder of the study.
        notes: paragraphs behind the tables.
        warnings: Paragraphs from the logs of jobs, which the table for a paper leaves out.
        looks: The looks that p-values and verdicts follow from; None: the results as they are.
        seconds: The seconds of wall-clock time that the study has taken.
        again: The command that runs what is open.

    Returns:
        The content of table.json.
    """
    rows = make_rows(study, results, looks)
    first = keep_first(study, rows, folder / "table.json")
    _mark(rows, results, find_changed(study, first))
    earlier = [] if looks else read_earlier(study, folder / "table.json")
    notes = [*notes, *warnings, *describe_earlier(study, earlier, first)]
    notes += _list_notes(study, results, rows)
    lower = {name for name, metric in study.metrics.items() if results.lower_is_better(metric)}
    floors = {name: results.find_floors(metric) for name, metric in study.metrics.items()}
    record: dict[str, Any] = {
        "study": study.name,
        "title": study.title,
        "baseline": study.baseline,
        "seeds": [s for s in study.seeds if any(cell.seed == s for cell in results.plan.cells)],
        "budget": dict([study.budget] if study.budget else []),
        "seconds": seconds,
        "rows": rows,
        "costs": [{"arm": arm, **results.cost(arm)} for arm in dict.fromkeys(study.arms)],
        "missing": list_missing(results),
        "again": again,
        "jobs": len(results.states),
        "notes": notes,
        "about": _describe_metrics(results, floors, lower),
        "floors": floors,
        "validated_under": name_noises(results.plan),
        "planned_seeds": len(study.seeds),
        "earlier": earlier,
        "first": first,
    }
    if looks:
        record["looks"] = [{"seeds": look.seeds, "share": look.share} for look in looks.made]
        record["most_seeds"] = len(study.seeds)
    paper = {**record, "notes": [line for line in notes if line not in warnings]}
    _write_files(folder, record, format_latex(paper, lower), _blocks(study, results, record))
    return record


def _write_files(
    folder: Path, record: Mapping[str, Any], paper: str, page: Sequence[Block]
) -> None:
    write_json(folder / "table.json", record)
    write_text(folder / "table.csv", _csv(record["rows"], record["costs"], record["notes"]))
    write_text(folder / "table.tex", paper)
    write_page(page, folder / "table.md")


def _mark(
    rows: Sequence[Row], results: Results, changed: Mapping[str, Mapping[str, object]]
) -> None:
    """Give the rows the marks that stand next to their verdicts."""
    marked, other = Unlearned(results).find_marked(), find_other_noise(results.plan)
    for row in rows:
        row["mark"] = MARK if row["arm"] in marked.get(row["metric"], ()) else ""
        late = row["expected"] and row["arm"] in changed.get(row["metric"], ())
        row["late_mark"] = CHANGED if late else ""
        row["noise_mark"] = OTHER_NOISE if row["arm"] in other.get(row["metric"], ()) else ""


def _list_notes(study: Study, results: Results, rows: Sequence[Row]) -> list[str]:
    """The notes on the rows of a table."""
    alone = any(row["test"] == "none" for row in rows)
    return [
        *dict.fromkeys(results.problems),
        *([ONE_SEED if len(study.seeds) > 1 else MORE_SEEDS] if alone else []),
        *([UNEVEN] if _is_uneven(study, rows) else []),
        *describe_untrained(study),
        *results.list_held_out(),
        *results.list_ways(),
        *results.list_ties(),
        *explain_other_noise(results.plan),
        *Unlearned(results).list_notes(),
    ]


def _is_uneven(study: Study, rows: Sequence[Row]) -> bool:
    """Whether an arm is compared by pairs of seeds, of which it or the baseline has more."""
    base = {row["metric"]: {*row["values"]} for row in rows if row["arm"] == study.baseline}
    paired = [row for row in rows if row["test"] in PAIRED]
    return any({*row["values"]} != base[row["metric"]] for row in paired)


class LiveTable:
    """Writes the table of a study while its jobs run, for reports on what is done.

    Args:
        write: The work.
        clock: The seconds since some time.
    """

    def __init__(
        self, write: Callable[[], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._clock, self._next = write, clock, -math.inf

    def __call__(self) -> None:
        """Write it, unless that was a moment ago: it takes a small part of the time."""
        begun = self._clock()
        if begun < self._next:
            return
        with contextlib.suppress(PlmctlError):  # the end of the study raises it
            self._write()
        end = self._clock()
        self._next = end + max(PAUSE, WRITING * (end - begun))


def _blocks(study: Study, results: Results, record: Mapping[str, Any]) -> list[Block]:
    rows: list[Row] = record["rows"]
    budget, lengths = format_budget(record["budget"]), spell_tuning_lengths(results.plan)
    seeds = ", ".join(map(str, record["seeds"]))
    facts = f"Baseline: {study.baseline}. Seeds: {seeds}. Budget of every pretraining: {budget}."
    facts += "".join(f" Fine-tuning on {task}: {length}." for task, length in lengths.items())
    facts += f" Time taken: {clock(record['seconds'])}." if record["seconds"] else ""
    blocks: list[Block] = [Heading(study.title, 1), Paragraph(facts)]
    for name in study.metrics:
        own = [row for row in rows if row["metric"] == name]
        blocks += [
            Heading(name_metric(own)),
            Paragraph(record["about"][name]),
            make_metric_table(own),
        ]
    chosen = study.tasks and len(study.points) > 1
    blocks += [Paragraph(explain_table(record)), *([Paragraph(CHOSEN)] if chosen else [])]
    blocks += [Heading("Cost of an arm, mean over seeds"), make_cost_table(record["costs"])]
    measured = [(name, metric) for name, metric in study.metrics.items() if metric.validated]
    where = "the held-out documents" if results.validates else "a sample of held-out text"
    blocks += [Heading(f"Learning curves on {where}")] if measured else []
    for number, (name, metric) in enumerate(measured):
        runs = results.runs(metric, study.curves)
        title = f"{name}, mean of {count_seeds(record)}"
        if not number and any(len(repeated) > 1 for repeated in runs.values()):
            blocks.append(Paragraph(SHADED))
        svg = draw_means(runs, title=title, x=AXES[study.curves], y=name, unit=metric.unit)
        blocks.append(Chart(f"curve-{number}-{study.curves}", svg))
    if record["missing"]:
        lines = [
            [job["label"], job["state"], first_problem(job["why"]), job["cells"]]
            for job in record["missing"][:LISTED]
        ]
        cut = describe_cut(record["missing"], "without a result", record["again"])
        blocks += [Heading("Missing jobs"), Paragraph(cut)]
        blocks += [TableBlock(["job", "state", "why", "cells"], lines)]
    if record["notes"]:
        blocks += [Heading("Notes"), *map(Paragraph, record["notes"])]
    return blocks


def _describe_metrics(
    results: Results, floors: Mapping[str, Mapping[str, float]], lower: Collection[str]
) -> dict[str, str]:
    """{metric: what it is}."""
    noises = name_noises(results.plan)
    return {
        name: _describe(results, name, own, name in lower, noises.get(name, ""))
        for name, own in floors.items()
    }


def _describe(
    results: Results, name: str, floors: Mapping[str, float], lower: bool, noise: str
) -> str:
    metric, held_out = results.plan.study.metrics[name], ""
    if metric.validated:
        sampled = "" if results.validates else "a sample, no validation: "
        held_out = f", on {sampled}the held-out documents"
        held_out += f", validated under {noise}" if noise else ""
    where = f"pretraining{held_out}" if metric.of == PRETRAIN else metric.of
    source = metric.published.source if metric.published else ""
    side = "lower" if lower else "higher"
    about = f"{'exp of ' if metric.exp else ''}{metric.key} of {where}; {side} is better."
    about += f" Without pretraining: {spell_floors(floors)}." if floors else ""
    return about + (f" Published: {source}." if source else "")


def _csv(rows: Sequence[Row], costs: Sequence[Mapping[str, Any]], notes: Sequence[str]) -> str:
    """One line a row, with the arm's cost; values by seed are joined as seed=value. The first row
    has the notes of the table.
    """
    by_arm = {cost["arm"]: cost for cost in costs}
    text = io.StringIO()
    renamed = {"p": "p_raw"}  # next to p_holm
    names = [renamed.get(name, name) for name in rows[0]]
    names += [*(name for name in costs[0] if name != "arm"), "notes"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    told = " | ".join(" ".join(note.split()) for note in notes)
    for row in rows:
        joined = " ".join(f"{seed}={value!r}" for seed, value in row["values"].items())
        cells = {**row, **by_arm[row["arm"]], "values": joined, "notes": told}
        told = ""
        guarded = {k: guard(v) if isinstance(v, str) else v for k, v in cells.items()}
        writer.writerow({renamed.get(name, name): cell for name, cell in guarded.items()})
    return text.getvalue()
