"""Loss, accuracy and scores in training and validation, and the last value of every metric."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from plmctl.analysis.likeness import find_role, list_unlike, name_role
from plmctl.analysis.runs import Curve, Run, RunLog, average_curves
from plmctl.report.charts import Band, draw_means
from plmctl.report.page import Block, Chart, Folded, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import format_number

T = TypeVar("T")

REPEATED = (
    "Runs that differ in their seeds alone:"
    " their mean, shaded from the lowest to the highest; in brackets how many."
)
EXPLAINED = (
    "plmctl help NAME explains each, such as plmctl help bits_per_byte. Bits per byte compare"
    " causal models with different tokenizers. For a masked model, which sees both sides, they are"
    " no rate of compression: words are harder than characters. They do not compare with those of"
    " a causal model."
)
ENDS = "The shade of an accuracy is its 95% interval."
ONE_ANSWER = "one constant answer"
CONSTANT = {"loss": "constant", "acc": "constant_acc", "score": ""}  # in the log, by kind of curve
COUNTED = {"unigram": "frequencies of tokens", "bigram": "frequencies of pairs"}
ALMOST = 0.002  # means over the same updates, by batches or by rows
FEW = 4  # runs of which every term has a curve; of more, the whole loss


@panel_of(Subject, order=20, title="Curves")
def panel(subject: Subject) -> list[Block]:
    """A chart for each kind of number, and a table of the last values."""
    runs = [run for run in subject.runs if run.log.series]
    if not runs:
        return []
    groups: dict[str, list[ReportedRun]] = {}
    for run in runs:
        groups.setdefault(run.name if run.group is None else run.group, []).append(run)
    blocks: list[Block] = []
    if any(len(group) > 1 for group in groups.values()):
        blocks.append(Paragraph(REPEATED))
    ends = _find_ends(runs[0].log) if len(runs) == 1 else {}
    blocks += [Paragraph(ENDS)] if ends else []
    for kind, title in (("loss", "Loss, nats"), ("acc", "Accuracy"), ("score", "Scores on dev")):
        for name, drawn in _list_pictures(groups, runs, kind, title).items():
            if not any(len(curve) > 1 for same in drawn.values() for curve in same):
                continue  # a point is no curve, and its value is in the tables
            own = [run for run in runs if name == title or name in _list_names(run, runs)]
            marks = _of_target(_counted(own), name, title) if kind == "loss" else {}
            guides = _of_target(_list_guides(own, kind), name, title)
            known: dict[str, Any] = {"marks": marks, "guides": guides, "bands": ends}
            picture = draw_means(drawn, title=name, x="update", y=kind, **known)
            stem = kind if name == title else f"{kind}-{re.sub(r'[^A-Za-z0-9]+', '-', name)}"
            blocks.append(Chart(stem, picture))
    skips = [
        f"{run.name}: {skipped:,.0f} updates were thrown away, their gradient was not finite."
        for run in runs
        if (skipped := run.log.last("skipped") or 0)
    ]
    metrics = sorted({name for run in runs for name in run.log.series})
    finals = [
        [
            shown,
            *(
                format_number(run.log.last(metric) if _name(run, metric, runs) == shown else None)
                for run in subject.runs
            ),
        ]
        for metric in metrics
        for shown in dict.fromkeys(
            _name(run, metric, runs) for run in runs if metric in run.log.series
        )
    ]
    last = TableBlock(["metric", *(run.name for run in subject.runs)], finals)
    return [
        *blocks,
        *([Paragraph(" ".join(skips))] if skips else []),
        *(Paragraph(f"{line}.") for line in _list_unlike(runs)),
        Folded("Last values", [Paragraph(EXPLAINED), last]),
    ]


def _list_pictures(
    groups: Mapping[str, Sequence[ReportedRun]], runs: Sequence[ReportedRun], kind: str, title: str
) -> dict[str, dict[str, list[Run]]]:
    """{title of a picture: {name of a curve: its runs}}. All metrics of one run share a picture.
    Several runs have a picture for each metric, in which a run keeps its colour.
    """
    alone = len(groups) == len(runs) == 1
    pictures: dict[str, dict[str, list[Run]]] = {}
    for shown, repeated in groups.items():
        every = [_curves(run, kind, few=len(groups) <= FEW) for run in repeated]
        for name in dict.fromkeys(name for curves in every for name in curves):
            same: list[Run] = [
                [(x, x, y) for x, y in curves[name]] for curves in every if name in curves
            ]
            metric = _name(repeated[0], name, runs)
            label = f"{shown} ({len(repeated)})" if len(repeated) > 1 else shown
            picture = pictures.setdefault(title if alone else metric, {})
            if not alone:
                for other, more in groups.items():
                    picture.setdefault(f"{other} ({len(more)})" if len(more) > 1 else other, [])
            picture[metric if alone else label] = same
    return pictures


def _find_ends(log: RunLog) -> dict[str, Band]:
    """{name of an accuracy: the ends of its intervals}."""
    found: dict[str, Band] = {}
    for name in log.curves("acc"):
        low, high = (
            log.series.get(name.replace("acc/", f"{end}/", 1), ()) for end in ("low", "high")
        )
        if low and high:
            found[name] = [(x, y, z) for (x, y), (_, z) in zip(low, high, strict=True)]
    return found


def _name(run: ReportedRun, metric: str, runs: Sequence[ReportedRun]) -> str:
    """The metric, as the losses of unlike models are told apart."""
    roles = [find_role(each.log.config, metric) for each in runs if metric in each.log.series]
    return name_role(run.log.config, metric, roles)


def _list_names(run: ReportedRun, runs: Sequence[ReportedRun]) -> set[str]:
    """The metrics of a run, as losses of unlike models are told apart."""
    return {_name(run, metric, runs) for metric in run.log.series}


def _list_unlike(runs: Sequence[ReportedRun]) -> list[str]:
    """Lines on losses of the pretrained runs that do not compare."""
    pretrained = {run.name: run.log.config for run in runs if not run.task}
    having: dict[str, list[str]] = {}
    for run in runs:
        for name in run.log.series:
            if name.startswith("valid/"):
                having.setdefault(name, []).append(run.name)
    shared = {name: names for name, names in having.items() if len(names) > 1}
    return list_unlike(pretrained, shared)


def _counted(runs: Sequence[ReportedRun]) -> dict[str, float]:
    """The losses of models that only count, where all runs have the same ones."""
    levels: dict[str, set[float]] = {}
    for log in (run.log for run in runs):
        for metric in log.series:
            kind, _, target = metric.removeprefix("valid/").partition("/")
            if kind in COUNTED:
                levels.setdefault(f"{COUNTED[kind]} ({target})", set()).add(
                    log.series[metric][-1][1]
                )
    return {name: values.pop() for name, values in levels.items() if len(values) == 1}


def find_floors(runs: Sequence[ReportedRun], target: str) -> dict[str, float]:
    """The losses of models that only count, of one target, or of one constant answer."""
    end = f" ({target})"
    found = {n.removesuffix(end): loss for n, loss in _counted(runs).items() if n.endswith(end)}
    if curve := _list_guides(runs, "loss").get(f"{ONE_ANSWER}{end}"):
        found[ONE_ANSWER] = curve[-1][1]
    return found


def _of_target(known: Mapping[str, T], name: str, title: str) -> dict[str, T]:
    """Those of the loss of a picture: another target has other losses."""
    target = name.rpartition("/")[2].partition(" ")[0]
    own = (each for each in known if name == title or each.endswith(f"({target})"))
    return {each: known[each] for each in own}


def _list_guides(runs: Sequence[ReportedRun], group: str) -> dict[str, Curve]:
    """The losses that other recipes had by then, where all runs have the same ones; what one
    constant answer has, the mean of all runs.
    """
    curves: dict[tuple[str, str], set[Curve]] = {}
    for metric, curve in (pair for run in runs for pair in run.log.series.items()):
        kind, _, target = metric.removeprefix("valid/").partition("/")
        curves.setdefault((kind, target), set()).add(tuple(curve))
    found: dict[str, Curve] = {}
    for (kind, target), known in curves.items():
        if kind == CONSTANT[group]:
            found[f"{ONE_ANSWER} ({target})"] = average_curves(
                [[(x, x, y) for x, y in curve] for curve in known]
            )
        elif kind == "reached" and group == "loss" and len(known) == 1:
            found[f"reached elsewhere ({target})"] = known.pop()
    return found


def _curves(run: ReportedRun, group: str, *, few: bool) -> dict[str, Curve]:
    series = run.log.series
    if group == "score":
        metrics = (run.log.config.get("task") or {}).get("metrics") or ()
        names = [f"valid/{name}" for name in metrics][: None if few else 1]
        return {name: series[name] for name in names if name in series}
    sums = {name: series[name] for name in (group, f"valid/{group}") if name in series}
    terms = run.log.curves(group)
    # a task's loss has no terms
    alone = not any(name.startswith(f"valid/{group}/") for name in terms)
    # the only term of a task is the sum, and says nothing new
    if alone and any(
        name != group and _is_same(terms[name], sums.get(group, ())) for name in terms
    ):
        terms = {}
    return {**terms, **(sums if alone else {})} if few else sums or terms


def _is_same(one: Curve, other: Curve) -> bool:
    """Whether two curves have the same points, but for the last digits."""
    pairs = [*zip(one, other, strict=False)]
    close = (x == u and math.isclose(y, v, rel_tol=ALMOST) for (x, y), (u, v) in pairs)
    return len(one) == len(other) == len(pairs) and all(close)
