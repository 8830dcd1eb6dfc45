"""Each arm's configs, composed and checked before anything runs; all that is wrong is raised
together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.inject import build_maker
from plmctl.artifacts.loading import open_source
from plmctl.config import groups, schema
from plmctl.config.budgets import NONE, find_given
from plmctl.config.build import build
from plmctl.config.decision import Decision
from plmctl.config.glossary import token_targets
from plmctl.config.make_spec import spec_of
from plmctl.config.overrides import OverrideWord
from plmctl.config.spec import Provenance, key_of, thaw
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, flatten, raise_all
from plmctl.core.machine import count_processors
from plmctl.jobs.configs import (
    Configs,
    find_missing_files,
    find_missing_text,
    spell_changes,
    spell_task,
)
from plmctl.jobs.job import Config
from plmctl.probes.base import NamedScores
from plmctl.runs.adapt import refuse_another_model
from plmctl.runs.check import outline_pretraining
from plmctl.runs.estimate import count_work, estimate
from plmctl.runs.prospects import list_validation_metrics
from plmctl.runs.resolve import outline_later
from plmctl.runs.teachers import check_teacher
from plmctl.runs.word_ratio import WordRatio, find_word_ratio
from plmctl.study.before import name_maker
from plmctl.study.study import Arm, Study, StudyTask
from plmctl.tasks.readers.files import existing
from plmctl.tasks.task import Task

# the settings that decide the cost of an arm's pretraining, and the figures of its validation
_COSTLY = (
    *("size", "model", "pattern", "position", "kernel", "heads"),
    *("objective", "tokenizer", "format", "noise", "data", "init", "distill", "teacher"),
)


@dataclasses.dataclass(frozen=True)
class ComposedArm:
    """The configs of an arm, whatever its seed."""

    arm: Arm
    pretrain: Config  # an arm without pretraining has the config of its model here
    inject: Config | None  # None: no tokens are added
    tuned: Mapping[str, Sequence[Config]]  # task -> one for each point of the grid
    # task -> (training FLOPs, updates) of each point, at most
    tuning_work: Mapping[str, Sequence[tuple[float, int]]]
    evals: Mapping[str, Config]
    # (training FLOPs of a token, parameters) with a vocabulary of so many tokens; None: with as
    # many as its text yields, as far as that is known before there are tokens
    count: Callable[[int | None], tuple[float, int]]
    ratio: WordRatio | None  # None: no length in words
    measured: frozenset[str]  # names of the metrics that validation of its pretraining gives

    @property
    def flops_per_token(self) -> float:
        """The training FLOPs of a token, before there are tokens."""
        return self.count(None)[0]

    @property
    def parameters(self) -> int:
        """The parameters, before there are tokens."""
        return self.count(None)[1]


class Composer:
    """Composes arms; `tasks` are the built tasks, by name, `decisions` what follows from
    budget.minutes for each recipe.
    """

    def __init__(self, study: Study, given: Provenance, processes: int = 1) -> None:
        self.study, self.plugins, self.given = study, given.plugins, given
        self.processes = processes  # number of jobs that share this machine
        self.configs = Configs(given)
        self.tasks: dict[str, Task] = {}
        self.scores: dict[str, Collection[str]] = {}  # known names, by evaluation
        self.decisions: dict[str, Decision] = {}
        # {a problem: {where it is: the tasks with which it is, none for all}}
        self._wrong: dict[str, dict[str, set[str]]] = {}
        self._costs: dict[str, tuple[float, int, frozenset[str]]] = {}
        self._sizes: dict[str, int] = {}
        self._ratios: dict[str, WordRatio] = {}
        self._read: dict[str, Task] = {}  # tasks of arms, by what decides how they read

    def compose_arms(self) -> dict[str, ComposedArm]:
        """Every arm; raises the mistakes of any of them, and of their common settings."""
        for name, task in self.study.tasks.items():
            with self._collect(f"finetune.tasks.{name}"):
                config = self._compose_task(task, (*self.study.finetune, *task.overrides))
                self.tasks[name] = self.configs.read_task(task.task, config, {"pooling": "first"})
        evals: dict[str, Config] = {}
        for name, node in self.study.evals.items():
            with self._collect(f"eval.{name}"):
                evals[name] = self.configs.compose("eval", ("checkpoint=later", *node.overrides))
                raise_all(find_missing_files(evals[name]))
                self._name_scores(name, evals[name])
        arms: dict[str, ComposedArm] = {}
        for name, arm in self.study.arms.items():
            with self._collect(f"arm '{name}'"):
                arms[name] = self._compose_arm(arm, evals)
        raise_all(UsageError(f"{self._name(where)}: {what}") for what, where in self._wrong.items())
        return arms

    def _name_scores(self, name: str, config: Config) -> None:
        """Keep the names of the scores of an evaluation, where they are known before."""
        if config["task"]:
            part = build(config["task"], {}, self.plugins, path="task")
            if isinstance(part, NamedScores):
                self.scores[name] = part.list_scores()

    def can_measure(self, name: str, metrics: str) -> bool:
        """Whether a task of the study takes a word like task.metrics=[f1,accuracy]."""
        task = self.study.tasks[name]
        try:
            config = self._compose_task(task, (*self.study.finetune, *task.overrides, metrics))
            build(config["task"], {"pooling": "first"}, self.plugins, path="task")
        except PlmctlError:
            return False
        return True

    def _compose_arm(self, arm: Arm, evals: Mapping[str, Config]) -> ComposedArm:
        budget, points = self.study.budget, self.study.points
        trained = self._count_parameters(arm.checkpoint) if arm.checkpoint is not None else None
        config = model = self._compose_pretraining(arm)
        rate, _, measured = self._measure_cost(model)

        def count(tokens: int | None, model: Config = model) -> tuple[float, int]:
            rate, parameters, _ = self._measure_cost(model, tokens)
            return rate, parameters if trained is None else trained

        if budget and budget[0] == "flops" and arm.pretrain:
            tokens = max(1, round(arm.times * budget[1] / rate))
            config = {**config, "train": {**config["train"], "tokens": tokens}}
        if arm.checkpoint is not None:
            model = open_source(arm.checkpoint, plugins=self.plugins).config
        all_points = {
            name: [self._compose_finetuning(arm, name, task, point, model) for point in points]
            for name, task in self.study.tasks.items()
        }
        tuned = {name: [each for each, _ in pairs] for name, pairs in all_points.items()}
        work = {name: [own for _, own in pairs] for name, pairs in all_points.items()}
        inject = self._compose_injection(arm, model)
        by_words = arm.pretrain and config["train"].get("words")
        ratio = self._find_ratio(config) if by_words else None
        return ComposedArm(arm, config, inject, tuned, work, evals, count, ratio, measured)

    def _compose_pretraining(self, arm: Arm) -> Config:
        """Validation is on all held-out rows, since fewer would be other text under another
        tokenizer.
        """
        data = spell_changes("data", self.study.data, thaw(groups.Data()))
        kind, amount = self.study.budget or ("steps", 1)
        amount *= arm.times
        length = {
            "minutes": f"train.minutes={amount}",
            "flops": "train.tokens=1",  # until its cost is known
        }.get(kind, f"train.{kind}={max(1, round(amount))}")
        shared = ["eval.rows=null", *self.study.pretrain, *data]
        decided = self._decide(arm, shared) if kind == "minutes" else []
        words = [*decided, *shared, length, *arm.overrides]
        # the file of a study says how to read text; the command line must not contradict tokens
        command = any(word.startswith("pretrain.overrides=") for word in self.given.overrides)
        typed = [*(self.study.pretrain if command else ()), *data, *arm.overrides]
        config = self.configs.compose_pretraining(arm.recipe, words, typed=typed)
        if config["init"]:  # its jobs name the tokenizer and the size of that model
            config = self.configs.adopt(arm.recipe, words)
        for error in find_missing_text(config["data"]):
            raise error
        lengths = tuple(f"train.{name}=" for name in groups.LENGTHS)
        own = [word for word in arm.overrides if word.lstrip("+").startswith(lengths)]
        if own and arm.pretrain:
            key, _, value = own[0].partition("=")
            fix = f"budget.{kind}=..., or where length is compared, times: 2 in the arm"
            raise ConfigError(key, value, "the budget is the same for all arms", fix=fix)
        return config

    def _decide(self, arm: Arm, shared: Sequence[str]) -> list[str]:
        """The words that follow from the budget for the recipe of an arm. All arms of this recipe
        have the same words, so that they differ in nothing but their own settings, however long
        they run.
        """
        assert self.study.budget
        recipe, minutes = str(arm.recipe), self.study.budget[1]
        if recipe not in self.decisions:
            threads = max(1, count_processors() // self.processes)
            beside = [f"train.threads={threads}"] if self.processes > 1 else []
            words = [*shared, f"train.minutes={minutes}", *beside]
            if decision := self.configs.decide(recipe, words):
                self.decisions[recipe] = decision
        if recipe not in self.decisions:
            return []
        named = [OverrideWord(word, key_of(word), word) for word in arm.overrides]
        words = [
            word for word in self.decisions[recipe].words if not find_given(key_of(word), named)
        ]
        return [*words, NONE]

    def _measure_cost(
        self, config: Config, tokens: int | None = None
    ) -> tuple[float, int, frozenset[str]]:
        """Training FLOPs per token, parameters, and what validation measures; once a model.

        Args:
            tokens: The size of the vocabulary; None: as far as it is known before training.
        """
        norms = config["train"]["grad_norms"]
        stages = config["train"].get("stages")
        pairs = config["eval"]["minimal_pairs"] is not None
        node = {name: config[name] for name in _COSTLY}
        node |= {"norms": norms, "stages": stages, "pairs": pairs}
        key = json.dumps([node, tokens], sort_keys=True, default=str)
        if key not in self._costs:
            spec = spec_of("pretrain", config, self.given)
            outline = outline_pretraining(spec, vocab_size=tokens)
            report = estimate(spec, outline)
            rate = float(report["run"]["training FLOPs per token"])
            parameters = sum(report["parameters"].values())
            self._costs[key] = (
                rate,
                parameters,
                list_validation_metrics(
                    outline, token_targets(config, spec.plugins), grad_norms=norms, pairs=pairs
                ),
            )
        return self._costs[key]

    def _find_ratio(self, config: Config) -> WordRatio:
        """The tokens a word of a pretraining; once a text and tokenizer."""
        texts = {name: config[name] for name in ("data", "tokenizer", "format", "noise")}
        key = json.dumps(texts, sort_keys=True, default=str)
        if key not in self._ratios:
            self._ratios[key] = find_word_ratio(spec_of("pretrain", config, self.given))
        return self._ratios[key]

    def _count_parameters(self, checkpoint: str) -> int:
        """Parameters of a trained model, with its heads; arms may share one."""
        if checkpoint not in self._sizes:
            source = open_source(checkpoint, plugins=self.plugins)
            with without_weights():
                model = build_model(
                    source.config,
                    vocab_size=source.vocab_size,
                    vocab=source.vocab,
                    plugins=self.plugins,
                )
            self._sizes[checkpoint] = sum(parameter.numel() for parameter in model.parameters())
        return self._sizes[checkpoint]

    def _compose_injection(self, arm: Arm, model: Config) -> Config | None:
        """The injection of an arm, or None; `model`: the config of the model with new tokens."""
        if arm.inject is None:
            return None
        words = ("checkpoint=later", "out=later", *self.study.inject, *arm.inject)
        config = self.configs.compose("inject", words)
        for path in (config["words"], config["into"], config["word_vectors"].get("path")):
            if path is not None:
                existing(path)
        build_maker(config["word_vectors"], model, self.plugins)
        return config

    def _compose_finetuning(
        self, arm: Arm, name: str, task: StudyTask, point: Sequence[str], model: Config
    ) -> tuple[Config, tuple[float, int]]:
        """The config of a fine-tuning, and its FLOPs and updates, at most."""
        own = (*self.study.finetune, *task.overrides, *point, *arm.finetune)
        refuse_another_model(own, schema.OF_THE_MODEL, key="arms")
        config = self._compose_task(task, own)
        if name in self.tasks and config["task"]["path"] != self.tasks[name].splits.path:
            raise_all(find_missing_files(config))
        teacher = {"teacher": arm.teacher} if arm.teacher and config["distill"] else {}
        check_teacher(spec_of("finetune", config | teacher, self.given))
        bound = self.configs.max_length(model) if arm.checkpoint is None else None
        length = config["task"]["max_length"]
        if bound is not None and length > bound:
            path = f"finetune.tasks.{name}: task.max_length"
            allowed = f"at most {bound}, the longest row of the arm's pretraining"
            fix = f"finetune.overrides: [task.max_length={bound}]"
            raise ConfigError(path, length, allowed, fix=fix)
        # a teacher may be an arm, too
        alone = spec_of("finetune", config | {"distill": None, "teacher": None}, self.given)
        work = 0.0, 0
        with self._collect(f"arm '{arm.name}'", task=name):
            work = count_work(*outline_later(alone, model, self._read))
        return config, work

    def _compose_task(self, task: StudyTask, words: Sequence[str]) -> Config:
        task_words = spell_task(task.task, task.path, self.study.data.get("cache_dir"))
        return self.configs.compose("finetune", (*task_words, "checkpoint=null", *words))

    @contextlib.contextmanager
    def _collect(self, what: str, task: str | None = None) -> Iterator[None]:
        try:
            yield
        except PlmctlError as error:
            for each in flatten(error):
                told = str(name_maker(each, self.study.makers))
                tasks = self._wrong.setdefault(told, {}).setdefault(what, set())
                tasks |= set(self.study.tasks) if task is None else {task}

    def _name(self, where: Mapping[str, set[str]]) -> str:
        """`arm 'a' and arm 'b' on task 'c'`: a task is named where it is not so with all."""
        every, places = set(self.study.tasks), []
        for what, tasks in where.items():
            names = _join([f"task '{task}'" for task in sorted(tasks)])
            places.append(what if tasks >= every else f"{what} on {names}")
        return _join(places)


def _join(names: Sequence[str]) -> str:
    """`arm 'a'`, `arm 'b'` -> `arm 'a' and arm 'b'`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
