"""From a point to the config of an ordinary run, its costs and its metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from plmctl.config.groups import LENGTHS
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError
from plmctl.jobs.configs import Configs, find_missing_text
from plmctl.jobs.job import Config
from plmctl.runs.prospects import Prospects, foresee_finetuning, foresee_pretraining

# settings that change neither a cost nor the names of metrics
_FREE = ("optim", "schedule", "seed", "head_seed", "run", "recipe", "eval")
_LONG = ("batch_size", "share", "least_steps", *LENGTHS)  # settings of train that decide its length


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
        """The facts about a run before it begins, found once for runs of the same costs."""
        counted = {name: node for name, node in config.items() if name not in _FREE}
        length = {name: config["train"][name] for name in _LONG}
        key = json.dumps([{**counted, "train": length}, self.timed], sort_keys=True, default=str)
        if key not in self._known:
            known = foresee_finetuning if self.command == "finetune" else foresee_pretraining
            self._known[key] = known(spec_of(self.command, config, self.given), timed=self.timed)
        return self._known[key]


def refuse_no_length(config: Config) -> None:
    """ConfigError for a pretraining whose number of updates nothing says."""
    if config["train"]["steps"] is None:
        allowed = "must be set: a search counts in updates"
        fix = "individual.overrides=[...,train.steps=300]"
        raise ConfigError("individual: train.steps", ..., allowed, fix=fix)
