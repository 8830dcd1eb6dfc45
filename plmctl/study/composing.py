"""Each arm's configs as plain data, composed and checked before anything runs; all that is wrong
is raised together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from plmctl.commands.dry_run import estimate
from plmctl.commands.fitted import OF_THE_MODEL
from plmctl.commands.teaching import check_teacher
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError, PlmctlError, UsageError, raise_all
from plmctl.data.shards import is_tokens
from plmctl.data.tokenizing import cache_folder
from plmctl.nn.last_maps import last_maps
from plmctl.run import schema
from plmctl.run.assemble import build_model, known_to_objectives, settled
from plmctl.run.build import build, entry, plain
from plmctl.run.compose import Flags, composed
from plmctl.run.contract import TINY, check_contract
from plmctl.run.corpus import check_data, check_updates
from plmctl.run.decided import refuse_decided
from plmctl.run.grafting import begun
from plmctl.run.headers import naming_source
from plmctl.run.loading import refuse_another_model
from plmctl.run.overrides import spelled
from plmctl.run.tokenize import sources
from plmctl.study.study import BUILTIN, Arm, Labelled, Study
from plmctl.tasks.base import Task
from plmctl.tasks.inference import check_splits
from plmctl.text.corpus import write_task

Config = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Composed:
    """What an arm is, whatever its seed."""

    arm: Arm
    pretrain: Config  # of an arm without pretraining: whose model it is
    tuned: Mapping[str, Sequence[Config]]  # task -> one for each point of the grid
    evals: Mapping[str, Config]
    flops_per_token: float
    parameters: int
    measured: frozenset[str]  # names of the metrics that validation of its pretraining gives


class Composer:
    """Composes arms; `tasks` are the built tasks, by name."""

    def __init__(self, study: Study, flags: Flags) -> None:
        self.study, self.flags = study, flags
        self.tasks: dict[str, Task] = {}
        self._errors: list[UsageError] = []
        self._known: dict[tuple[str, ...], Any] = {}  # compositions
        self._looked: dict[str, tuple[float, int, frozenset[str]]] = {}
        self._made: dict[tuple[str, ...], Config | None] = {}

    def arms(self) -> dict[str, Composed]:
        """Every arm; raises what is wrong with any of them, or with what they share."""
        self._check_tasks()
        evals = {name: self._eval(name) for name in self.study.evals}
        found = {name: self._arm(arm, evals) for name, arm in self.study.arms.items()}
        raise_all(list({str(error): error for error in self._errors}.values()))
        return {name: each for name, each in found.items() if each is not None}

    def _arm(self, arm: Arm, evals: Mapping[str, Config]) -> Composed | None:
        with self._collected(f"arm '{arm.name}'"):
            config = self._pretrain(arm)
            built = begun(
                OmegaConf.create(config), [*self.study.pretrain, *arm.overrides], self.flags.plugins
            )
            model = {str(key): value for key, value in plain(built).items()}
            rate, parameters, measured = self._look(model)
            if self.study.budget and self.study.budget[0] == "flops" and arm.pretrain:
                config["train"]["tokens"] = max(1, round(arm.times * self.study.budget[1] / rate))
            tuned = {
                name: [
                    self._tuned(arm, name, task, setting, model) for setting in self.study.settings
                ]
                for name, task in self.study.tasks.items()
            }
            return Composed(arm, config, tuned, evals, rate, parameters, measured)
        return None

    def _pretrain(self, arm: Arm) -> Config:
        """Validation is on all held-out rows, since fewer would be other text under another
        tokenizer.
        """
        given = dataclasses.asdict(schema.Data())
        data = [
            f"data.{name}={spelled(value)}"
            for name, value in self.study.data.items()
            if value != given[name]
        ]
        kind, amount = self.study.budget or ("steps", 1)
        amount = arm.times * amount if kind == "minutes" else max(1, round(arm.times * amount))
        budget = f"train.{'tokens' if kind == 'flops' else kind}={1 if kind == 'flops' else amount}"
        words = ["eval.rows=null", *self.study.pretrain, *data, budget, *arm.overrides]
        made = composed(
            "pretrain",
            arm.recipe,
            words,
            config_dirs=self.flags.config_dirs,
            plugins=self.flags.plugins,
            known=self._known,
        )
        cfg = made.cfg
        check_data(cfg)
        refuse_decided(cfg, [*self._told(), *data, *arm.overrides], self.flags.plugins)
        check_updates(cfg, processes=cfg.train.processes, plugins=self.flags.plugins)
        check_contract(cfg, self.flags.plugins, self.flags.config_dirs)
        _check_files(plain(cfg.data))
        told = [
            word
            for word in arm.overrides
            if word.lstrip("+").startswith(tuple(f"train.{x}=" for x in schema.LENGTHS))
        ]
        if told and arm.pretrain:
            key, _, value = told[0].partition("=")
            fix = f"budget.{kind}=..., or where length is compared, times: 2 in the arm"
            raise ConfigError(key, value, "the budget is the same for all arms", fix=fix)
        return {str(key): value for key, value in plain(cfg).items()}

    def _told(self) -> list[str]:
        """The words of all pretrainings where they stand on the command line, not in the file of
        the study.
        """
        given = any(word.startswith("pretrain.overrides=") for word in self.flags.overrides)
        return list(self.study.pretrain) if given else []

    def _look(self, config: Config) -> tuple[float, int, frozenset[str]]:
        """Training FLOPs per token, parameters, and what validation measures; once for each
        model.
        """
        nodes = (
            "size",
            "model",
            "pattern",
            "position",
            "heads",
            "objective",
            "tokenizer",
            "format",
            "noise",
            "data",
            "init",
        )
        known = {name: config[name] for name in (*nodes, "distill", "teacher")} | {
            "norms": config["train"]["grad_norms"]
        }
        key = json.dumps(known, sort_keys=True, default=str)
        if key not in self._looked:
            report = estimate(OmegaConf.create(config), self.flags)
            rate, parameters = (
                float(report["run"]["training FLOPs per token"]),
                sum(report["parameters"].values()),
            )
            self._looked[key] = (rate, parameters, produced(config, self.flags.plugins))
        return self._looked[key]

    def _tuned(
        self, arm: Arm, name: str, task: Labelled, setting: Sequence[str], pretrain: Config
    ) -> Config:
        words = (
            *self._task_words(name, task),
            *self.study.tuning,
            *task.overrides,
            *setting,
            *arm.finetune,
        )
        refuse_another_model(
            [*self.study.tuning, *task.overrides, *setting, *arm.finetune], OF_THE_MODEL, key="arms"
        )
        made = self._once("finetune", words)
        taught = {"teacher": arm.teacher} if arm.teacher and made["distill"] else {}
        check_teacher(OmegaConf.create(made | taught), self.flags.plugins)
        # null: it has learned no places
        bound = settled(pretrain, plugins=self.flags.plugins)["position"].get("max_length")
        if bound is not None and made["task"]["max_length"] > bound and arm.checkpoint is None:
            path, value = f"finetune.tasks.{name}: task.max_length", made["task"]["max_length"]
            allowed = f"at most {bound}, the longest row of the arm's pretraining"
            raise ConfigError(
                path, value, allowed, fix=f"finetune.overrides: [task.max_length={bound}]"
            )
        return made

    def _eval(self, name: str) -> Config:
        with self._collected(f"eval.{name}"):
            return self._once("eval", ("checkpoint=later", *self.study.evals[name].overrides))
        return {}

    def _once(self, verb: str, words: tuple[str, ...]) -> Config:
        if (verb, *words) not in self._made:
            cfg = composed(
                verb,
                None,
                words,
                config_dirs=self.flags.config_dirs,
                plugins=self.flags.plugins,
                known=self._known,
            ).cfg
            self._made[verb, *words] = {str(key): value for key, value in plain(cfg).items()}
        return json.loads(json.dumps(self._made[verb, *words]))

    def _check_tasks(self) -> None:
        """Files, labels, and a dev split to choose by."""
        for name, node in self.study.tasks.items():
            with (
                self._collected(f"finetune.tasks.{name}"),
                naming_source("task", node.task, self.flags.config_dirs),
            ):
                config = self._once(
                    "finetune", (*self._task_words(name, node), *self.study.tuning, *node.overrides)
                )
                task = build(config["task"], {"pooling": "first"}, self.flags.plugins, path="task")
                if not isinstance(task, Task):
                    raise ConfigError(
                        "task", node.task, "has nothing to train; it is for the study's eval"
                    )
                if "dev" not in check_splits(task):
                    raise DataError(
                        "has no dev split, by which settings are chosen", file=node.path
                    )
                self.tasks[name] = task

    def _task_words(self, name: str, node: Labelled) -> tuple[str, ...]:
        path = builtin_task(self.study.data.get("cache_dir")) if node.path == BUILTIN else node.path
        return f"task={node.task}", f"task.path={spelled(path)}", "checkpoint=null"

    @contextlib.contextmanager
    def _collected(self, what: str) -> Iterator[None]:
        try:
            yield
        except PlmctlError as error:
            self._errors.append(UsageError(f"{what}: {error}"))


def builtin_task(cache_dir: str | None = None) -> Path:
    """The folder of the labelled docstrings of this Python, written once into the user's cache."""
    folder = cache_folder(cache_dir) / f"docstrings-{platform.python_version()}"
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        write_task(partial)
        with contextlib.suppress(OSError):  # somebody else was faster
            partial.rename(folder)
    return folder


