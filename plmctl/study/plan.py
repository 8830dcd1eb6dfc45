"""Arms x seeds x stages as jobs: what two cells share is one job, and a job is named by all that
decides its result.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plmctl.commands.fitted import OF_THE_MODEL
from plmctl.core.errors import ConfigError, UsageError, raise_all
from plmctl.data.shards import is_tokens
from plmctl.run import schema
from plmctl.run.compose import Flags
from plmctl.study.checks import check_study
from plmctl.study.composing import Composed, Composer, Config
from plmctl.study.content import JOB, key
from plmctl.study.study import PRETRAIN, Study


@dataclass(frozen=True)
class Job:
    """One run of an ordinary command; in `config`, "job:<name>" stands for the run of a job that
    comes first.
    """

    verb: str
    key: str
    label: str  # for people: the first cell that asked for it
    config: Config
    words: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.verb}-{self.key}"


@dataclass
class Cell:
    """One arm at one seed, by the names of its jobs."""

    arm: str
    seed: int
    pretrain: str | None = None
    tuned: dict[str, list[list[str]]] = field(default_factory=dict)  # task -> setting -> restart
    # evaluation -> {whose checkpoint: job}
    evals: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def jobs(self) -> list[str]:
        tuned = [
            name for settings in self.tuned.values() for restarts in settings for name in restarts
        ]
        own = [self.pretrain] if self.pretrain else []
        return [*own, *tuned, *(name for each in self.evals.values() for name in each.values())]


@dataclass(frozen=True)
class Plan:
    """All jobs in an order in which they may run, and which of them make up each cell."""

    study: Study
    arms: Mapping[str, Composed]
    jobs: Mapping[str, Job]
    cells: Sequence[Cell]

    def behind(self, cell: Cell) -> set[str]:
        """The jobs of a cell and all that they start from."""
        found: set[str] = set()
        waiting = list(cell.jobs)
        while waiting:
            name = waiting.pop()
            found.add(name)
            waiting += self.jobs[name].needs
        return found

    def needed(self, name: str) -> bool:
        """Whether another job starts from this one's run."""
        return any(name in job.needs for job in self.jobs.values())


def plan(study: Study, flags: Flags) -> Plan:
    """The plan of a study; raises every arm that does not compose, and everything that makes
    arms incomparable.
    """
    composer = Composer(study, flags)
    arms = composer.arms()
    raise_all(check_study(study, arms, composer.tasks))
    made = _Jobs(study)
    cells = [made.cell(each, seed) for seed in study.seeds for each in arms.values()]
    raise_all(_twins(cells))
    return Plan(study, arms, made.jobs, cells)


