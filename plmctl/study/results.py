"""The numbers of finished jobs: what each cell has of each metric, and what it cost."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from plmctl.analysis.likeness import MODEL, find_role
from plmctl.analysis.runs import BASELINES, RESULT, Run, RunLog, read_curve
from plmctl.core.errors import DataError, nearest
from plmctl.core.terminal import counted
from plmctl.data.held_out import KINDS_OF_FLOORS, HeldText, is_near_floor, read_held_out
from plmctl.data.shards import Shards, is_tokens
from plmctl.jobs.job import RUN
from plmctl.jobs.journal import State
from plmctl.runs.word_ratio import WordRatio, count_ratio
from plmctl.storage.job_events import JobEvents
from plmctl.storage.lines import read_lines
from plmctl.storage.reading import parse_json, read_json
from plmctl.study.plan import StudyCell, StudyPlan
from plmctl.study.study import PRETRAIN, Metric
from plmctl.study.unlike import explain_unlike
from plmctl.tasks.scores.below import READ, describe_one_answer, describe_read, list_unbeaten
from plmctl.use.predict import AVERAGE

CHANCE = "chance"  # in result.json, or a score next to others
FREQUENCIES = ("unigram", "bigram", "constant")  # losses of validation without a model
BEGUN, NOT_RUN = "begun, not finished", "not run yet"
# how a job ended -> an arm without a value
ABSENT = {"failed": "failed", "skipped": "failed", "stopped": "stopped early"}
NUMBER = re.compile(r"\d[\d.,]*")


class Results:
    """The results of the jobs of a plan in their folders; a job that is not done has none."""

    def __init__(
        self, plan: StudyPlan, states: Mapping[str, State], locate: Callable[[str], Path]
    ) -> None:
        self.plan, self.states, self.locate = plan, states, locate
        self._log = cache(lambda name: RunLog.read(locate(name) / RUN, most=None))
        self._scores = cache(
            lambda name: parse_json((locate(name) / RUN / RESULT).read_text(encoding="utf-8"))
        )
        self._is_constant = cache(lambda file: bool(describe_one_answer(read_lines(file)[0])))
        self.problems: list[str] = []  # metrics that an evaluation did not give

    def values(self, metric: Metric, arm: str) -> dict[int, float]:
        """{seed: value} of the cells of an arm that have one."""
        if why := explain_unlike(self.plan.study, self.plan.arms, metric, arm):
            self.problems.append(why)
            return {}
        values = {cell.seed: self._value(metric, cell) for cell in self.cells(arm)}
        return {seed: metric.unit(value) for seed, value in values.items() if value is not None}

    def explain_absence(self, metric: Metric, arm: str) -> str:
        """Why an arm has no value of a metric, in a few words for a table."""
        cells = self.cells(arm)
        if explain_unlike(self.plan.study, self.plan.arms, metric, arm):
            own = [name for cell in cells for name in self._find_jobs(metric.of, cell)]
            if any(self._done([name]) for name in own):
                return "ran, left out: another loss"
        kinds = {self.states[name].kind for cell in cells for name in cell.jobs}
        if kinds == {"done"}:
            return "ran, has no such score"
        return next((ABSENT[kind] for kind in ABSENT if kind in kinds), "not run")

    def list_done(self, of: str, cell: StudyCell) -> list[str]:
        """The jobs that give the metrics of a task or an evaluation, as far as they are done."""
        return [name for name in self._find_jobs(of, cell) if self._done([name])]

    def is_constant(self, name: str) -> bool:
        """Whether a fine-tuning gives one answer to all examples of a split with several."""
        files = sorted((self.locate(name) / RUN / "predictions").glob("*.jsonl"))
        return any(map(self._is_constant, files))

    def is_unbeaten(self, name: str, task: str, cell: StudyCell) -> bool:
        """Whether a fine-tuning scores no better than models without pretraining."""
        file = self.locate(name) / RUN / BASELINES
        scores = self._scores(name).get("metrics") or {}
        first = self._name_first(name, self.plan.arms[cell.arm].tuned[task][0])
        return file.is_file() and bool(
            list_unbeaten(scores, read_json(file), first, lower=self._list_lower(name))
        )

    def describe_read(self, name: str) -> str:
        """How many training examples a fine-tuning and the simple models have read."""
        return describe_read(self._scores(name).get(READ))

    def read_ends(self, name: str) -> dict[str, float]:
        """{number: its last value} of the validation of a pretraining."""
        series = self._log(name).series.items()
        return {k.removeprefix("valid/"): c[-1][1] for k, c in series if k.startswith("valid/")}

    def is_near_floor(self, name: str, term: str = "") -> bool:
        """Whether a pretraining ended at the frequencies of single tokens, or at the loss of one
        constant answer.

        Args:
            name: The job of the pretraining.
            term: The term of its objective; any other name: all of its model with such a floor.
        """
        held = read_held_out(self.locate(name) / RUN)
        if held and not held.validates:
            return False
        log, ends = self._log(name), self.read_ends(name)
        pairs = (key.split("/", 1) for key in ends if "/" in key)
        known = dict.fromkeys(own for kind, own in pairs if kind in KINDS_OF_FLOORS)
        own = [each for each in known if find_role(log.config, f"loss/{each}") == MODEL]
        terms = [each for each in known if each == term] if f"loss/{term}" in ends else own
        return bool(terms) and all(is_near_floor(ends, each) for each in terms)

    def list_ways(self) -> list[str]:
        """The metrics for which models of arms were scored in different ways (`score`)."""
        lines = []
        for name, metric in self.plan.study.metrics.items():
            found: dict[str, dict[str, None]] = {}
            for cell in self.plan.cells if metric.of in self.plan.study.evals else ():
                for job in self._find_jobs(metric.of, cell):
                    way = self._scores(job).get("score") if self._done([job]) else None
                    if isinstance(way, str):
                        found.setdefault(way, {})[cell.arm] = None
            if len(found) > 1:
                ways = "; ".join(f"{way}: {', '.join(arms)}" for way, arms in found.items())
                lines.append(
                    f"{name}: the arms are scored in different ways ({ways}), so a difference is"
                    " one of models and of ways (task.score)"
                )
        return lines

    def list_ties(self) -> list[str]:
        """How many pairs of an evaluation had equal scores, by arm, in the mean of its models."""
        lines = []
        for of in self.plan.study.evals:
            counts, rule = dict[str, list[float]](), ""
            for cell in self.plan.cells:
                for job in self._find_jobs(of, cell):
                    own = self._scores(job) if self._done([job]) else {}
                    if "ties" in own:
                        counts.setdefault(cell.arm, []).append(own.get("tied") or 0)
                        rule = own["ties"]
            if any(map(any, counts.values())):
                means = (f"{arm} {statistics.fmean(own):.4g}" for arm, own in counts.items())
                lines.append(
                    f"{of}: pairs of equal scores, in the mean of a model: {', '.join(means)}"
                    f" (task.ties={rule})"
                )
        return lines

    def list_held_out(self) -> list[str]:
        """How much text the pretrainings have held out, and whether it validates anything."""
        found: dict[str, list[str]] = {}
        for arm, held in self._held_out():
            found.setdefault(held.explain().partition("\n")[0], []).append(arm)
        if len(found) < 2:
            return list(found)
        return [f"{line} ({', '.join(dict.fromkeys(arms))})" for line, arms in found.items()]

    @property
    def validates(self) -> bool:
        """Whether no pretraining held out too little for a validation."""
        return all(held.validates for _, held in self._held_out())

    def _held_out(self) -> Iterator[tuple[str, HeldText]]:
        """(arm, its held-out text) of each pretraining that is done and has recorded it."""
        for cell in self.plan.cells:
            if cell.pretrain and self._done([cell.pretrain]):
                held = read_held_out(self.locate(cell.pretrain) / RUN)
                yield from [(cell.arm, held)] if held else []

    def cells(self, arm: str) -> list[StudyCell]:
        """The cells of an arm."""
        return [cell for cell in self.plan.cells if cell.arm == arm]

    def choice(self, cell: StudyCell, task: str) -> int | None:
        """The setting with the best mean on dev over its restarts, by the task's first metric;
        the first of equals.
        """
        means = {}  # negative where lower is better
        for number, restarts in enumerate(cell.tuned[task]):
            if self._done(restarts):
                first = self._name_first(restarts[0], self.plan.arms[cell.arm].tuned[task][number])
                scores = (self._scores(name)["metrics"]["dev"][first] for name in restarts)
                larger = all(first not in self._list_lower(name) for name in restarts)
                means[number] = statistics.fmean(scores) * (1 if larger else -1)
        return max(means, key=lambda number: (means[number], -number), default=None)

    def runs(self, metric: Metric, by: str) -> dict[str, list[Run]]:
        """{arm: the curves of its pretrainings that are done}."""
        found: dict[str, list[Run]] = {}
        for arm in self.plan.arms:
            if explain_unlike(self.plan.study, self.plan.arms, metric, arm):
                continue
            names = dict.fromkeys(cell.pretrain for cell in self.cells(arm))
            done = [name for name in names if name and self._done([name])]
            rate = self._count(arm)[0] if done else 0.0
            found[arm] = [read_curve(self._log(name), metric.series, by, rate) for name in done]
        return found

    def cost(self, arm: str) -> dict[str, float | None]:
        """The parameters, and means over the cells that are done: tokens and training FLOPs of
        pretraining, seconds of all training; of fine-tunings the weights trained, the bytes saved,
        and the most memory.
        """
        tokens, seconds, footprints = [], [], []
        for cell in self.cells(arm):
            pretrain = [cell.pretrain] if cell.pretrain else []
            tuned = [name for name in cell.jobs if name.startswith("finetune")]
            if self._done(pretrain):
                tokens += [self._last(name, "tokens") for name in pretrain]
            if self._done(cell.jobs):
                seconds.append(sum(self._last(name, "seconds") for name in (*pretrain, *tuned)))
                footprints += [self._scores(name).get("footprint") for name in tuned]
        pretrained, (rate, parameters) = self.plan.arms[arm].arm.pretrain, self._count(arm)
        mean = statistics.fmean(tokens) if tokens else None if pretrained else 0.0
        return {
            "parameters": parameters,
            "tokens": mean,
            "flops": None if mean is None else mean * rate,
            "seconds": statistics.fmean(seconds) if seconds else None,
            **_summarise_footprints([each for each in footprints if each]),
        }

    def clock(self, arm: str) -> dict[str, float]:
        """{pretrain or a task: seconds of training of a seed} of the jobs of an arm that are done,
        in the mean; of a task for one restart of all settings.
        """
        names: dict[str, list[str]] = {PRETRAIN: []}
        for cell in self.cells(arm):
            names[PRETRAIN] += [cell.pretrain] if cell.pretrain else []
            for task, points in cell.tuned.items():
                names.setdefault(task, []).extend(name for point in points for name in point)
        times = {PRETRAIN: 1, **dict.fromkeys(self.plan.study.tasks, len(self.plan.study.points))}
        done = {of: [name for name in own if self._done([name])] for of, own in names.items()}
        return {
            of: times[of] * statistics.fmean(self._last(name, "seconds") for name in own)
            for of, own in done.items()
            if own
        }

    def find_ratio(self, arm: str) -> WordRatio | None:
        """The tokens a word of the text of an arm, where it is tokenized."""
        jobs = (job for cell in self.cells(arm) for job in self.plan.list_tokenizers(cell))
        folders = (self.locate(job) / RUN for job in jobs if self._done([job]))
        found = next(filter(is_tokens, folders), None)
        return count_ratio([Shards.open(found)]) if found else None

    def _count(self, arm: str) -> tuple[float, int]:
        """(training FLOPs of a token, parameters), by the jobs that are done."""
        jobs = (job for cell in self.cells(arm) for job in self.plan.list_tokenizers(cell))
        return self.plan.count(arm, (self.locate(job) for job in jobs if self._done([job])))

    def _value(self, metric: Metric, cell: StudyCell) -> float | None:
        names = self._find_jobs(metric.of, cell)
        if not names or not self._done(names):
            return None
        if metric.of == PRETRAIN:
            return self._last(names[0], metric.series)
        scores = [self._score(name, metric) for name in names]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if len(known) == len(scores) else None

    def _find_jobs(self, of: str, cell: StudyCell) -> Sequence[str]:
        """The jobs of a cell that give the metrics of pretraining, a task or an evaluation."""
        if of == PRETRAIN:
            return [cell.pretrain] if cell.pretrain else []
        if of in self.plan.study.evals:
            evals, node = cell.evals.get(of, {}), self.plan.study.evals[of]
            if node.of == PRETRAIN:
                return list(evals.values())
            return [evals[name] for name in self._find_jobs(node.of, cell) if name in evals]
        chosen = self.choice(cell, of)
        return cell.tuned[of][chosen] if chosen is not None else []

    def lower_is_better(self, metric: Metric) -> bool:
        """Whether lower is better, as the study states it, else the task of the metric."""
        done = (name for cell in self.plan.cells for name in self._find_jobs(metric.of, cell))
        stated = metric.better == "auto" and metric.of in self.plan.study.tasks
        return metric.lower_is_better or (
            stated and any(metric.key in self._list_lower(n) for n in done if self._done([n]))
        )

    def is_percent(self, metric: Metric) -> bool:
        """Whether its values are percents, as the task or the evaluation of the metric states."""
        if metric.of == PRETRAIN or metric.exp:
            return False
        done = (name for cell in self.plan.cells for name in self._find_jobs(metric.of, cell))
        stated = (self._scores(name).get("percent") or () for name in done if self._done([name]))
        return any(metric.key in names for names in stated)

    def find_floors(self, metric: Metric) -> dict[str, float]:
        """{name: value} of answers without a model of language: chance, simple models, and the
        frequencies of tokens and of pairs.
        """
        if metric.of == PRETRAIN:
            return self._find_frequencies(metric)
        done = (name for cell in self.plan.cells for name in self._find_jobs(metric.of, cell))
        found = (self._read_floors(name, metric.key) for name in done if self._done([name]))
        return next(filter(None, found), {})

    def _find_frequencies(self, metric: Metric) -> dict[str, float]:
        """The losses of validation without a model, by the first pretraining that has them."""
        term = metric.key.removeprefix("loss/")
        if not metric.validated or term == metric.key:
            return {}
        for cell in self.plan.cells:
            log = (
                self._log(cell.pretrain) if cell.pretrain and self._done([cell.pretrain]) else None
            )
            known = {kind: log.last(f"valid/{kind}/{term}") for kind in FREQUENCIES} if log else {}
            if found := {kind: metric.unit(x) for kind, x in known.items() if x is not None}:
                return found
        return {}

    def _read_floors(self, name: str, key: str) -> dict[str, float]:
        result, file = self._scores(name), self.locate(name) / RUN / BASELINES
        splits = read_json(file) if file.is_file() else {}
        models: Mapping[str, Mapping[str, float]] = splits.get("dev") or {}
        chance = result.get(CHANCE, self._choose_scores(name).get(CHANCE))
        known = {} if chance is None else {CHANCE: float(chance)}
        return known | {model: float(own[key]) for model, own in models.items() if key in own}

    def _choose_scores(self, name: str) -> Mapping[str, Any]:
        """The scores on the dev split, or of an evaluation the average or else the first ones."""
        splits = self._scores(name)["metrics"]
        first: Mapping[str, Any] = next(iter(splits.values()), {})
        return splits.get("dev") or splits.get(AVERAGE) or first

    def _name_first(self, name: str, config: Mapping[str, Any]) -> str:
        """The first metric of a fine-tuning; of a task that finds its metrics in its data, the
        first one that it wrote.
        """
        stated: Sequence[str] = config["task"].get("metrics") or ()
        return next(iter([*stated, *self._choose_scores(name)]), "")

    def _list_lower(self, name: str) -> Sequence[str]:
        """The scores of a fine-tuning of which a lower value is better."""
        found: Sequence[str] = self._scores(name).get("lower") or ()
        return found

    def _score(self, name: str, metric: Metric) -> float | None:
        scores = self._choose_scores(name)
        if metric.key in scores:
            return float(scores[metric.key])
        known = f"{nearest(metric.key, scores)}: {', '.join(scores)}"
        self.problems.append(f"{metric.of} gives no '{metric.key}'{known}")
        return None

    def _last(self, name: str, series: str) -> float:
        log = self._log(name)
        value = log.last(series)
        if value is None:
            known = ", ".join(key for key in log.series if key.startswith("valid/"))
            problem = f"was never measured; there is {known or 'no validation at all'}"
            raise DataError(problem, file=f"{log.folder}: {series}")
        return value

    def _done(self, names: Sequence[str]) -> bool:
        return all(self.states[name].kind == "done" for name in names)


def _summarise_footprints(footprints: Sequence[Mapping[str, int]]) -> dict[str, float | None]:
    """None of an arm without a fine-tuning."""
    if not footprints:
        return dict.fromkeys(("trained", "saved", "memory"))
    means = {k: statistics.fmean(each[k] for each in footprints) for k in ("trained", "saved")}
    return {**means, "memory": max(each["memory"] for each in footprints)}


def list_warnings(plan: StudyPlan, events: JobEvents) -> list[str]:
    """The warnings of finished jobs; one line for all that differ in numbers alone."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, job in plan.jobs.items():
        last = events.of(name)
        for line in last.warnings if last.event == "finished" else ():
            found.setdefault(NUMBER.sub("#", line), []).append((job.label, line))
    return [_spell_warning(same) for same in found.values()]


def _spell_warning(same: Sequence[tuple[str, str]]) -> str:
    """`3 jobs, first pretrain slow, seed 0: <its line>`."""
    label, line = same[0]
    jobs = label if len(same) == 1 else f"{counted(len(same), 'job')}, first {label}"
    return f"{jobs}: {line}"


def list_missing(results: Results) -> list[dict[str, str]]:
    """The jobs that failed, were stopped early or have not run yet, with the cells that lack
    them; not what waits for these.
    """
    plan = results.plan
    behind = [(cell.label, plan.behind(cell)) for cell in plan.cells]
    return [
        {
            "job": name,
            "label": plan.jobs[name].label,
            "state": state.kind,
            "why": state.why or (BEGUN if (results.locate(name) / RUN).exists() else NOT_RUN),
            "cells": "; ".join(cell for cell, jobs in behind if name in jobs),
        }
        for name, state in results.states.items()
        if state.kind not in ("done", "skipped")
    ]
