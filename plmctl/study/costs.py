"""Tokens, FLOPs and time of the arms of a study, before its runs are done and after some are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from plmctl.config.groups import LENGTHS
from plmctl.runs.device_speed import Speed
from plmctl.runs.stage_costs import count_tokens, count_update
from plmctl.runs.word_ratio import WordRatio
from plmctl.study.composing import ComposedArm
from plmctl.study.plan import StudyPlan
from plmctl.study.results import Results
from plmctl.study.study import PRETRAIN

# how a time is known
MEASURED, SCALED, ESTIMATED = "measured", "scaled from measured arms", "estimated"


class Workload(NamedTuple):
    """The work of one seed of an arm; None where its length is time."""

    flops: float | None
    seconds: float | None  # by the speed of the device


def estimate_costs(plan: StudyPlan, done: Results | None = None) -> list[dict[str, Any]]:
    """Tokens, FLOPs and time of one seed's pretraining of each arm, at most (by words: about), and
    the time of its fine-tunings on each task; None where nobody knows it. `same_as`: the arm before
    it whose pretraining it has; `from`: how each time is known.

    The seconds of runs that are done count first, then those of other arms, scaled by FLOPs. Where
    no run is done the speed of the device counts.

    Args:
        plan: The plan of the study.
        done: The results of the runs that are done.
    """
    costs: list[dict[str, Any]] = []
    jobs = {cell.arm: cell.pretrain for cell in reversed(plan.cells)}  # the jobs of the first seed
    first: dict[str, str] = {}  # arm of each pretraining
    ratios = {name: _find_ratio(arm, done) for name, arm in plan.arms.items()}
    tokens = {name: _find_tokens(arm, ratios[name], done) for name, arm in plan.arms.items()}
    speeds = {name: _find_speed(arm) for name, arm in plan.arms.items()}
    works = {name: _work(arm, tokens[name], speeds[name]) for name, arm in plan.arms.items()}
    clocks = {name: done.clock(name) if done else {} for name in plan.arms}
    rates = _find_rates(works, clocks)
    for name, composed in plan.arms.items():
        owner = first.setdefault(jobs[name] or name, name)
        times = {
            of: _find_time(work, clocks[name].get(of), rates.get(of))
            for of, work in works[name].items()
        }
        costs.append(
            {
                "arm": name,
                "same_as": None if owner == name else owner,
                "parameters": composed.parameters,
                "tokens": tokens[name],
                "per_word": ratio.describe() if (ratio := ratios[name]) else "",
                "flops": works[name][PRETRAIN].flops,
                "seconds": times[PRETRAIN][0],
                "tuning": {of: seconds for of, (seconds, _) in times.items() if of != PRETRAIN},
                "from": {of: source for of, (_, source) in times.items()},
                "speed": speeds[name].describe(),
            }
        )
    return costs


def _find_ratio(composed: ComposedArm, done: Results | None) -> WordRatio | None:
    """The tokens a word of a pretraining by words; None of others."""
    known = done.find_ratio(composed.arm.name) if done and composed.ratio else None
    return known or composed.ratio


def _find_tokens(
    composed: ComposedArm, ratio: WordRatio | None, done: Results | None
) -> float | None:
    """The tokens of a pretraining; by words, those of the runs that are `done`."""
    if not composed.arm.pretrain:
        return 0
    train, length = composed.pretrain["train"], composed.pretrain["format"]["max_length"]
    if ratio is None:
        return count_tokens(train, length, 1.0)
    known = done.cost(composed.arm.name)["tokens"] if done else None
    return known or count_tokens(train, length, ratio.tokens)


def _find_speed(composed: ComposedArm) -> Speed:
    train = composed.pretrain["train"]
    return Speed.find(train["device"], train["precision"], composed.pretrain["size"]["width"])


def _work(composed: ComposedArm, tokens: float | None, speed: Speed) -> dict[str, Workload]:
    """{pretrain or a task: its work} of an arm."""
    train, length = composed.pretrain["train"], composed.pretrain["format"]["max_length"]
    work = Workload(None, None)
    if tokens is not None:
        flops, updates = tokens * composed.flops_per_token, tokens / count_update(train, length)
        work = Workload(flops, speed.count_seconds(flops, updates, train["processes"]))
    tuned = {
        task: Workload(flops, speed.count_seconds(flops, updates))
        for task, points in composed.tuning_work.items()
        for flops, updates in [map(sum, zip(*points, strict=True))]
    }
    return {PRETRAIN: work, **tuned}


def _find_rates(
    works: Mapping[str, Mapping[str, Workload]], clocks: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """{pretrain or a task: seconds of a FLOP} in the arms that are measured."""
    sums: dict[str, tuple[float, float]] = {}
    for name, clock in clocks.items():
        for of, seconds in clock.items():
            whole, flops = sums.get(of, (0.0, 0.0))
            if more := works[name][of].flops:
                sums[of] = whole + seconds, flops + more
    return {of: seconds / flops for of, (seconds, flops) in sums.items()}


def _find_time(work: Workload, own: float | None, rate: float | None) -> tuple[float | None, str]:
    """The seconds of a work, and how they are known.

    Args:
        own: The seconds of its own runs that are done.
        rate: The seconds of a FLOP in the arms that are measured.
    """
    if own is not None:
        return own, MEASURED
    if rate is not None and work.flops:
        return work.flops * rate, SCALED
    return work.seconds, ESTIMATED


def spell_tuning_lengths(plan: StudyPlan) -> dict[str, str]:
    """{task: how long its fine-tunings are}, which the budget of pretraining does not shorten."""
    lengths: dict[str, dict[str, None]] = {}
    for composed in plan.arms.values():
        for task, points in composed.tuned.items():
            for point, (_, updates) in zip(points, composed.tuning_work[task], strict=True):
                lengths.setdefault(task, {})[_spell_length(point["train"], updates)] = None
    return {task: " or ".join(amounts) for task, amounts in lengths.items()}


def _spell_length(train: Mapping[str, Any], updates: int) -> str:
    """`2.0 epochs of 16 rows an update`; `500 updates of 16 rows` where train.least_steps makes so
    many of fewer.
    """
    tokens = train.get("batch_tokens")
    of = f"{tokens} tokens" if tokens else f"{train['batch_size']} rows"
    if train.get("epochs") and updates and updates == train.get("least_steps"):
        fewer = f"{train['epochs']:,} epochs are fewer"
        return f"{updates:,} updates of {of} by train.least_steps, {fewer}"
    amounts = [f"{train[name]:,} {name}" for name in LENGTHS if train.get(name)]
    return f"{', '.join(amounts)} of {of} an update"
