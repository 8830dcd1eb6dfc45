"""The panels of a study: its arms, findings, curves, costs and jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from plmctl.analysis.likeness import find_role, name_role
from plmctl.analysis.runs import AXES, AXIS, Run, RunLog, average_curves, read_curve
from plmctl.analysis.statistics import summarise
from plmctl.core.errors import first_problem
from plmctl.core.progress import clock
from plmctl.core.terminal import counted
from plmctl.report.charts import Level, draw_levels, draw_means
from plmctl.report.page import Block, Chart, Folded, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.studies import JobFolder, StudyFolder
from plmctl.report.study_tables import (
    LISTED,
    describe_cut,
    describe_verdict,
    explain_table,
    format_budget,
    format_equal,
    format_spread,
    make_cost_table,
    make_metric_table,
    name_level,
    name_metric,
)
from plmctl.report.text import clip, format_number, name_files

TOGETHER = 6  # arms in one picture: as many as have colours
STATES = ("done", "stopped early", "failed", "still going", "not finished")
NO_TABLE = (
    "There is no table yet: it is made at the end of a start. Below are the jobs so far. To go on:"
    " plmctl ablate with the words that started it; what is finished stays so."
)
OLD = "The table is that of an earlier start; the study was started again since."
PART = "The study is not complete: its table counts the jobs that were done when it was written."
MEANS = (
    "Pretraining on the held-out documents: the mean of the finished seeds, shaded from the lowest"
    " to the highest; in brackets the number of seeds. Arms that share a run share its curve."
)
DASHED = "Dashed: {baseline}."
SEEDS = "{}: mean ± sd; small dots: seeds"
UNFINISHED = ", unfinished"
LAST = "Measured once in a run: the mean, deviation and seeds at its end."
BEFORE = (
    "Jobs of the study as it was before it was edited: they are in no curve, table or cost above."
)
MORE = (
    "Next: {count} without a verdict. More seeds, or a larger budget, decide more: start it again"
    " with a longer seeds=[...]{until}; finished jobs stay."
)
HEAD = ["job", "state", "updates", "last validation loss", "seconds", "folder"]


@panel_of(StudyFolder, order=0, brief=True)
def facts(study: StudyFolder) -> list[Block]:
    """The facts of the study, and how far it is."""
    counts: Counter[str] = Counter(job.state for job in study.jobs)
    jobs = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    jobs = jobs or "none started"
    jobs += f"; {waiting}" if (waiting := _count_waiting(study)) else ""
    jobs += f"; {before} superseded" if (before := len(study.superseded)) else ""
    seeds = ", ".join(map(str, study.settings.get("seeds") or [])) or "not stated"
    budget = format_budget(study.settings.get("budget") or {})
    text = f"{study.folder}. Jobs: {jobs}. Seeds: {seeds}. Budget of every pretraining: {budget}."
    if hours := (study.settings.get("budget") or {}).get("hours"):
        text += f" Time budget of the study: {clock(3600 * hours)}."
    blocks: list[Block] = [Paragraph(text)]
    if study.table is None:
        blocks.append(Paragraph(NO_TABLE))
    elif study.table_is_old or counts["still going"] or counts["not finished"] or _is_part(study):
        blocks.append(Paragraph(OLD if study.table_is_old else PART))
    return blocks


def _is_part(study: StudyFolder) -> bool:
    """Whether jobs were open when the table was written."""
    missing = (study.table or {}).get("missing") or []
    return any(each["state"] == "open" for each in missing)


def _count_waiting(study: StudyFolder) -> str:
    planned = len(study.waiting) + len(study.jobs)
    return f"{len(study.waiting)} of {planned} have not begun" if study.waiting else ""


@panel_of(StudyFolder, order=1.5, title="Arms")
def arms(study: StudyFolder) -> list[Block]:
    """The settings in which the arms differ; with `only`, those of the arms that run."""
    rows, only = [], study.settings.get("only") or ()
    known = {*only, study.settings.get("baseline"), *(job.arm for job in study.jobs if only)}
    for name, settings in (study.settings.get("arms") or {}).items():
        if only and name not in known:
            continue
        own = settings if isinstance(settings, dict) else {"overrides": settings}
        parts = {"overrides": "", "finetune": "fine-tuning: ", "inject": "inject: "}
        words = [
            f"{before}{' '.join(map(str, own[part]))}"
            for part, before in parts.items()
            if own.get(part)
        ]
        other = [f"{key}={value}" for key, value in own.items() if key not in parts]
        baseline = " (baseline)" if name == study.settings.get("baseline") else ""
        rows.append([f"{name}{baseline}", " ".join([*other, *words])])
    return [TableBlock(["arm", "its settings"], rows)] if rows else []


@panel_of(StudyFolder, order=1, title="Findings", brief=True)
def findings(study: StudyFolder) -> list[Block]:
    """The verdicts, and a table and a picture for each metric."""
    table = study.table
    if not table or not table.get("rows"):
        return []
    rows: Sequence[Mapping[str, Any]] = table["rows"]
    waits = _is_part(study) or bool(study.waiting)
    blocks: list[Block] = [*count_verdicts(rows, waits=waits, looks="looks" in table)]
    names = name_files(row["metric"] for row in rows)
    notes: Sequence[str] = table.get("notes") or []
    for metric, name in names.items():
        own = [row for row in rows if row["metric"] == metric]
        about = (table.get("about") or {}).get(metric)  # tables of older versions say nothing of it
        shown = name_metric(own)
        blocks += [Heading(shown, 3), *([Paragraph(about)] if about else [])]
        blocks += _draw_metric(shown, name, own, table)
        alone = " ".join([explain_table(table, metric), *_choose_notes(metric, notes, study)])
        blocks.append(replace(make_metric_table(own), note=alone))
    return [*blocks, Paragraph(explain_table(table)), *map(Paragraph, notes)]


def _choose_notes(metric: str, notes: Sequence[str], study: StudyFolder) -> list[str]:
    """The notes on a metric, which begin with its name, its key, its task or evaluation."""
    node, evals = (study.settings.get(name) or {} for name in ("metrics", "eval"))
    node = node.get(metric) or {}
    task = (evals.get(node.get("of")) or {}).get("of")
    names = (f"{metric}:", f"{node.get('of')}:", f"{task}:", f"{node.get('key')} ")
    return [line for line in notes if line.removeprefix("† ").removeprefix("‡ ").startswith(names)]


def _draw_metric(
    metric: str, name: str, rows: Sequence[Mapping[str, Any]], table: Mapping[str, Any]
) -> list[Block]:
    """The arms with their seeds, and the differences with their intervals."""
    levels = [
        _level(row["arm"], row["mean"], row["sd"], list(row["values"].values()))
        for row in rows
        if row["mean"] is not None
    ]
    baseline = table["baseline"]
    base = next((level.value for level in levels if level.name == baseline), None)
    marks = {} if base is None else {baseline: base}
    marks |= (table.get("floors") or {}).get(rows[0]["metric"]) or {}
    differences = [_level_difference(row) for row in rows if row["difference"] is not None]
    blocks: list[Block] = []
    if levels:
        svg = draw_levels(levels, title=f"{metric} by arm", x=SEEDS.format(metric), marks=marks)
        blocks.append(Chart(f"levels-{name}", svg))
    if differences:
        title, x = f"{metric}: arm minus {baseline}", f"difference, {name_level(table)} interval"
        svg = draw_levels(differences, title=title, x=x, marks={"no difference": 0.0})
        blocks.append(Chart(f"differences-{name}", svg))
    return blocks


def _level(arm: str, mean: float, deviation: float | None, values: Sequence[float]) -> Level:
    """The mean of an arm, the mean less and plus the deviation, and its seeds."""
    ends = [mean - deviation, mean + deviation] if deviation else []
    return Level(arm, mean, ends, values, text=format_spread(mean, deviation))


def _level_difference(row: Mapping[str, Any]) -> Level:
    """The difference of an arm with its interval."""
    if row["low"] is None:
        return Level(row["arm"], row["difference"])
    ends = [row["low"], row["high"]]
    text, low, high = format_equal([row["difference"], *ends])
    return Level(row["arm"], row["difference"], ends, text=f"{text} ({low} to {high})")


def count_verdicts(
    rows: Sequence[Mapping[str, Any]], *, waits: bool = False, looks: bool = False
) -> list[Block]:
    """A table of the expected directions, by verdict, and what decides more.

    Args:
        rows: The rows of table.json.
        waits: Jobs are open, which may decide more.
        looks: Seeds are spent in rounds, as until=decided does.
    """
    expected = [row for row in rows if row["expected"]]
    late = "stated after the first results"  # no direction that was planned
    counts = Counter(
        late if row.get("late_mark") else row["verdict"] or describe_verdict(row)
        for row in expected
    )
    if not counts:
        return []
    words = {"undecided": "undecided at this scale", "no spread": "without a spread"}
    names = dict.fromkeys(["held", "not held", "undecided", *counts])
    lines = [[words.get(name, name), str(counts[name])] for name in names]
    open_ = counts["undecided"]
    text = MORE.format(
        count=counted(open_, "comparison"), until="" if looks else " and until=decided"
    )
    more = [Paragraph(text)] if open_ and not waits else []
    return [TableBlock(["expected direction", "comparisons"], lines), *more]


@panel_of(StudyFolder, order=2, title="Curves by arm")
def curves(study: StudyFolder) -> list[Block]:
    """A chart for each validation loss and metric, averaged over the finished seeds. The
    arms that have no curve are levels; those without a finished seed have the curves so far.
    """
    by_arm = _list_logs(study)
    lines, levels = list[Block](), list[Block]()
    divided = dict(_divide(by_arm, _list_metrics([*by_arm.values()], study)))
    files = name_files(divided)
    for name, logs in divided.items():
        groups, ends = dict[str, list[Run]](), list[Level]()
        axis = _find_axis(study, logs)
        for arm, own in logs.items():
            series = name.partition(" ")[0]
            runs: list[Run] = [read_curve(log, series, axis, 1.0) for log in own]
            done = study.is_finished(arm)
            if len(average_curves(runs)) > 1:
                groups[_label(arm, len(runs), done=done)] = runs
            elif done:
                values = [run[-1][2] for run in runs]
                ends.append(_level(arm, *summarise(values), values))
        lines += _draw_arms(groups, name, f"curves-{files[name]}", study, axis) if groups else []
        if ends:
            svg = draw_levels(ends, title=f"{name} by arm", x=SEEDS.format(name))
            levels.append(Chart(f"ends-{files[name]}", svg))
    return [
        *([Paragraph(MEANS), *lines] if lines else []),
        *([Paragraph(LAST), *levels] if levels else []),
    ]


def _list_logs(study: StudyFolder) -> dict[str, list[RunLog]]:
    """The logs of the pretrainings of each arm that are finished, or of all where none is."""
    by_arm: dict[str, list[RunLog]] = {}
    for job in study.jobs:
        wanted = job.state == "done" or not (job.arm and study.is_finished(job.arm))
        if job.verb == "pretrain" and job.arm and job.log.series and wanted:
            by_arm.setdefault(job.arm, []).append(job.log)
    return by_arm


def _label(arm: str, runs: int, *, done: bool) -> str:
    count = f" ({runs})" if runs > 1 else ""
    return f"{arm}{count}{'' if done else UNFINISHED}"


def _divide(
    by_arm: Mapping[str, Sequence[RunLog]], metrics: Sequence[str]
) -> Iterator[tuple[str, dict[str, list[RunLog]]]]:
    """Each metric with the arms that have it; losses of unlike kinds are apart."""
    for metric in metrics:
        having = {
            arm: [log for log in logs if metric in log.series] for arm, logs in by_arm.items()
        }
        having = {arm: logs for arm, logs in having.items() if logs}
        roles = [find_role(logs[0].config, metric) for logs in having.values()]
        named: dict[str, dict[str, list[RunLog]]] = {}
        for arm, logs in having.items():
            named.setdefault(name_role(logs[0].config, metric, roles), {})[arm] = logs
        yield from named.items()


def _find_axis(study: StudyFolder, arms: Mapping[str, Sequence[RunLog]]) -> str:
    """The horizontal axis that the study states or its budget has; updates where logs lack it."""
    budget = study.settings.get("budget") or {}
    kind = next((name for name, value in budget.items() if value and name in AXIS), "steps")
    axis = str(study.settings.get("curves") or AXIS[kind])
    axis = "tokens" if axis == "flops" else axis
    counter = "seconds" if axis == "time" else axis
    logged = all(counter in log.series for logs in arms.values() for log in logs)
    return axis if logged else "steps"


def _draw_arms(
    groups: Mapping[str, Sequence[Run]], metric: str, name: str, study: StudyFolder, axis: str
) -> list[Block]:
    """One picture of all arms, or many arms one by one with the baseline, on equal axes."""
    x = "update" if axis == "steps" else AXES[axis]
    if len(groups) <= TOGETHER:
        return [Chart(name, draw_means(groups, title=metric, x=x, y=metric))]
    means = {arm: average_curves(runs) for arm, runs in groups.items()}
    base = next(
        (arm for arm in means if arm.partition(" (")[0] == study.settings.get("baseline")), ""
    )
    charts: list[Block] = [Paragraph(DASHED.format(baseline=base))] if base else []
    files = name_files(groups)
    for arm, runs in groups.items():
        guides = {"": means[base]} if base not in ("", arm) else {}
        all_ = [*means.values()]
        svg = draw_means({arm: runs}, title=arm, x=x, y=metric, guides=guides, among=all_)
        charts.append(Chart(f"{name}-{files[arm]}", svg))
    return charts


def _list_metrics(arms: Sequence[Sequence[RunLog]], study: StudyFolder) -> list[str]:
    """The losses of all arms, the metrics of the study, and further measures of validation."""
    names = dict.fromkeys(name for logs in arms for log in logs for name in log.series)
    of_terms = {f"valid/acc/{name[11:]}" for name in names if name.startswith("valid/loss/")}
    measures = [n for n in names if n.startswith("valid/acc/") and n not in of_terms]
    metrics = (study.settings.get("metrics") or {}).values()
    stated = [f"valid/{each.get('key')}" for each in metrics if each.get("of") == "pretrain"]
    own = [name for name in stated if name in names]
    return [*dict.fromkeys([*_list_losses(arms), *own, *measures])]


def _list_losses(arms: Sequence[Sequence[RunLog]]) -> list[str]:
    """The validation losses: the terms, those of most arms first, and the total if an arm has no
    terms.
    """
    names = [dict.fromkeys(name for log in logs for name in log.series) for logs in arms]
    terms = [[name for name in own if name.startswith("valid/loss/")] for own in names]
    counts = Counter(name for own in terms for name in own)
    whole = any("valid/loss" in own and not of for own, of in zip(names, terms, strict=True))
    return [*(name for name, _ in counts.most_common()), *(["valid/loss"] if whole else [])]


@panel_of(StudyFolder, order=3, title="Cost of an arm")
def costs(study: StudyFolder) -> list[Block]:
    """A row for each arm."""
    table = study.table
    if not table or not table.get("costs"):
        return []
    seconds = [row["seconds"] for row in table["costs"] if row["seconds"] is not None]
    text = "Means over seeds."
    if "looks" not in table:  # all arms have as many seeds
        total = len(table["seeds"]) * sum(seconds) / 3600
        text = f"Means over seeds; about {total:.2f} hours of training in all."
    if table.get("seconds"):
        text += f" The study has taken {clock(table['seconds'])} of wall-clock time."
    return [Paragraph(text), make_cost_table(table["costs"])]


@panel_of(StudyFolder, order=5, title="Jobs")
def jobs(study: StudyFolder) -> list[Block]:
    """Tables of failed, open and all jobs."""
    if not (study.jobs or study.superseded or study.waiting):
        return []
    blocks: list[Block] = []
    if study.waiting:
        listed = TableBlock(["job that has not begun"], [[label] for label in study.waiting])
        blocks.append(Folded(f"Jobs: {_count_waiting(study)}", [listed]))
    if not_done := [job for job in study.jobs if job.state != "done"]:
        rows = [
            [job.label, job.state, clip(job.why), f"jobs/{job.folder.name}/log.txt"]
            for job in not_done
        ]
        blocks.append(TableBlock(["not done", "state", "why", "log"], rows))
    missing = (study.table or {}).get("missing") or []
    waiting = [
        [each["label"], first_problem(each["why"]), each["cells"]]
        for each in missing
        if each["state"] == "open"
    ]
    if waiting:
        again = (study.table or {}).get("again")
        text = describe_cut(waiting, "not started when the table was made", again)
        blocks += [Paragraph(text), TableBlock(["job", "why", "cells"], waiting[:LISTED])]
    table = TableBlock(HEAD, [_row(job) for job in study.jobs])
    blocks.append(Paragraph("A job's own page: plmctl report <study>/jobs/<job>/run"))
    blocks.append(Folded(f"All {len(study.jobs)} jobs", [table]))
    if study.superseded:
        former = TableBlock(["superseded job", *HEAD[1:]], [_row(job) for job in study.superseded])
        blocks.append(Folded(f"{len(study.superseded)} superseded", [Paragraph(BEFORE), former]))
    return blocks


def _row(job: JobFolder) -> list[str]:
    log = job.log
    updates = format_number(log.step) if log.series else ""
    numbers = [updates, *(format_number(log.last(name)) for name in ("valid/loss", "seconds"))]
    return [job.label, job.state, *numbers, f"jobs/{job.folder.name}"]
