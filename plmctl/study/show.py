"""The output of `plmctl ablate` on the terminal: the plan and its cost, or the table."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from plmctl.analysis.statistics import ALPHA
from plmctl.core.errors import first_with_fix
from plmctl.core.progress import clock
from plmctl.core.terminal import counted, print_parts, screen, tell
from plmctl.jobs.job import without_seed
from plmctl.jobs.journal import State
from plmctl.report.study_tables import (
    LISTED,
    describe_verdict,
    format_detectable,
    format_number,
    format_p,
    format_pair,
    list_equal,
    list_marks,
    name_metric,
)
from plmctl.study.costs import ESTIMATED, MEASURED, SCALED, estimate_costs, spell_tuning_lengths
from plmctl.study.looks import Looks
from plmctl.study.masks import list_noises
from plmctl.study.plan import StudyPlan
from plmctl.study.prospects import list_found, list_prospects
from plmctl.study.results import NOT_RUN, Results
from plmctl.study.study import PRETRAIN

NOT_OF_THE_BUDGET = (
    "budget= is that of pretraining; finetune.overrides=[train.epochs=...] sets this"
)
JOBS = "jobs"  # in the folder of a study: the folders of its jobs


def show_plan(
    plan: StudyPlan, states: Mapping[str, State], folder: Path, looks: Looks | None
) -> None:
    """Print the jobs, their cost, and in which rounds they run."""
    console, seeds = screen(), len(plan.study.seeds)
    results = Results(plan, states, lambda name: folder / JOBS / name)
    arms = estimate_costs(plan, results)
    console.print(
        f"{len(plan.cells)} combinations: {len(plan.arms)} arms x {seeds} seeds, in {folder}"
    )
    table = Table("jobs", "all", "done already")
    done = Counter(plan.jobs[name].verb for name, state in states.items() if state.kind == "done")
    for verb, count in Counter(job.verb for job in plan.jobs.values()).items():
        table.add_row(verb, str(count), str(done[verb]))
    console.print(table)
    if plan.study.corpus:
        console.print(f"the published experiment reads: {plan.study.corpus}")
    console.print(_make_cost_table(arms, seeds))
    for line in _explain_times(arms):
        console.print(line)
    for line in _count_finetunings(plan, arms):
        console.print(line)
    if looks:
        _show_rounds(looks)
    if hours := plan.study.hours:
        console.print(f"budget.hours={hours:g}: no seed begins that would not fit into this time")
    for task, length in spell_tuning_lengths(plan).items():
        console.print(f"fine-tuning on {task}: {length} ({NOT_OF_THE_BUDGET})")
    for line in list_noises(plan):
        console.print(line)
    for line in plan.study.left_out:
        console.print(f"left out until it is given: {line}")
    for line in (*list_prospects(plan), *list_found(plan, results)):
        console.print(line)


def _explain_times(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the times are known, and what they leave out."""
    timed = [arm for arm in arms if arm["seconds"]]
    if not timed:
        return []
    sources = {arm["from"][PRETRAIN] for arm in timed}
    speeds = dict.fromkeys(arm["speed"] for arm in timed if arm["from"][PRETRAIN] == ESTIMATED)
    lines = [f"time {MEASURED}: the mean of the runs that are done"] * (MEASURED in sources)
    lines += [f"time {SCALED}: their seconds of a FLOP"] * (SCALED in sources)
    if speeds:
        lines.append(
            f"time {ESTIMATED}: at {' or '.join(speeds)}, a rough guess for small models; another"
            " dry run after the first job has its seconds"
        )
    return [*lines, "not counted: the start of each job, tokenizing, validation and evaluation"]


def _make_cost_table(arms: Sequence[Mapping[str, Any]], seeds: int) -> Table:
    """The cost of the pretrainings of all arms."""
    head = ("arm", "parameters", "tokens", "training FLOPs", "time", "time is")
    bound = "at most"
    if ratios := dict.fromkeys(arm["per_word"] for arm in arms if arm["per_word"]):
        bound = f"about ({' or '.join(ratios)}; runs that are done: their own)"
    table = Table(*head, title=f"Pretraining of one seed, {bound}")

    def spell(rows: Sequence[Mapping[str, Any]], times: int = 1) -> list[str]:
        flops = [row["flops"] for row in rows if row["flops"] is not None]
        seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
        return [
            format_number(sum(flops) * times) if flops else "",
            clock(sum(seconds) * times) if seconds else "",
        ]

    for arm in arms:
        parameters, other = f"{arm['parameters']:,}", arm["same_as"]
        known = [arm["from"][PRETRAIN] if arm["seconds"] else ""]
        cells = ["", f"as {other}", ""] if other else [*spell([arm]), *known]
        table.add_row(arm["arm"], parameters, format_number(arm["tokens"]), *cells)
    if any(arm["flops"] is not None for arm in arms):
        table.add_section()
        own = [arm for arm in arms if not arm["same_as"]]
        table.add_row("total", "", "", *spell(own), "")
        table.add_row(f"of all {counted(seeds, 'seed')}", "", "", *spell(own, seeds), "")
    return table