def produced(config: Config, plugins: Sequence[str] = ()) -> frozenset[str]:
    """The validation metrics of a pretraining config: losses, accuracies, and bits per byte of
    targets made of tokens.
    """
    with torch.device("meta"):
        model = build_model(config, vocab_size=TINY.size, vocab=TINY, plugins=plugins)
        given = {"vocab": TINY, **known_to_objectives(model, vocab_size=TINY.size)}
        asked = (config["objective"] or {}).items()
        parts = [
            build(entry(node)[0], given, plugins, path=f"objective.{name}") for name, node in asked
        ]
    nothing = Batch(torch.empty(0), {}, counts=defaultdict(int))
    terms = {name for part in parts for name in part.counts(nothing)}
    of_tokens = {name for part in parts for name in terms if f"targets.{name}" in part.needs}
    each = {f"{kind}/{name}" for name in terms for kind in ("loss", "acc")}
    each |= (
        {f"start/grad_norm/{name}" for name in last_maps(model)}
        if config["train"]["grad_norms"]
        else set()
    )
    return frozenset({"loss", *each, *(f"bits_per_byte/{name}" for name in of_tokens)})


def _check_files(data: Config) -> None:
    """What the text is read from is there."""
    if not (
        data["mixture"]
        or data["sources"]
        or is_tokens(data["path"])
        or str(data["path"]).startswith("hf:")
    ):
        for source in sources(data, data["path"]):
            if source is not None:
                source.files()
