"""Prospects of a plan: unlike losses, short budgets, few seeds, directions that wait for labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from plmctl.analysis.statistics import find_detectable_deviations, summarise
from plmctl.config.recipes import load, part_files
from plmctl.config.spec import key_of
from plmctl.config.walks import leaves
from plmctl.core.spelling import spell
from plmctl.core.terminal import counted
from plmctl.jobs.job import Config
from plmctl.runs.stage_costs import count_tokens
from plmctl.study.composing import ComposedArm
from plmctl.study.plan import StudyPlan
from plmctl.study.results import Results
from plmctl.study.study import PRETRAIN
from plmctl.study.unlike import explain_unlike, list_unlike_arms

# Predicted tokens after which a new model whose norms stand behind the sum has left the frequencies
# of tokens. BERT and RoBERTa of size mini: 4 M tokens of which 15% are predicted; GPT: 0.8 M
# (docs/results/bert.md). Fewer say nothing about what such a model learns from context.
LEAVES = 600_000
BEHIND = "PostNorm"


def list_prospects(plan: StudyPlan) -> list[str]:
    """A line for each obstacle to a decision of the study, with a remedy."""
    return [
        *list_unlike_arms(plan.study, plan.arms),
        *_find_lost_settings(plan),
        *_find_short_budgets(plan),
        *_find_few_seeds(plan),
        *_find_waiting(plan),
    ]


def _find_lost_settings(plan: StudyPlan) -> Iterator[str]:
    """Arms that replace a noise of the baseline, and lose a setting that the recipe or the study
    has changed, such as the rate.
    """
    base = plan.arms[plan.study.baseline]
    before: Mapping[str, Any] = base.pretrain["noise"] or {}
    for name, composed in plan.arms.items():
        now: Mapping[str, Any] = composed.pretrain["noise"] or {}
        if not composed.arm.pretrain or composed.arm.recipe != base.arm.recipe:
            continue
        stated = {key_of(word) for word in (*plan.study.pretrain, *composed.arm.overrides)}
        lost = [_find_changed(part, node) for part, node in before.items() if part not in now]
        for part in (part for part in now if part not in before):
            for key, value in ((key, own[key]) for own in lost for key in own):
                path = f"noise.{part}.{key}"
                if now[part].get(key, value) != value and path not in stated:
                    yield (
                        f"arm '{name}': {path}={spell(now[part][key])}, where the baseline has"
                        f" {spell(value)}; {path}={spell(value)} among its overrides is equal"
                    )


def _find_changed(part: str, node: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a noise that differ from its part file."""
    file = part_files("noise").get(part)
    usual = load(file) if file else {}
    numbers = {key: value for key, value in usual.items() if isinstance(value, int | float)}
    return {key: node[key] for key, value in numbers.items() if node.get(key, value) != value}


def _find_short_budgets(plan: StudyPlan) -> Iterator[str]:
    """Arms that stay at the frequencies of tokens for their whole budget, where a metric measures
    their learning, not their first update.
    """
    metrics = plan.study.metrics.values()
    if not any(metric.of != PRETRAIN or metric.validated for metric in metrics):
        return
    short: dict[str, int] = {}
    kind, budget = plan.study.budget or ("tokens", None)
    needed = 0.0
    for name, composed in plan.arms.items():
        config = composed.pretrain
        predicted = _count_predicted(composed) if composed.arm.pretrain else None
        if predicted is not None and predicted < LEAVES and _begins_behind(config):
            short[name] = round(predicted)
            own = _count_tokens(composed) if budget is None else budget
            needed = max(needed, LEAVES / predicted * (own or 0))
    if short:
        most = max(short.values())
        everything = len(short) == len(plan.arms)
        names = "cannot decide: all arms" if everything else f"learns little: {', '.join(short)}"
        bound = "about" if kind == "words" else "at most"
        yield (
            f"{names}: {bound} {most:,} predicted tokens; a new model of this block"
            f" ({BEHIND}) stays at the frequencies of tokens for about {LEAVES:,}"
            f" (budget.{kind}={_round_up(needed)})"
        )


