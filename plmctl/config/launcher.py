"""`launcher=slurm nodes=4`: the machines of a command or of its jobs. These words are no settings
of a run: the same run elsewhere has the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from plmctl.config.command import find_command
from plmctl.config.plugins import as_words
from plmctl.config.schema import hints
from plmctl.config.spec import OF_HYDRA, SHORT_LAUNCHER, Part, Provenance, Record
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, collect, nearest, raise_all
from plmctl.core.spelling import spell_line
from plmctl.core.values import Amount, Count, Whole, fit

# the launcher of Hydra that earlier versions used, and its settings
FORMER = "hydra/launcher=submitit"
FORMER_NAMES = {
    "timeout_min": "minutes",
    "gpus_per_node": "gpus",
    "cpus_per_task": "cpus",
    "mem_gb": "memory",
    "array_parallelism": "parallel",
    "signal_delay_s": "warning",
    "max_num_timeout": "timeouts",
}


@dataclass(frozen=True)
class Launcher(Record):
    # jobs of a cluster, or background jobs of this machine in the same way; the word launcher=slurm
    cluster: Literal["slurm", "local"] = "slurm"
    # machines of one run; also the word nodes=4; each job of a sweep or study has one
    nodes: Count = 1
    gpus: Whole = 0  # GPUs of each machine, one process each; 0: train.processes on CPUs
    cpus: Count | None = None  # processors of each machine; null: as the cluster has it
    memory: Amount | None = None  # GB of each machine; null: as the cluster has it
    minutes: Count = 1440  # length of a turn; a longer run is saved, and waits for the next one
    warning: Count = 120  # seconds before the end, in which the run is saved
    partition: str | None = None  # queue; null: that of the cluster
    account: str | None = None  # account that pays
    qos: str | None = None  # class of service
    constraint: str | None = None  # features of the machines
    parallel: Count | None = None  # jobs at the same time; null: 256 on a cluster, 1 here
    restarts: Whole = 3  # starts anew after a lost process, from the newest checkpoint
    timeouts: Whole = 100  # turns in which the minutes are not enough
    setup: tuple[str, ...] = ()  # lines of shell before the run: ["module load cuda"]
    # further parameters of sbatch: {mail-user: me@example.org}
    more: Mapping[str, Any] = Part({})


@dataclass(frozen=True)
class Launching(Record):
    """The settings as help lists them."""

    launcher: Launcher = Launcher()


def take_launcher(given: Provenance) -> Provenance:
    """A command line whose words about the launcher stand apart.

    Raises:
        UsageError: They are those of an earlier version, or no launcher is named.
    """
    _refuse_former(given)
    named = any(word.startswith("launcher=") for word in given.overrides)
    ours = tuple(word for word in given.overrides if _is_ours(word, named=named))
    if not ours:
        return given
    if not named:
        raise UsageError(f"{ours[0]}: of which launcher?\n  fix: launcher=slurm {ours[0]}")
    read_launcher(ours)
    others = tuple(word for word in given.overrides if word not in ours)
    return replace(given, overrides=others, launcher=(*ours, *given.launcher))


def set_launcher_apart(given: Provenance) -> Provenance:
    """A command line whose words about a launcher of Hydra stand apart: they are of its jobs."""
    words = tuple(word for word in given.overrides if word.startswith(OF_HYDRA))
    others = tuple(word for word in given.overrides if word not in words)
    return replace(given, overrides=others, launcher=words or given.launcher)


def read_launcher(words: Sequence[str]) -> Launcher | None:
    """The launcher in its words; None for the words of Hydra's launchers, and without any.

    Raises:
        UsageError: All that is wrong with them.
    """
    ours = [word for word in words if _is_ours(word, named=True)]
    if not ours:
        return None
    kinds, values = hints(Launcher), dict[str, Any]()
    problems: list[PlmctlError] = []
    for word in ours:
        key, _, text = word.partition("=")
        name = SHORT_LAUNCHER.get(key, key).partition(".")[2]
        with collect(problems):
            values[name] = _fit(key, name, text, kinds)
    raise_all(problems)
    launcher = Launcher(**values)
    if launcher.cluster == "local" and launcher.nodes > 1:
        fix = "nodes=1, or launcher=slurm"
        raise ConfigError("nodes", launcher.nodes, "1 with launcher=local", fix=fix)
    return launcher


def _is_ours(word: str, *, named: bool) -> bool:
    key = word.partition("=")[0]
    return key == "launcher" or key.startswith("launcher.") or (named and key in SHORT_LAUNCHER)


def _fit(key: str, name: str, text: str, kinds: Mapping[str, Any]) -> Any:
    import yaml

    if name not in kinds:
        near = nearest(name, kinds)
        allowed = f"there is no such setting of a launcher{near}; there are {', '.join(kinds)}"
        raise ConfigError(key, ..., allowed, fix="plmctl help launcher")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    try:
        fitted = fit(value, kinds[name])
    except ValueError as error:
        raise ConfigError(key, value, str(error), fix=f"plmctl help launcher.{name}") from None
    return tuple(fitted) if isinstance(fitted, list) else fitted


def _refuse_former(given: Provenance) -> None:
    """Raise UsageError for the launcher of Hydra that is gone, with the line of today."""
    words = (*given.overrides, *given.launcher)
    former = next((word for word in words if word.startswith(FORMER)), "")
    if not former:
        return
    cluster = "local" if former.endswith("local") else "slurm"
    recipe = [given.recipe] if given.recipe else []
    several = [] if find_command(given.verb, given.plugins).starts_jobs else ["-m"]
    rest = [word for word in words if not word.startswith(OF_HYDRA)]
    new = [f"launcher={cluster}", *_translate(words)]
    own = as_words(given.plugins, given.config_dirs)
    line = spell_line(*given.command.split(), *recipe, *several, *rest, *new, *own)
    raise UsageError(f"{former}: plmctl submits its jobs itself\n  fix: {line}")


def _translate(words: Sequence[str]) -> Iterator[str]:
    """The settings of the former launcher as ours."""
    known = hints(Launcher)
    for word in words:
        if not word.startswith("hydra.launcher."):
            continue
        key, _, value = word.removeprefix("hydra.launcher.").partition("=")
        name = FORMER_NAMES.get(key, key)
        if name == "submitit_folder":
            continue
        yield f"launcher.{name}={value}" if name in known else f"launcher.more={{{key}: {value}}}"
