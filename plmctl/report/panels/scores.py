"""The scores of fine-tuned runs, every metric of every split."""

from __future__ import annotations

from collections.abc import Sequence

from plmctl.core.terminal import counted
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import describe_method, format_number, spell_within
from plmctl.tasks.scores.base import MEANINGS, join_meanings
from plmctl.tasks.scores.below import READ, describe_read


@panel_of(Subject, order=12, title="Scores")
def panel(subject: Subject) -> list[Block]:
    """A row for each metric, a column for each run."""
    runs = [run for run in subject.runs if run.result]
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    spelled: dict[tuple[str, str], str] = {}  # metrics with their units
    for run in runs:
        for split, scores in (run.result or {})["metrics"].items():
            for metric, value in scores.items():
                values.setdefault((run.task, split, metric), {})[run.name] = value
                spelled[run.task, metric] = run.spell(metric)
    if not values:
        return []
    simple: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for run in runs:
        for split, models in run.baselines.items():
            for name, scores in models.items():
                for metric, value in scores.items():
                    simple.setdefault((run.task, split, name, metric), {})[run.name] = value
    rows = [
        [
            *names[:2],
            spelled[names[0], names[2]],
            *(format_number(of.get(run.name)) + _find_interval(run, *names[1:]) for run in runs),
        ]
        for names, of in values.items()
    ]
    intervals = any((run.result or {}).get("intervals") for run in runs)
    how = describe_method(*(bool((run.result or {}).get("bundles")) for run in runs))
    names = [run.name for run in runs]
    without: list[Block] = [
        Paragraph(f"Models without pretraining{_spell_read(runs)}:"),
        TableBlock(
            ["task", "split", "model", "metric", *names],
            [
                [*of, *(format_number(own.get(name)) for name in names)]
                for of, own in simple.items()
            ],
        ),
    ]
    return [
        *(Paragraph(f"{line}.") for line in subject.list_unlike()),
        *([Paragraph(f"In brackets: {how}{_count_examples(runs)}")] if intervals else []),
        *(
            Paragraph(f"Scores of {run.name} are {which}.")
            for run in runs
            if run.decided and (which := run.decided.describe("its calibrated answers"))
        ),
        TableBlock(["task", "split", "metric", *names], rows),
        *(Paragraph(f"{task}: {said}.") for task, said in _explain_metrics(runs).items()),
        *(without if simple else []),
    ]


def _spell_read(runs: Sequence[ReportedRun]) -> str:
    """How many training examples they and each fine-tuning have read, as far as that is known."""
    return "".join(
        f"; {run.name}{read}"
        for run in runs
        if (read := describe_read((run.result or {}).get(READ)))
    )


def _explain_metrics(runs: Sequence[ReportedRun]) -> dict[str, str]:
    """{task: the kinds of its metrics}; runs of earlier versions do not say them."""
    told = {run.task: join_meanings((run.result or {}).get(MEANINGS) or {}) for run in runs}
    return {task: said for task, said in told.items() if said}


def _find_interval(run: ReportedRun, split: str, metric: str) -> str:
    intervals = (run.result or {}).get("intervals") or {}
    pair = (intervals.get(split) or {}).get(metric)
    return f" ({format_number(pair[0])} to {format_number(pair[1])})" if pair else ""


def _count_examples(runs: Sequence[ReportedRun]) -> str:
    """A sentence on the examples behind the intervals of each run; "" of runs without counts."""
    known = {run.name: (run.result or {}).get("examples") or {} for run in runs}
    said = {
        run.name: ", ".join(
            f"{counted(n, 'example')}{spell_within(run.result, split)} in {split}"
            for split, n in known[run.name].items()
        )
        for run in runs
        if known[run.name]
    }
    if len({*said.values()}) == 1 and len(said) == len(known):
        return f" Of {next(iter(said.values()))}."
    return "".join(f" {name}: of {line}." for name, line in said.items())
