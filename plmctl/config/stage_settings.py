"""The settings that hold in each stage of a pretraining, and whether its rows can be shared out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

from plmctl.config.build import build, check_parts, plain
from plmctl.config.make_spec import make_spec
from plmctl.config.recipes import load, part_files
from plmctl.config.stage_mistakes import at_stage, change_stage, is_in, spell_stages
from plmctl.config.walks import references_in
from plmctl.core.errors import (
    ConfigError,
    PlmctlError,
    collect,
    did_you_mean,
    find_alike,
    raise_all,
)
from plmctl.core.spelling import spell_setting
from plmctl.models.base import Model
from plmctl.training.processes.parallel import count_teams
from plmctl.training.stages import check_shares

# the keys of a stage; every other key is an override of one of STAGE_OVERRIDES
STAGE_KEYS = ("share", "rate", "trainable", "frozen", "losses", "refit")

# groups of settings, and settings, that change no shape of the model and no state of the optimizer
STAGE_OVERRIDES = (
    "format",
    "noise",
    "pattern",
    "schedule",
    "train.batch_size",
    "train.batch_tokens",
    "train.micro_batch_size",
)


# the parts among them
SLOTS = ("format", "noise", "pattern", "schedule")


def stage_config(spec: Any, number: int) -> Any:
    """The config that holds in a stage: `{share: 0.1, format.max_length: 512}` changes what it
    names.
    """
    staged = spec
    for key, value in plain(spec.train.stages[number]).items() if spec.train.stages else ():
        if key in STAGE_KEYS:
            continue
        if not any(is_in(key, of) for of in STAGE_OVERRIDES):
            raise _explain_key(spec, number, key, value)
        staged = staged.with_value(key, value)
        if key == "train.batch_size" and "train.batch_tokens" not in spec.train.stages[number]:
            staged = staged.with_value("train.batch_tokens", None)
    return staged


def _explain_key(spec: Any, number: int, key: str, value: Any) -> ConfigError:
    """A setting that no stage has of its own."""
    stages = plain(spec.train.stages)
    known = (*STAGE_KEYS, *STAGE_OVERRIDES, *(f"format.{name}" for name in spec.format))
    settable = ", ".join((*STAGE_KEYS, *(of if "." in of else f"{of}.*" for of in STAGE_OVERRIDES)))
    meant = find_alike(key, known, least=0.7)
    fix = change_stage(stages, number, dict.fromkeys(meant, value), without=[key])
    allowed = f"a stage may set {settable}{did_you_mean(meant)}"
    return ConfigError(f"train.stages.{number}.{key}", value, allowed, fix=fix)


def count_stages(spec: Any) -> int:
    """How many stages a run has: one, where none is set."""
    return len(spec.train.stages) or 1


def share_of(spec: Any, number: int) -> float:
    """The share of the budget that a stage has."""
    return float(spec.train.stages[number].get("share", 1.0)) if spec.train.stages else 1.0


@contextmanager
def stage_pattern(spec: Any, model: Model, number: int) -> Iterator[None]:
    """Inside, tokens see each other as in a stage; afterwards as in the run."""
    if not sets(spec, number, "pattern"):
        yield
        return
    of_stage, of_run = (
        build(each.pattern, plugins=spec.plugins, path="pattern")
        for each in (stage_config(spec, number), spec)
    )
    model.backbone.set_pattern(of_stage)
    try:
        yield
    finally:
        model.backbone.set_pattern(of_run)


def sets(spec: Any, number: int, group: str) -> bool:
    """Whether a stage sets anything of `group`."""
    stages = plain(spec.train.stages)
    return bool(stages) and any(is_in(key, group) for key in stages[number])


def check_updates(spec: Any, processes: int, plugins: Sequence[str] = ()) -> None:
    """Check every stage as far as numbers alone allow, before any data are read; all mistakes are
    raised together.
    """
    errors: list[PlmctlError] = []
    stages = plain(spec.train.stages)
    teams = count_teams(processes, spec.train.tensor_parallel)
    for number in range(len(stages) or 1):
        found: list[PlmctlError] = []
        with collect(found):
            if stages:
                raise_all([*_wrong_keys(stages[number]), *_absent_keys(spec, number)])
                raise_all(_misshapen(spec, number))
            staged = stage_config(spec, number)
            if stages:
                raise_all(_misfits(spec, staged, number, plugins))
            if staged.train.batch_tokens is None:
                micro_batch_rows(staged.train.batch_size, staged.train.micro_batch_size, teams)
        errors += [at_stage(error, stages, number) for error in found] if stages else found
    raise_all(errors)
    raise_all(_wrong_shares(stages))
    raise_all(_other_pattern_at_the_end(spec))


def _wrong_keys(stage: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Values of `STAGE_KEYS` that are none."""
    rate = stage.get("rate", 1)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or rate < 0:
        allowed = "0 or more, a factor of the run's learning rates"
        yield ConfigError("rate", rate, allowed, fix="rate=0.5")
    for key in ("trainable", "frozen", "losses", "refit"):
        names = stage.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            fix = f"{key}=[{names}]" if isinstance(names, str) else ""
            yield ConfigError(key, names, "must be a list, like [a,b]", fix=fix)