def _round_up(number: float) -> int:
    """The next number of two digits and zeros; hundreds at least."""
    unit = max(100, 10 ** (math.floor(math.log10(number)) - 1))
    return math.ceil(number / unit) * unit


def _count_predicted(composed: ComposedArm) -> float | None:
    """Tokens that are predicted in a pretraining; None where its length is time."""
    noises = (composed.pretrain["noise"] or {}).values()
    if (tokens := _count_tokens(composed)) is None:
        return None
    rates = [node["rate"] for node in noises if isinstance(node, Mapping) and node.get("rate")]
    return float(tokens * (rates[0] if rates else 1.0))


def _count_tokens(composed: ComposedArm) -> int | None:
    config, ratio = composed.pretrain, composed.ratio
    per_word = ratio.tokens if ratio else 1.0
    return count_tokens(config["train"], config["format"]["max_length"], per_word)


def _begins_behind(config: Config) -> bool:
    """Whether a pretraining begins with drawn weights in a block whose norms stand behind."""
    kinds = {str(value) for key, value in leaves(config["model"]) if key.endswith("_target_")}
    return not config["init"] and any(kind.endswith(f".{BEHIND}") for kind in kinds)


def _find_few_seeds(plan: StudyPlan) -> Iterator[str]:
    """A line on the difference that so many seeds find among so many comparisons."""
    study = plan.study
    number = _count_compared(plan)
    seeds = len(study.seeds)
    if not number:
        return
    if seeds < 2:
        yield "cannot decide: one seed says nothing about the spread between runs: seeds=[0,1,2]"
        return
    found, more = (find_detectable_deviations(count, number) for count in (seeds, 2 * seeds))
    yield (
        f"{seeds} seeds and {counted(number, 'comparison')} find a difference of {found:.1f}"
        " standard deviations of the paired differences (in four of five cases),"
        f" {2 * seeds} seeds one of {more:.1f}"
        f"{'' if study.until else ': until=decided spends more where they matter'}"
    )


def _count_compared(plan: StudyPlan) -> int:
    """The comparisons of a plan that will have values."""
    return sum(_has_values(plan, metric, arm) for metric, arm in plan.study.comparisons)


def list_found(plan: StudyPlan, results: Results) -> Iterator[str]:
    """A line for each metric with results: what the seeds of the plan find, by the largest spread
    of its paired differences.
    """
    study, number = plan.study, _count_compared(plan)
    seeds = len(study.seeds)
    for name, metric in study.metrics.items() if seeds > 1 and number else ():
        base, spreads = results.values(metric, study.baseline), dict[str, float]()
        for arm in study.arms:
            own = results.values(metric, arm)
            if arm != study.baseline and len(both := [s for s in own if s in base]) > 1:
                spreads[arm] = summarise([own[s] - base[s] for s in both])[1] or 0.0
        if any(spreads.values()):
            arm = max(spreads, key=lambda arm: spreads[arm])
            found = ", ".join(
                f"{n} seeds {find_detectable_deviations(n, number) * spreads[arm]:.2g}"
                for n in (seeds, 2 * seeds, 4 * seeds)
            )
            yield (
                f"{name}: {found}, by the results so far ({arm} - {study.baseline}: standard"
                f" deviation {spreads[arm]:.2g}, the largest)"
            )


def _has_values(plan: StudyPlan, name: str, arm: str) -> bool:
    """Whether an arm and the baseline will both have values of a metric."""
    metric, pair = plan.study.metrics[name], (arm, plan.study.baseline)
    if metric.of == PRETRAIN and not all(plan.arms[each].arm.pretrain for each in pair):
        return False
    return not any(explain_unlike(plan.study, plan.arms, metric, each) for each in pair)


def _find_waiting(plan: StudyPlan) -> Iterator[str]:
    """Directions that wait for labels or files of the user."""
    study = plan.study
    for setting, metrics in study.waiting.items():
        if metrics:
            yield f"needs your labels: {', '.join(metrics)} ({setting})"
    asked = any(metric.expect for metric in study.metrics.values())
    if not asked and any(study.waiting.values()):
        yield "cannot decide: without these labels no direction is left to decide"