def _count_finetunings(plan: StudyPlan, costs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why there are so many fine-tunings, and how long they take."""
    study, lines = plan.study, []
    for task in study.tasks:
        arms = sum(task in composed.tuned for composed in plan.arms.values())
        restarts = len(study.restarts.pairs(0))
        product = {
            "arm": arms,
            "seed": len(study.seeds),
            "setting": len(study.points),
            "restart": restarts,
        }
        words = " x ".join(counted(number, noun) for noun, number in product.items())
        whole = counted(math.prod(product.values()), "fine-tuning")
        seconds = [time for cost in costs if (time := cost["tuning"].get(task))]
        whole_time = clock(sum(seconds) * len(study.seeds) * restarts)
        sources = {cost["from"].get(task) for cost in costs} - {None}
        bound = "at most" if sources == {ESTIMATED} else "about"
        how = f" ({', '.join(sorted(sources))})"
        taken = f", {bound} {whole_time} of updates{how}" if seconds else ""
        lines.append(f"{task}: {words} = {whole} (equal ones run once){taken}")
    return lines


def describe_plan(
    plan: StudyPlan, states: Mapping[str, State], folder: Path, looks: Looks | None
) -> dict[str, Any]:
    """The same for programs."""
    jobs = [
        {"job": name, "label": job.label, "state": states[name].kind}
        for name, job in plan.jobs.items()
    ]
    results = Results(plan, states, lambda name: folder / JOBS / name)
    costs = estimate_costs(plan, results)
    left_out = plan.study.left_out
    record = {"cells": len(plan.cells), "jobs": jobs, "arms": costs, "left_out": left_out}
    record |= {
        "prospects": [*list_prospects(plan), *list_found(plan, results)],
        "noise": list_noises(plan),
    }
    schedule = (
        [{"seeds": seeds, "share": share} for seeds, share in looks.schedule()] if looks else []
    )
    return record | ({"looks": schedule} if looks else {})


def _show_rounds(looks: Looks) -> None:
    """Print the rounds of a study, and what part of the level each may spend."""
    study, before = looks.study, 0
    table = Table("look after", "new seeds", "share of the level", "", title="Rounds")
    for seeds, share in looks.schedule():
        own = ", ".join(map(str, study.seeds[before:seeds]))
        made = "made" if seeds <= looks.seeds else ""
        table.add_row(f"{seeds} seeds", own, f"{share:.1%} of {ALPHA:g}", made)
        before = seeds
    console = screen()
    console.print(table)
    console.print("an arm whose expectations are all decided gets no more seeds")


def show_table(record: Mapping[str, Any]) -> None:
    """Print what table.json holds: for each metric a row for each arm, and what is missing."""
    for metric in dict.fromkeys(row["metric"] for row in record["rows"]):
        _show_metric([row for row in record["rows"] if row["metric"] == metric])
    for line in list_equal(record):
        tell(line)
    if record["seconds"]:
        tell(f"time taken: {clock(record['seconds'])}")
    told = defaultdict[str, set[str]](set)  # jobs that differ in their seed -> fixes
    waiting = [job["label"] for job in record["missing"] if job["why"] == NOT_RUN]
    if len(waiting) > 1:
        count = f"{len(waiting)} of {counted(record['jobs'], 'job')}"
        tell(f"open: {count}, first {waiting[0]}: {NOT_RUN}")
    ended = [job for job in record["missing"] if len(waiting) < 2 or job["why"] != NOT_RUN]
    for job in ended[:LISTED]:
        why = first_with_fix(job["why"], told=told[without_seed(job["label"])])
        tell(f"{job['state']}: {job['label']}: {why}")
    if more := ended[LISTED:]:
        tell(f"and {counted(len(more), 'job')} more, in table.json")


def _show_metric(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the arms of a metric, whose name is the head of their column."""
    columns = {name_metric(rows): [str(row["arm"]) for row in rows]}
    columns["n"] = [str(row["n"]) for row in rows]
    pairs = [format_pair(row["mean"], row["sd"]) if row["n"] else ("", "") for row in rows]
    columns |= {"mean": [mean for mean, _ in pairs], "sd": [own for _, own in pairs]}
    columns["diff"] = [format_number(row["difference"]) for row in rows]
    columns["p (Holm)"] = [format_p(row) for row in rows]
    columns["detects"] = [format_detectable(row) for row in rows]
    columns["expected"] = [row["expected"] for row in rows]
    columns["verdict"] = [
        f"{row['verdict'] or describe_verdict(row)} {list_marks(row)}".strip() for row in rows
    ]
    columns["published"] = [
        f"{format_number(row['published'])} {row['unit']}".strip() for row in rows
    ]
    shown = {head: column for head, column in columns.items() if any(column)}
    print_parts(list(shown), list(zip(*shown.values(), strict=True)))
