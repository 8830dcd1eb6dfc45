"""From a point to the config of an ordinary run, its costs and its metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plmctl.artifacts.latency import measure_latency
from plmctl.config.glossary import token_targets
from plmctl.config.groups import LENGTHS
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance, thaw
from plmctl.core.errors import ConfigError
from plmctl.jobs.configs import Configs, find_missing_text
from plmctl.jobs.job import Config
from plmctl.runs.check import Outline, outline_pretraining
from plmctl.runs.estimate import count_row, estimate, estimate_task
from plmctl.runs.resolve import resolve_finetuning
from plmctl.runs.side_tasks import count_updates
from plmctl.study.composing import list_validation_metrics
from plmctl.study.study import Metric
from plmctl.tasks import inference

# settings that change neither a cost nor the names of metrics
_FREE = ("optim", "schedule", "seed", "head_seed", "run", "recipe", "eval")
_LONG = ("batch_size", "share", "least_steps", *LENGTHS)  # settings of train that decide its length


@dataclass(frozen=True)
class Prospects:
    """What is known of a run before it begins.

    Args:
        costs: Parameters, forward multiply-adds of a token (macs), training FLOPs of an update, and
            milliseconds of a row (latency) where they are measured.
        updates: The updates of the whole run; 0 where they are not known.
        metrics: {metric of its held-out data: whether lower is better}.
        first: The usual metric.
    """

    costs: Mapping[str, float]
    updates: int
    metrics: Mapping[str, bool]
    first: str


class Maker:
    """Makes configs and knows their costs.

    Args:
        command: pretrain or finetune.
        recipe: The recipe of a pretraining.
        words: The words of every individual.
        given: The options of the command line.
        timed: Whether the time of a row is measured.
    """

    def __init__(
        self, command: str, recipe: str | None, words: Sequence[str], given: Provenance
    ) -> None:
        self.command, self.recipe, self.words = command, recipe, tuple(words)
        self.given = replace(given, verb=command, recipe=None, overrides=())
        self.configs, self.timed = Configs(self.given), False
        self._known: dict[str, Prospects] = {}

    def compose(self, words: Sequence[str]) -> Config:
        """The config of a run with further words, checked as far as no data are read."""
        if self.command == "finetune":
            return self.configs.compose("finetune", (*self.words, *words))
        config = self.configs.compose_pretraining(self.recipe, (*self.words, *words))
        if config["init"]:
            config = self.configs.adopt(self.recipe, (*self.words, *words))
        for error in find_missing_text(config["data"]):
            raise error
        return config

    def foresee(self, config: Config) -> Prospects:
        """What is known of a run before it begins, measured once for runs that differ in nothing
        that decides it.
        """
        counted = {name: node for name, node in config.items() if name not in _FREE}
        length = {name: config["train"][name] for name in _LONG}
        key = json.dumps([{**counted, "train": length}, self.timed], sort_keys=True, default=str)
        if key not in self._known:
            spec = spec_of(self.command, config, self.given)
            known = self._foresee_task if self.command == "finetune" else self._foresee_text
            self._known[key] = known(spec)
        return self._known[key]

    def _foresee_text(self, spec: Any) -> Prospects:
        outline = outline_pretraining(spec)
        names = list_validation_metrics(
            outline, token_targets(thaw(spec), spec.plugins), grad_norms=spec.train.grad_norms
        )
        metrics = {name: Metric("pretrain", name).lower_is_better for name in sorted(names)}
        read, written, _ = count_row(spec)
        report = estimate(spec, outline)
        return self._sum_up(
            report, outline, (read, written), spec.train.steps or 0, metrics, "loss"
        )

    def _foresee_task(self, spec: Any) -> Prospects:
        spec, task, outline = resolve_finetuning(
            spec.replace({"run.dir": "."})  # no folder is made, and none is looked for
        )
        names = (*task.metrics, "loss")
        metrics = {name: not task.directions.larger(name) for name in names}
        updates = count_updates(
            spec, len(inference.take_share(task.read("train"), spec.train.share))
        )
        report = estimate_task(spec, outline, task, updates=updates)
        whole = report["run"]["updates"]
        return self._sum_up(
            report,
            outline,
            task.lengths.sides,
            whole if isinstance(whole, int) else 0,
            metrics,
            spec.train.best_metric or task.metrics[0],
        )

    def _sum_up(
        self,
        report: Mapping[str, Mapping[str, Any]],
        outline: Outline,
        lengths: tuple[int, int],
        updates: int,
        metrics: Mapping[str, bool],
        first: str,
    ) -> Prospects:
        run = report["run"]
        costs = {
            "parameters": float(sum(report["parameters"].values())),
            "macs": float(sum(report["macs_per_token"].values())),
            "flops": float(run["training FLOPs per token"] * run["tokens per update, at most"]),
        }
        if self.timed:
            costs["latency"] = measure_latency(outline.model, lengths)
        return Prospects(costs, updates, metrics, first)


def refuse_no_length(config: Config) -> None:
    """ConfigError for a pretraining whose number of updates nothing says."""
    if config["train"]["steps"] is None:
        allowed = "must be set: a search counts in updates"
        fix = "individual.overrides=[...,train.steps=300]"
        raise ConfigError("individual: train.steps", ..., allowed, fix=fix)
