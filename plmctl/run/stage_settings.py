"""What holds in each stage of a pretraining, and whether its rows can be shared out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plmctl.core.errors import ConfigError, PlmctlError, collect, nearest, raise_all
from plmctl.run.build import build, check_parts, plain
from plmctl.run.make_spec import make_spec
from plmctl.training.stages import check_shares

# of a stage; every other key is an override of one of STAGE_OVERRIDES
STAGE_KEYS = ("share", "rate", "trainable", "frozen")

# groups of settings, and settings, that change no shape of the model and no state of the optimizer
STAGE_OVERRIDES = (
    "format",
    "noise",
    "pattern",
    "schedule",
    "train.batch_size",
    "train.micro_batch_size",
)


def stage_config(cfg: Any, number: int) -> Any:
    """The config that holds in a stage: `{share: 0.1, format.max_length: 512}` changes what it
    names.
    """
    staged = cfg
    for key, value in plain(cfg.train.stages[number]).items() if cfg.train.stages else ():
        if key in STAGE_KEYS:
            continue
        if not any(names(key, of) for of in STAGE_OVERRIDES):
            allowed = (*STAGE_KEYS, *STAGE_OVERRIDES, *(f"format.{name}" for name in cfg.format))
            settable = ", ".join(
                (*STAGE_KEYS, *(of if "." in of else f"{of}.*" for of in STAGE_OVERRIDES))
            )
            raise ConfigError(
                f"train.stages.{number}.{key}",
                value,
                f"a stage may set {settable}{nearest(key, allowed)}",
            )
        staged = staged.with_value(key, value)
    return staged


def names(key: str, group: str) -> bool:
    """Whether a dotted key is `group`, or something in it."""
    return f"{key}.".startswith(f"{group}.")


def sets(cfg: Any, number: int, group: str) -> bool:
    """Whether a stage sets anything of `group`."""
    stages = plain(cfg.train.stages)
    return bool(stages) and any(names(key, group) for key in stages[number])


def check_updates(cfg: Any, processes: int, plugins: Sequence[str] = ()) -> None:
    """Every stage as far as numbers alone can tell, before any data are read; all mistakes are
    raised together.
    """
    errors: list[PlmctlError] = []
    for number in range(len(cfg.train.stages) or 1):
        with collect(errors):
            staged = stage_config(cfg, number)
            raise_all(_misfits(cfg, staged, number, plugins))
            _check_rate(cfg, number)
            micro_batch_rows(staged, processes)
    raise_all(errors)
    check_shares([stage.get("share", 1.0) for stage in cfg.train.stages or [{}]])
    raise_all(_other_pattern_at_the_end(cfg))


def _check_rate(cfg: Any, number: int) -> None:
    """Raise ConfigError for a factor of learning rates that is none."""
    rate = plain(cfg.train.stages[number]).get("rate", 1) if cfg.train.stages else 1
    if isinstance(rate, bool) or not isinstance(rate, int | float) or rate < 0:
        where, allowed = f"train.stages.{number}.rate", "a factor of the run's learning rates"
        raise ConfigError(where, rate, f"0 or more, {allowed}", fix=f"{where}=0.5")


def _other_pattern_at_the_end(cfg: Any) -> list[ConfigError]:
    """The run's pattern is that of its last stage: a checkpoint is read with it."""
    last = len(cfg.train.stages) - 1
    before = any(sets(cfg, number, "pattern") for number in range(last))
    return [
        ConfigError(
            f"train.stages.{last}.{key}",
            value,
            "none in the last stage: it has the pattern of the run, with which the model is read",
            fix=f"{key}={value} of the run, and here nothing",
        )
        for key, value in (plain(cfg.train.stages[last]).items() if last >= 0 else ())
        if names(key, "pattern") and (before or value != cfg.select(key))
    ]


def _misfits(cfg: Any, staged: Any, number: int, plugins: Sequence[str]) -> list[ConfigError]:
    """Settings of a stage that do not fit what they are set in, under the names they have in
    `train.stages`.
    """
    own = plain(cfg.train.stages[number]) if cfg.train.stages else {}
    content = {
        "train": plain(staged.train),
        "format": plain(staged.format),
        "noise": plain(staged.noise) or {},
        "pattern": plain(staged.pattern),
        "schedule": plain(staged.schedule),
    }
    errors: list[PlmctlError] = [
        *make_spec("pretrain", {"train": content.pop("train")})[1],
        *check_parts(content, plugins),
    ]
    if sets(cfg, number, "schedule"):
        with collect(errors):
            build(content["schedule"], plugins=plugins, path="schedule")
    return [
        ConfigError(
            f"train.stages.{number}.{error.path}", error.value, error.allowed, fix=error.fix
        )
        for error in errors
        if isinstance(error, ConfigError) and error.path in own
    ]


def micro_batch_rows(cfg: Any, processes: int) -> int:
    """The rows of one backward pass of each process, which must share out an update evenly."""
    rows = cfg.train.batch_size
    if rows % processes:
        fix = f"train.batch_size={max(1, round(rows / processes)) * processes}"
        raise ConfigError(
            "train.batch_size", rows, f"must be a multiple of the {processes} processes", fix=fix
        )
    share = rows // processes
    micro = cfg.train.micro_batch_size or share
    if share % micro:
        fix = f"train.micro_batch_size={max(n for n in range(1, micro + 1) if share % n == 0)}"
        allowed = f"must divide the {share} rows that a process has in an update"
        raise ConfigError("train.micro_batch_size", micro, allowed, fix=fix)
    return micro
