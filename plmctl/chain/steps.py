"""A step of a chain: one ordinary command, named by all that decides its result."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.run.headers import Header
from plmctl.run.plugins import as_words
from plmctl.study.content import JOB, key

RUN = "run"  # in the folder of a step: what the command makes
Config = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One ordinary command; in `words` and `config`, "job:<name>" stands for the run of the step
    of that `folder`.
    """

    name: str
    verb: str
    recipe: str | None
    words: tuple[str, ...]
    config: Config
    plugins: tuple[str, ...]
    config_dirs: tuple[str, ...]

    @functools.cached_property
    def folder(self) -> str:
        return f"{self.name}-{key(self.verb, self.config)[:8]}"

    @property
    def run(self) -> str:
        """What other steps call its run."""
        return JOB + self.folder

    def line(self, folders: Mapping[str, str]) -> str:
        """The step as one would type it; `folders`: where the run of each step is."""
        where = "run.dir" if self.verb in ("pretrain", "finetune") else "out"
        said = [
            self.verb,
            *([self.recipe] if self.recipe else []),
            *(filled(word, folders) for word in self.words),
        ]
        own = [word for each in self.config_dirs for word in ("--config-dir", each)]
        return shlex.join(
            ["plmctl", *said, f"{where}={folders[self.folder]}", *own, *as_words(self.plugins)]
        )


@dataclass(frozen=True)
class Chain:
    recipe: str
    header: Header
    words: tuple[str, ...]
    steps: tuple[Step, ...]

    def folders(self, out: Path) -> dict[str, str]:
        return {step.folder: str(out / step.folder / RUN) for step in self.steps}


def filled(word: str, folders: Mapping[str, str]) -> str:
    """A word with the folders of runs in the place of their names."""
    for name, place in folders.items():
        word = word.replace(JOB + name, place)
    return word