def _absent_keys(spec: Any, number: int) -> Iterator[ConfigError]:
    """Settings of a part that the run does not have."""
    stages = plain(spec.train.stages)
    own = stages[number]
    for key, value in own.items():
        above, _, name = key.rpartition(".")
        given = any(is_in(above, other) for other in own)  # by the stage itself
        if above.partition(".")[0] not in SLOTS or given:
            continue
        parent = plain(spec.select(above))
        if above == "noise":
            there = isinstance(value, Mapping) and "_target_" in value
        elif isinstance(parent, list):
            there = name.isdigit() and int(name) < len(parent)
        else:
            there = isinstance(parent, Mapping)
        if not there:
            nodes = parent.items() if isinstance(parent, Mapping) else ()
            meant = [f"{above}.{part}.{name}" for part, node in nodes if name in (node or ())]
            changes = {meant[0]: value} if len(meant) == 1 else {}
            fix = change_stage(stages, number, changes, without=[key])
            allowed = f"there is no such setting{did_you_mean(meant)}"
            yield ConfigError(key, value, allowed, fix=fix)


def _misshapen(spec: Any, number: int) -> Iterator[ConfigError]:
    """A value where a part belongs."""
    stages = plain(spec.train.stages)
    for key, value in stages[number].items():
        if key not in SLOTS or (key == "noise" and not value):
            continue
        nodes = value.values() if key == "noise" and isinstance(value, Mapping) else [value]
        if all(isinstance(node, Mapping) and "_target_" in node for node in nodes):
            continue
        inside = [f"{key}.{name}" for name in spec.select(key) or {} if not name.startswith("_")]
        change = f"; or a setting of the run's own: {', '.join(inside)}" if inside else ""
        meant, without = _mean_part(key, value, inside)
        fix = change_stage(stages, number, meant, without=without)
        yield ConfigError(key, value, f"a whole part, with its _target_{change}", fix=fix)


def _mean_part(
    key: str, value: Any, inside: Sequence[str]
) -> tuple[Mapping[str, Any], Sequence[str]]:
    """(settings, keys to leave out): what is meant by the name of a part, or by settings of the
    run's own.
    """
    if isinstance(value, Mapping) and inside:
        dotted = {f"{key}.{name}": item for name, item in value.items()}
        return {name: item for name, item in dotted.items() if name in inside}, [key]
    if isinstance(value, str) and key != "noise" and (file := part_files(key).get(value)):
        part = load(file)
        if not any(references_in(part)):
            return {key: part}, []
    return {}, [key]


def _wrong_shares(stages: Sequence[Mapping[str, Any]]) -> list[ConfigError]:
    """Shares that do not add up to a run, with the nearest that do."""
    try:
        check_shares([stage.get("share", 1.0) for stage in stages or [{}]])
        return []
    except ConfigError as error:
        shares = [stage.get("share") for stage in stages]
        usable = [float(share) if _is_share(share) else 1 / len(stages) for share in shares]
        before = usable[:-1]  # as they stand, where something is left for the last one
        if not all(map(_is_share, shares)) or sum(before) >= 1:
            before = [round(share / sum(usable), 4) for share in before]
        fitting = [*before, round(1 - sum(before), 6)]
        mended = [
            {"share": share, **{key: value for key, value in stage.items() if key != "share"}}
            for share, stage in zip(fitting, stages, strict=True)
        ]
        return [ConfigError(error.path, error.value, error.allowed, fix=spell_stages(mended))]


def _is_share(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _other_pattern_at_the_end(spec: Any) -> list[ConfigError]:
    """The run's pattern is that of its last stage: a checkpoint is read with it."""
    stages = plain(spec.train.stages)
    last = len(stages) - 1
    before = any(sets(spec, number, "pattern") for number in range(last))
    return [
        ConfigError(
            f"train.stages.{last}.{key}",
            value,
            "none in the last stage: it has the pattern of the run, with which the model is read",
            fix=" ".join([*_spell_of_run(key, value), change_stage(stages, last, {}, [key])]),
        )
        for key, value in (stages[last].items() if last >= 0 else ())
        if is_in(key, "pattern") and (before or value != plain(spec.select(key)))
    ]


def _spell_of_run(key: str, value: Any) -> list[str]:
    """A setting of a stage as one of the run; that of a whole part is no word."""
    return [] if isinstance(value, Mapping) else [spell_setting(key, value)]


def _misfits(spec: Any, staged: Any, number: int, plugins: Sequence[str]) -> list[PlmctlError]:
    """Settings of a stage that do not fit what they are set in."""
    own = plain(spec.train.stages[number])
    content = {slot: plain(staged[slot]) or {} for slot in ("train", *SLOTS)}
    errors: list[PlmctlError] = [
        *make_spec("pretrain", {"train": content.pop("train")})[1],
        *check_parts(content, plugins),
    ]
    if sets(spec, number, "schedule"):
        with collect(errors):
            build(content["schedule"], plugins=plugins, path="schedule")
    return [
        error
        for error in errors
        if isinstance(error, ConfigError) and any(is_in(error.path, key) for key in own)
    ]


def micro_batch_rows(rows: int, micro_rows: int | None, processes: int) -> int:
    """The rows of one backward pass of each process, or team of processes, which must share out an
    update evenly.
    """
    if rows % processes:
        fix = f"train.batch_size={max(1, round(rows / processes)) * processes}"
        raise ConfigError(
            "train.batch_size", rows, f"must be a multiple of the {processes} processes", fix=fix
        )
    share = rows // processes
    micro = micro_rows or share
    if share % micro:
        fix = f"train.micro_batch_size={max(n for n in range(1, micro + 1) if share % n == 0)}"
        allowed = f"must divide the {share} rows that a process has in an update"
        raise ConfigError("train.micro_batch_size", micro, allowed, fix=fix)
    return micro
