"""A job: one ordinary command, whose config names the jobs that have to be done before."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.config.plugins import as_words
from plmctl.config.spec import Provenance
from plmctl.config.walks import scalars_in
from plmctl.core.terminal import remark

REFERENCE = "job:"  # in configs and words, "job:<name>" stands for the run of the job <name>
RUN = "run"  # in the folder of a job: what the command makes
# the settings that say where a command writes; those of other commands are called `out`
RUN_SETTINGS = {"pretrain": "run.dir", "finetune": "run.dir"}
COMMANDS = {"label": "data label"}  # the command as typed, where it is not the verb

Config = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One run of an ordinary command.

    Args:
        name: its folder, and what others call its run: "job:<name>".
        verb: the command, "pretrain".
        label: its name for people.
        config: the composed config, which decides the result.
        words: the settings of the command line that composes to `config`.
        keep: whether its checkpoints stay when it is done, even if no job reads them.
    """

    name: str
    verb: str
    label: str
    config: Config
    recipe: str | None = None
    words: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    config_dirs: tuple[str, ...] = ()
    keep: bool = True

    @functools.cached_property
    def needs(self) -> tuple[str, ...]:
        """The jobs whose runs its config names, in the order of the config."""
        texts = (value for _, value in scalars_in(self.config) if isinstance(value, str))
        names = (text.removeprefix(REFERENCE) for text in texts if text.startswith(REFERENCE))
        return tuple(dict.fromkeys(names))

    @property
    def reference(self) -> str:
        """The word that stands for its run in the configs and words of other jobs."""
        return REFERENCE + self.name

    def line(self, runs: Mapping[str, str]) -> str:
        """The job as one would type it; `runs`: {job: the folder of its run}."""
        command = COMMANDS.get(self.verb, self.verb).split()
        words = [*command, *([self.recipe] if self.recipe else []), *resolve(self.words, runs)]
        words += [f"{RUN_SETTINGS.get(self.verb, 'out')}={runs[self.name]}"]
        return write_line(*words, config_dirs=self.config_dirs, plugins=self.plugins)


def without_seed(label: str) -> str:
    """The common label of jobs that differ in their seed alone."""
    return re.sub(r"[, ]*\bseed \d+", "", label)


def write_line(*words: str, config_dirs: Iterable[str], plugins: Sequence[str]) -> str:
    """A command line of plmctl as one would type it."""
    return shlex.join(["plmctl", *words, *as_words(plugins, config_dirs)])


def remark_next(what: str, *words: str, given: Provenance) -> None:
    """Say that something has ended before its time, and the command line that goes on with it."""
    line = write_line(*words, config_dirs=given.config_dirs, plugins=given.plugins)
    remark(f"{what}; what is finished stays so. To go on:\n  {line}")


def locate_runs(jobs: Mapping[str, Job], folder: Path) -> dict[str, str]:
    """{job: the folder of its run} where the folders of the jobs lie in `folder`."""
    return {name: str(folder / name / RUN) for name in jobs}


def close_over(names: Iterable[str], needs: Callable[[str], Iterable[str]]) -> set[str]:
    """`names` and all that they need, directly or through others."""
    closed, waiting = set[str](), list(names)
    while waiting:
        closed.add(name := waiting.pop())
        waiting += set(needs(name)) - closed
    return closed


def resolve(value: Any, runs: Mapping[str, str]) -> Any:
    """A config or words with folders of runs for the references to them."""
    if isinstance(value, dict):
        return {name: resolve(item, runs) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, runs) for item in value]
    if not isinstance(value, str) or REFERENCE not in value:
        return value
    if value.startswith(REFERENCE):
        return runs[value.removeprefix(REFERENCE)]
    for name, run in runs.items():  # in a word: "checkpoint=job:<name>"
        value = value.replace(REFERENCE + name, run)
    return value