class _Jobs:
    """Jobs by name, each made once."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.jobs: dict[str, Job] = {}
        # arm, seed, task -> its fine-tuning at the first point of the grid
        self._first: dict[tuple[str, int, str], str] = {}

    def cell(self, each: Composed, seed: int) -> Cell:
        cell = Cell(each.arm.name, seed)
        place = f"{each.arm.name}, seed {seed}"
        if each.arm.pretrain:
            cell.pretrain = self._pretrain(each, seed, place)
            self._evals(cell, each, PRETRAIN, [cell.pretrain], place)
        for task, settings in each.tuned.items():
            teacher = self._first[each.arm.teacher, seed, task] if each.arm.teacher else None
            cell.tuned[task] = [
                [
                    self._tuned(
                        each,
                        cell,
                        config,
                        order,
                        head,
                        f"{task}{_chosen(point)} of {place}",
                        teacher,
                    )
                    for order, head in self._restarts(seed)
                ]
                for point, config in zip(self.study.settings, settings, strict=True)
            ]
            self._first[each.arm.name, seed, task] = cell.tuned[task][0][0]
            self._evals(
                cell,
                each,
                task,
                [name for restarts in cell.tuned[task] for name in restarts],
                place,
            )
        return cell

    def _restarts(self, seed: int) -> list[tuple[int, int]]:
        return self.study.restarts.pairs(seed)

    def _pretrain(self, each: Composed, seed: int, place: str) -> str:
        config = {**each.pretrain, "seed": seed}
        tokens = self._tokens(each)
        if tokens:
            only = {**dataclasses.asdict(schema.Corpora()), "path": f"{JOB}{tokens}"}
            config["data"] = only | {"cache_dir": each.pretrain["data"]["cache_dir"]}
        return self._add("pretrain", f"pretrain {place}", config, needs=[tokens])

    def _tokens(self, each: Composed) -> str | None:
        """The job that tokenizes an arm's text; None where it names tokens, or several texts
        (pretraining caches them).
        """
        data = each.pretrain["data"]
        if data["mixture"] or data["sources"] or is_tokens(data["path"]):
            return None
        names = [f.name for f in dataclasses.fields(schema.Data)]
        config = {
            "data": {name: data[name] for name in names},
            "tokenizer": each.pretrain["tokenizer"],
            "out": None,
        }
        return self._add(
            "tokenize", f"tokenize for {each.arm.name}", {**config, "processes": None, "seed": 0}
        )

    def _tuned(
        self,
        each: Composed,
        cell: Cell,
        config: Config,
        order: int,
        head: int,
        label: str,
        teacher: str | None,
    ) -> str:
        made = {**config, "seed": order, "head_seed": head}
        made |= {"teacher": f"{JOB}{teacher}"} if teacher and config["distill"] else {}
        first = teacher if each.arm.from_teacher else cell.pretrain
        if first:
            made["checkpoint"] = f"{JOB}{first}"
            return self._add("finetune", label, made, needs=list(dict.fromkeys([first, teacher])))
        if each.arm.checkpoint:
            return self._add(
                "finetune", label, {**made, "checkpoint": each.arm.checkpoint}, needs=[teacher]
            )
        tokens = self._tokens(each)
        source = (
            f"{JOB}{tokens}"
            if tokens
            else each.pretrain["tokenizer"].get("path") or each.pretrain["data"]["path"]
        )
        if not source:
            fix = "tokenizer.path=<folder> in its overrides"
            raise ConfigError(
                f"arms.{each.arm.name}",
                ...,
                "several texts make no one tokenizer before pretraining",
                fix=fix,
            )
        made |= {name: each.pretrain[name] for name in OF_THE_MODEL}
        made["tokenizer"] = {**each.pretrain["tokenizer"], "path": source}
        return self._add("finetune", label, made, needs=[tokens, teacher])

    def _evals(
        self, cell: Cell, each: Composed, of: str, checkpoints: Sequence[str], place: str
    ) -> None:
        for name, node in self.study.evals.items():
            if node.of == of:
                cell.evals[name] = {
                    job: self._add(
                        "eval",
                        f"{name} of {place}",
                        {**each.evals[name], "checkpoint": f"{JOB}{job}"},
                        words=node.overrides,
                        needs=[job],
                    )
                    for job in checkpoints
                }

    def _add(
        self,
        verb: str,
        label: str,
        config: Config,
        *,
        words: Sequence[str] = (),
        needs: Sequence[str | None] = (),
    ) -> str:
        job = Job(
            verb,
            key(verb, config),
            label,
            config,
            tuple(words),
            tuple(name for name in needs if name),
        )
        return self.jobs.setdefault(job.name, job).name


def _chosen(point: Sequence[str]) -> str:
    """A point of the grid behind the name of its task: " (optim.lr=1e-4)"."""
    return f" ({', '.join(point)})" if point else ""


def _twins(cells: Sequence[Cell]) -> list[UsageError]:
    """Arms that come to the same jobs."""
    first: dict[str, str] = {}
    errors: list[UsageError] = []
    for cell in cells:
        if cell.seed != cells[0].seed:
            break
        jobs = json.dumps(cell.jobs)
        if jobs in first:
            errors.append(
                ConfigError(
                    f"arms.{cell.arm}",
                    ...,
                    f"is the same run as '{first[jobs]}'",
                    fix="drop one of them",
                )
            )
        first.setdefault(jobs, cell.arm)
    return errors


def resolved(config: Any, runs: Mapping[str, str]) -> Any:
    """`config` with the folder of each job's run in the place of its name."""
    if isinstance(config, dict):
        return {name: resolved(value, runs) for name, value in config.items()}
    if isinstance(config, list):
        return [resolved(value, runs) for value in config]
    is_run = isinstance(config, str) and config.startswith(JOB)
    return runs[config.removeprefix(JOB)] if is_run else config
