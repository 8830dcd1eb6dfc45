"""The configs of jobs, composed and checked before the first one runs, each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from plmctl.artifacts.assemble import settle_lengths
from plmctl.config.build import build
from plmctl.config.compose import composed
from plmctl.config.decision import Decision
from plmctl.config.headers import naming_source
from plmctl.config.schema import Pretrain
from plmctl.config.spec import Provenance, RunSpec, key_of, thaw
from plmctl.config.stage_settings import check_updates
from plmctl.config.text_checks import check_data, refuse_decided
from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.core.spelling import spell
from plmctl.data.shards import is_tokens
from plmctl.inputs.tokenize import find_sources
from plmctl.jobs.job import Config
from plmctl.runs.adapt import adapt
from plmctl.runs.check import check_machine
from plmctl.runs.contract.contract import check_contract
from plmctl.tasks.inference import check_splits
from plmctl.tasks.readers.builtin import BUILTIN, write_builtin_task
from plmctl.tasks.readers.files import existing
from plmctl.tasks.task import Task, as_task


class Configs:
    """Composes configs under the options of one command line; what is returned is shared."""

    def __init__(self, given: Provenance) -> None:
        self.given = given
        self._parts: dict[tuple[str, ...], bytes] = {}  # compositions of part files, serialised
        self._composed: dict[tuple[str | None, ...], tuple[Any, Config]] = {}

    def compose(self, verb: str, words: Sequence[str], recipe: str | None = None) -> Config:
        """The config of `plmctl <verb> [recipe] <words>`."""
        return self._compose(verb, recipe, words)[1]

    def compose_pretraining(
        self, recipe: str | None, words: Sequence[str], *, typed: Sequence[str] = ()
    ) -> Config:
        """The same of a pretraining, checked as far as it can be before any data are read.

        Args:
            recipe: its name or file.
            words: all settings.
            typed: The words that must not contradict the tokens that data.path may name.
        """
        cfg, config = self._compose("pretrain", recipe, words)
        check_data(cfg)
        if typed:
            refuse_decided(cfg, set(map(key_of, typed)), self.given.plugins)
        check_machine(cfg)
        check_updates(cfg, processes=cfg.train.processes, plugins=self.given.plugins)
        check_contract(cfg, self.given.plugins, self.given.config_dirs)
        return config

    def adopt(self, recipe: str | None, words: Sequence[str]) -> Config:
        """The config of a pretraining with all that the model of its `init` decides."""
        spec: Pretrain = self._compose("pretrain", recipe, words)[0]
        return thaw(adapt(spec))

    def decide(self, recipe: str | None, words: Sequence[str]) -> Decision | None:
        """The decision that follows from the minutes of `plmctl pretrain [recipe] <words>`."""
        spec: RunSpec = self._compose("pretrain", recipe, words)[0]
        return spec.provenance.decision

    def read_task(self, name: str, config: Config, given: Mapping[str, Any]) -> Task:
        """Build the task of a fine-tuning, and read all files that training needs.

        Args:
            name: The name of the task's part file.
            given: The facts about the model that tasks need.
        """
        with naming_source("task", name, self.given.config_dirs):
            task = as_task(build(config["task"], given, self.given.plugins, path="task"))
            if task is None:
                raise ConfigError("task", name, "has nothing to train; it is for plmctl eval")
            if not task.metrics:
                allowed = "one at least, by which the best checkpoint is chosen"
                raise ConfigError("task.metrics", [], allowed)
            if "dev" not in check_splits(task):
                raise AbsentData(
                    "has no dev split, by which settings and checkpoints are chosen",
                    file=config["task"]["path"],
                    fix="task.dev_share=0.1 among the settings of the task, or a dev file",
                )
        return task

    def max_length(self, model: Config) -> int | None:
        """The longest row that the model of a config has positions for; None: of any length."""
        return settle_lengths(model, plugins=self.given.plugins)["position"].get("max_length")

    def _compose(self, verb: str, recipe: str | None, words: Sequence[str]) -> tuple[Any, Config]:
        key = (verb, recipe, *words)
        if key not in self._composed:
            asked_for = replace(self.given, verb=verb, recipe=recipe, overrides=tuple(words))
            asked_for = replace(asked_for, within=True)
            spec = composed(asked_for, known=self._parts).spec
            self._composed[key] = spec, thaw(spec)
        return self._composed[key]


def spell_changes(slot: str, node: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """The words that make `node` of `default`, group `slot` of a config."""
    changed = [name for name in default if node.get(name) != default[name]]
    return [f"{slot}.{name}={spell(node[name])}" for name in changed]


def find_missing_text(data: Config) -> Iterator[DataError]:
    """An error for each missing text that a pretraining or an evaluation reads."""
    corpora = [*data.get("mixture", {}).values(), *data.get("sources", {}).values()]
    for node in corpora or [data]:
        path = node.get("path")
        nothing = path is None and node is not data  # a corpus that has no path of its own
        if nothing or is_tokens(path) or str(path).startswith("hf:"):
            continue
        try:
            for source in find_sources(data, path, target=node.get("target_path")):
                if source is not None:
                    source.files()
        except DataError as error:
            yield error


def is_tokenized_first(data: Config) -> bool:
    """Whether a job of its own tokenizes the text of a pretraining, for all jobs that read it.
    Tokens need none; for several texts pretraining stores the tokens itself, and for a stream
    nothing does.
    """
    several = any({"path", "mixture"} & set(node) for node in data["sources"].values())
    return not (data["mixture"] or several or data["streaming"] or is_tokens(data["path"]))


def find_missing_files(config: Config) -> Iterator[DataError]:
    """An error for each missing file of a task, and each missing text, that a fine-tuning or an
    evaluation names.
    """
    named = (config["task"] or {}).get("path")
    several = named.values() if isinstance(named, Mapping) else named
    for path in [*([several] if isinstance(several, str) else several or ()), config.get("input")]:
        try:
            if path is not None:
                existing(path)
        except DataError as error:
            yield error
    # fine-tuning reads other text only where there is no checkpoint
    if "input" in config and config["data"]["path"] is not None:
        yield from find_missing_text(config["data"])


def spell_task(name: str, path: Any, cache_dir: str | None = None) -> tuple[str, str]:
    """The words that choose a task and its files; "builtin": the docstrings of this Python."""
    files = write_builtin_task(cache_dir) if path == BUILTIN else path
    return f"task={name}", f"task.path={spell(files)}"
