"""From a point to the config of an ordinary run, its costs and its metrics."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from plmctl.config.groups import LENGTHS
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance, key_of
from plmctl.core.errors import ConfigError, PlmctlError, flatten
from plmctl.core.spelling import spell_setting
from plmctl.jobs.command import PAUSE
from plmctl.jobs.configs import Configs, find_missing_text
from plmctl.jobs.job import Config, write_line
from plmctl.runs.prospects import Prospects, foresee_finetuning, foresee_pretraining

# settings that change neither a cost nor the names of metrics
_FREE = ("optim", "schedule", "seed", "head_seed", "run", "recipe", "eval")
_LASTING = ("train", "task")  # parts of the config that decide the number of updates
# settings of an individual that a search sets, and the settings of a search for them
_TAKEN = {"seed": "seeds=[0,1,2]", "run.dir": "out=ANOTHER", PAUSE: "strategy=asha"}
# settings of train that decide its length
_LONG = ("batch_size", "batch_tokens", "share", "least_steps", *LENGTHS)


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
        self._lengths: dict[tuple[str, ...], int | None] = {}

    def spell(self, words: Sequence[str]) -> str:
        """The command line of a run with further words."""
        recipe = [self.recipe] if self.recipe else []
        return write_line(
            *(self.command, *recipe, *self.words, *words),
            config_dirs=self.given.config_dirs,
            plugins=self.given.plugins,
        )

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
        length = {name: config["train"].get(name) for name in _LONG}
        key = json.dumps([{**counted, "train": length}, self.timed], sort_keys=True, default=str)
        if key not in self._known:
            known = foresee_finetuning if self.command == "finetune" else foresee_pretraining
            self._known[key] = known(spec_of(self.command, config, self.given), timed=self.timed)
        return self._known[key]

    def count_updates(self, words: Sequence[str]) -> int | None:
        """The updates of a run with further words; None where no word may change the length, or the
        run cannot be composed.
        """
        found = tuple(word for word in words if key_of(word).partition(".")[0] in _LASTING)
        if found and found not in self._lengths:
            try:
                self._lengths[found] = self.foresee(self.compose(found)).updates
            except PlmctlError:
                self._lengths[found] = None
        return self._lengths.get(found)


def refuse_taken(words: Sequence[str], where: str) -> None:
    """ConfigError for a setting that a search sets in each individual."""
    for word in words:
        if (key := key_of(word)) in _TAKEN:
            allowed = f"must not set {key}: a search sets it in each individual"
            fix = f"{_TAKEN[key]}  # and leave {key} out of {where}"
            raise ConfigError(where, word, allowed, fix=fix)


def place_errors(error: PlmctlError, lists: Mapping[str, Sequence[str]]) -> list[PlmctlError]:
    """The errors of an individual, those of a word of a search with a fix of that search.

    Args:
        lists: {a setting of the search: its words}.
    """
    return [_place(each, lists) for each in flatten(error)]


def _place(error: PlmctlError, lists: Mapping[str, Sequence[str]]) -> PlmctlError:
    if not isinstance(error, ConfigError):
        return error
    for where, words in lists.items():
        for number, word in enumerate(words):
            if key_of(word) == error.path and (own := _mend(word, error.fix)):
                fixed = [*words[:number], *own, *words[number + 1 :]]
                fix = spell_setting(where, fixed)
                return ConfigError(where, word, error.allowed, fix=fix)
    return error


def _mend(word: str, fix: str) -> list[str]:
    """The words instead of a wrong one; none where the fix is no settings, or changes nothing."""
    try:
        fixed = shlex.split(fix, comments=True)
    except ValueError:
        return []
    if not all("=" in each for each in fixed) or fixed == [word]:
        return []
    values = word.partition("=")[2]
    return [
        f"{key_of(each)}={values}" if len(fixed) == 1 and key_of(each) != key_of(word) else each
        for each in fixed
    ]


def refuse_no_length(config: Config) -> None:
    """ConfigError for a pretraining whose number of updates nothing says."""
    if config["train"]["steps"] is None:
        allowed = "must be set: a search counts in updates"
        fix = "individual.overrides=[...,train.steps=300]"
        raise ConfigError("individual: train.steps", ..., allowed, fix=fix)
