"""Do the stages of a run fit to its model, its questions and each other?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plmctl.artifacts.assemble import row_lengths
from plmctl.artifacts.model_facts import pattern_of
from plmctl.config.build import plain
from plmctl.config.stage_mistakes import at_stage
from plmctl.config.stage_settings import sets, stage_config, stage_pattern
from plmctl.core.errors import ConfigError, PlmctlError, collect
from plmctl.models.base import Model
from plmctl.models.remarks import find_kernel_problems
from plmctl.objectives.base import Objective
from plmctl.objectives.costs import find_costs
from plmctl.runs.contract.peeking import find_peeking
from plmctl.training.freezing import apply_freezing, find_refitted
from plmctl.training.stages import check_losses

# finds the mistakes in the rows that a config makes
CheckRows = Callable[[Mapping[str, Any]], list[PlmctlError]]


def find_in_stages(
    cfg: Any,
    objectives: Mapping[str, Objective],
    model: Model,
    plugins: Sequence[str],
    check_rows: CheckRows,
) -> list[PlmctlError]:
    """Whatever is wrong in a stage and not in the run without it, named as it stands in
    `train.stages`.

    Afterwards the model has the pattern of the run again.
    """
    errors: list[PlmctlError] = []
    stages = plain(cfg.train.stages)
    for number in range(len(stages)):
        staged, found = stage_config(cfg, number), list[PlmctlError]()
        if sets(cfg, number, "format") or sets(cfg, number, "noise"):
            found += check_rows(plain(staged))
        errors += [at_stage(error, stages, number, "format noise") for error in found]
        found = []
        with collect(found):
            if not cfg.get("distill"):  # the trained parts are known once the teacher is
                terms = [objective.facts.terms for objective in objectives.values()]
                terms += [cost.terms for cost in find_costs(model)]
                check_losses(stages[number].get("losses") or (), frozenset().union(*terms))
            find_refitted(model, stages[number].get("refit") or ())
        errors += [at_stage(error, stages, number) for error in found]
        if sets(cfg, number, "pattern"):
            found = []
            with collect(found):
                found += _find_in_pattern(cfg, number, objectives, model, plugins)
            errors += [at_stage(error, stages, number, "pattern") for error in found]
    return errors


def find_wrong_freezing(config: Mapping[str, Any], model: Model) -> list[PlmctlError]:
    """Whatever a run, or a stage of it, freezes or trains that the model does not have."""
    train = config.get("train") or {}
    errors: list[PlmctlError] = []
    for number, stage in enumerate((stages := train.get("stages")) or [{}]):
        own = {key: stage.get(key, train.get(key)) or () for key in ("trainable", "frozen")}
        found: list[PlmctlError] = []
        with collect(found):
            apply_freezing(model, **own)
        errors += [at_stage(error, stages, number) for error in found] if stages else found
    return errors


def _find_in_pattern(
    cfg: Any, number: int, objectives: Mapping[str, Objective], model: Model, plugins: Sequence[str]
) -> list[PlmctlError]:
    """Misfits between a stage's own pattern and the model, its rows or the questions."""
    staged = stage_config(cfg, number)
    of_run, pattern = pattern_of(cfg, plugins), pattern_of(staged, plugins)
    if more := (pattern.needs | pattern.uses) - (of_run.needs | of_run.uses):
        fields = ", ".join(sorted(more))
        allowed = f"one that reads what the run's pattern does; this one reads {fields}"
        return [ConfigError("pattern", ..., allowed)]
    longest = max(row_lengths(plain(staged)).values())
    before = {str(error) for error in find_kernel_problems(model.backbone, longest)}
    with stage_pattern(cfg, model, number):
        problems = find_kernel_problems(model.backbone, longest)
        of_kernel = [error for error in problems if str(error) not in before]
        return [*find_peeking(objectives, model.backbone), *of_kernel]
