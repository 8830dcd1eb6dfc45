"""Arms x seeds x stages as jobs: what two cells share is one job, and a job is named by all that
decides its result.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plmctl.config import groups, schema
from plmctl.config.build import parameters_of
from plmctl.config.decision import Decision
from plmctl.config.spec import Provenance, all_parts_in, key_of, thaw
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, UsageError, raise_all
from plmctl.core.used_cells import drop_unused_cells
from plmctl.jobs.configs import is_tokenized_first
from plmctl.jobs.job import REFERENCE, RUN, Config, Job, close_over
from plmctl.jobs.key import compute_key
from plmctl.study.checks import check_study
from plmctl.study.composing import ComposedArm, Composer
from plmctl.study.study import PRETRAIN, Study
from plmctl.text.tokenizer import read_size

# the settings of a warm-up, with their values where a schedule has none
WARMUP = {"warmup_steps": 0, "warmup_share": 0.0, "warmup_limit": 1.0}


@dataclass
class StudyCell:
    """One arm at one seed, by the names of its jobs."""

    arm: str
    seed: int
    pretrain: str | None = None
    inject: str | None = None
    tuned: dict[str, list[list[str]]] = field(default_factory=dict)  # task -> setting -> restart
    # evaluation -> {whose checkpoint: job}
    evals: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.arm}, seed {self.seed}"

    @property
    def jobs(self) -> list[str]:
        """All jobs of the cell."""
        own = [name for name in (self.pretrain, self.inject) if name]
        tuned = [name for points in self.tuned.values() for jobs in points for name in jobs]
        return [*own, *tuned, *(name for jobs in self.evals.values() for name in jobs.values())]


@dataclass(frozen=True)
class StudyPlan:
    """All jobs in an order in which they may run, and which of them make up each cell."""

    study: Study
    arms: Mapping[str, ComposedArm]
    jobs: Mapping[str, Job]
    cells: Sequence[StudyCell]
    # {recipe: what follows from budget.minutes for all arms of it}
    decisions: Mapping[str, Decision] = field(default_factory=dict)

    def behind(self, cell: StudyCell) -> set[str]:
        """The jobs of a cell and all that they start from."""
        return close_over(cell.jobs, lambda name: self.jobs[name].needs)

    def select(self, cells: Sequence[StudyCell]) -> StudyPlan:
        """The plan of some of its cells alone, with all that they start from."""
        needed = set[str]().union(*map(self.behind, cells))
        jobs = {name: job for name, job in self.jobs.items() if name in needed}
        return replace(self, jobs=jobs, cells=cells)

    def list_tokenizers(self, cell: StudyCell) -> list[str]:
        """The jobs that keep the tokenizer with which a cell is trained."""
        own = [cell.pretrain] if cell.pretrain else cell.jobs
        before = dict.fromkeys(name for job in own for name in self.jobs[job].needs)
        tokens = [name for name in before if self.jobs[name].verb == "tokenize"]
        return [*([cell.pretrain] if cell.pretrain else []), *tokens]

    def count(self, arm: str, folders: Iterable[Path]) -> tuple[float, int]:
        """(training FLOPs of a token, parameters) with the vocabulary of an arm's jobs, by their
        folders; before there are any, with the expected one.
        """
        sizes = (read_size(folder / RUN) for folder in folders)
        return self.arms[arm].count(next(filter(None, sizes), None))


def plan(study: Study, given: Provenance, processes: int = 1) -> StudyPlan:
    """The plan of a study; raises every arm that does not compose, and everything that makes
    arms incomparable.

    Args:
        study: the study.
        given: the options of the command line.
        processes: jobs at the same time, on this machine.
    """
    composer = Composer(study, given, processes)
    arms = composer.compose_arms()
    raise_all(check_study(study, arms, composer.tasks, composer.scores, composer.can_measure))
    planner = _Planner(study, given.plugins)
    cells = [planner.plan_cell(arm, seed) for seed in study.seeds for arm in arms.values()]
    raise_all(_find_twins(study, arms, given.plugins))
    return StudyPlan(study, arms, planner.jobs, cells, composer.decisions)


class _Planner:
    """Jobs by name, each made once."""

    def __init__(self, study: Study, plugins: tuple[str, ...]) -> None:
        self.study, self.plugins = study, plugins
        self.jobs: dict[str, Job] = {}
        # arm, seed, task -> its fine-tuning at the first point of the grid
        self._first: dict[tuple[str | None, int, str], Job] = {}

    def plan_cell(self, composed: ComposedArm, seed: int) -> StudyCell:
        """Plan one arm at one seed."""
        cell = StudyCell(composed.arm.name, seed)
        start = None
        if composed.arm.pretrain:
            start = self._pretrain(composed, cell)
            cell.pretrain = start.name
        if composed.inject is not None:
            start = self._inject(composed.inject, composed, cell, start)
            cell.inject = start.name
        model = start.reference if start else composed.arm.checkpoint
        if model and not composed.arm.from_teacher:
            self._evaluate(cell, composed, PRETRAIN, [model])
        pairs = self.study.restarts.pairs(seed)
        seeds = [{"seed": order, "head_seed": head} for order, head in pairs]
        for task, configs in composed.tuned.items():
            teacher = self._first.get((composed.arm.teacher, seed, task))
            tuned: list[list[Job]] = []
            for point, config in zip(self.study.points, configs, strict=True):
                settings = config | self._find_start(composed, start, teacher)
                if teacher and config["distill"]:
                    settings["teacher"] = teacher.reference
                chosen = f" ({', '.join(point)})" if point else ""
                label = f"{task}{chosen} of {cell.label}"
                tuned.append([self._add("finetune", label, settings | own) for own in seeds])
            self._first[composed.arm.name, seed, task] = tuned[0][0]
            cell.tuned[task] = [[job.name for job in restarts] for restarts in tuned]
            models = [job.reference for restarts in tuned for job in restarts]
            self._evaluate(cell, composed, task, models)
        return cell

    def _pretrain(self, composed: ComposedArm, cell: StudyCell) -> Job:
        config = {**composed.pretrain, "seed": cell.seed}
        if tokens := self._tokenize(composed):
            kept = {name: config["data"][name] for name in ("cache_dir", "sources")}
            config["data"] = thaw(groups.Corpora()) | kept | {"path": tokens.reference}
        return self._add("pretrain", f"pretrain {cell.label}", config)

    def _inject(
        self, config: Config, composed: ComposedArm, cell: StudyCell, pretrain: Job | None
    ) -> Job:
        """The job that gives tokens to the model of an arm; a part that draws does so by the seed
        of the cell.
        """
        part = config["word_vectors"]
        seeded = {**part, "seed": cell.seed} if "seed" in part else part
        model = pretrain.reference if pretrain else composed.arm.checkpoint
        settings = config | {"word_vectors": seeded, "checkpoint": model}
        return self._add("inject", f"inject for {cell.label}", settings)

    def _tokenize(self, composed: ComposedArm) -> Job | None:
        """The job that tokenizes an arm's text; None without text."""
        data = composed.pretrain["data"]
        if not is_tokenized_first(data):
            return None
        config = {
            "data": {f.name: data[f.name] for f in dataclasses.fields(groups.Data)},
            "tokenizer": composed.pretrain["tokenizer"],
            "out": None,
            "processes": None,
            "seed": 0,
        }
        words = ("out=tokens", *self.study.tokenizer_words(composed.arm))
        return self._add("tokenize", f"tokenize for {composed.arm.name}", config, words)

    def _find_start(self, composed: ComposedArm, made: Job | None, teacher: Job | None) -> Config:
        """The settings that say from what a fine-tuning starts.

        Args:
            made: the job that has made the model of the arm, if one has.
            teacher: the job that is taught by.
        """
        arm, tokenizer = composed.arm, composed.pretrain["tokenizer"]
        if first := teacher if arm.from_teacher else made:
            return {"checkpoint": first.reference}
        if arm.checkpoint:
            return {"checkpoint": arm.checkpoint}
        tokens = self._tokenize(composed)
        path = tokenizer.get("path") or composed.pretrain["data"]["path"]
        source = tokens.reference if tokens else path
        if not source:
            allowed = "several texts make no one tokenizer before pretraining"
            fix = "tokenizer.path=<folder> in its overrides"
            raise ConfigError(f"arms.{arm.name}", ..., allowed, fix=fix)
        model = {name: composed.pretrain[name] for name in schema.OF_THE_MODEL}
        return model | {"tokenizer": {**tokenizer, "path": source}}

    def _evaluate(
        self, cell: StudyCell, composed: ComposedArm, of: str, models: Sequence[str]
    ) -> None:
        for name, node in self.study.evals.items():
            if node.of == of:
                cell.evals[name] = {}
                for model in models:
                    config = composed.evals[name] | {"checkpoint": model}
                    added = self._add("eval", f"{name} of {cell.label}", config, node.overrides)
                    cell.evals[name][model.removeprefix(REFERENCE)] = added.name

    def _add(self, verb: str, label: str, config: Config, words: tuple[str, ...] = ()) -> Job:
        """The job with this config; the first cell that asks for it gives it its label."""
        name, keep = f"{verb}-{compute_key(verb, config)}", verb != "finetune" or self.study.keep
        job = Job(name, verb, label, config, words=words, plugins=self.plugins, keep=keep)
        return self.jobs.setdefault(name, job)


def _find_twins(
    study: Study, arms: Mapping[str, ComposedArm], plugins: tuple[str, ...]
) -> list[UsageError]:
    """Arms that come to the same jobs, with the words in which they seem to differ."""
    planner, first = _Planner(study, plugins), dict[str, str]()
    errors: list[UsageError] = []
    for name, arm in arms.items():
        effective = replace(arm, pretrain=_keep_effective(arm.pretrain, plugins))
        cell = planner.plan_cell(effective, study.seeds[0])
        other = first.setdefault(json.dumps(cell.jobs), name)
        if other != name:
            allowed = f"is the same model as '{other}'{_explain_twin(arm, arms[other])}"
            errors.append(ConfigError(f"arms.{name}", ..., allowed, fix="drop one of them"))
    return errors


def _keep_effective(config: Config, plugins: tuple[str, ...]) -> Config:
    """The config of a pretraining without what decides nothing: numbers of `size` that no part
    takes from there, and a warm-up beyond its limit.
    """
    config, steps = drop_unused_cells(config), config["train"].get("steps")
    parts = [(part, parameters_of(part, plugins)) for _, part in all_parts_in(config)]
    size = {
        name: number
        for name, number in config["size"].items()
        if any(known is None or (name in known and name not in part) for part, known in parts)
    }
    schedule = _cut_warmup(config["schedule"], steps) if steps else config["schedule"]
    return {**config, "size": size, "schedule": schedule}


def _cut_warmup(node: Any, steps: int) -> Any:
    """A schedule with the updates of its warm-up, `min(share * steps or updates, limit * steps)`,
    instead of these three.
    """
    if not isinstance(node, Mapping):
        return node
    cut = {key: _cut_warmup(value, steps) for key, value in node.items() if key not in WARMUP}
    updates, share, limit = (node.get(key, usual) for key, usual in WARMUP.items())
    return {**cut, "warmup": min(share * steps or updates, limit * steps)}


def _explain_twin(arm: ComposedArm, other: ComposedArm) -> str:
    """The words of one arm that change nothing of the other, each with the reason."""
    for one, two in ((arm, other), (other, arm)):
        told = [
            *_explain_words(
                one.arm.overrides, two, two.arm.overrides, [one.pretrain, two.pretrain]
            ),
            *(
                line
                for task, (config, *_) in one.tuned.items()
                for line in _explain_words(
                    one.arm.finetune, two, two.arm.finetune, [config, two.tuned[task][0]]
                )
            ),
        ]
        if told:
            return f": {'; '.join(dict.fromkeys(told))}"
    words = [
        f"{key}={value} has the same content"
        for key in ("recipe", "checkpoint")
        if (value := getattr(arm.arm, key)) != getattr(other.arm, key)
    ]
    return f": {'; '.join(words) or 'their settings are equal'}"


def _explain_words(
    words: Sequence[str], other: ComposedArm, theirs: Sequence[str], configs: Sequence[Config]
) -> Iterator[str]:
    """Why each word that the other arm lacks changes nothing, by the configs of both."""
    last = {key_of(word): word for word in words}
    for word in (each for each in words if each not in theirs):
        key, name = key_of(word), other.arm.name
        own, their = (select(config, key) for config in configs)
        if last[key] != word:
            yield f"{word} is replaced by {last[key]}"
        elif own == their:
            yield f"{word} is what '{name}' has, too"
        else:
            slot, _, setting = key.rpartition(".")
            why = {"size": f": no part takes {key}"}.get(slot, "")
            why = f": {slot}.warmup_limit cuts both" if setting in WARMUP else why
            yield f"{word} changes nothing of '{name}'{why}"
