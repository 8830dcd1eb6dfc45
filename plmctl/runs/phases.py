"""The phases of an objective as the stages of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.objectives.base import Objective
from plmctl.training.stages import Stage, describe_empty_stages


def check_phases(train: Mapping[str, Any], objective: Objective) -> None:
    """ConfigError where a run with phases is cut into stages otherwise, too."""
    for name in ("stages", "unfreeze"):
        if train.get(name) and objective.facts.phases:
            allowed = "none: distill.transfer divides the run into phases"
            raise ConfigError(f"train.{name}", ..., allowed, fix="distill.transfer=null")


def divide(
    stages: Sequence[Stage],
    objective: Objective,
    steps: int | None,
    make_schedule: Callable[[], Any],
) -> tuple[list[Stage], list[str]]:
    """The stages of a run, its only one divided into the phases of the objective; and lines on
    them.

    Args:
        steps: The updates of the run, where they are known.
    """
    made, lines, facts = list(stages), list[str](), objective.facts
    if facts.phases:
        (whole,) = stages
        made = whole.divide(facts.phases, make_schedule(), facts.terms)
        lines.append(_describe(made))
    if empty := describe_empty_stages(made, steps):
        lines.append(empty)
    return made, lines


def _describe(stages: Sequence[Stage]) -> str:
    """The phases with their shares of the run, those of one length in a row together."""
    edges = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(stages)) if a.share != b.share)]
    spelled = []
    for first, end in pairwise([*edges, len(stages)]):
        names = [stage.name for stage in stages[first:end]]
        named = ", ".join(names if len(names) < 5 else [names[0], "...", names[-1]])
        spelled.append(f"{named}: {stages[first].share:.1%}{' each' if len(names) > 1 else ''}")
    return f"{len(stages)} phases of training: {'; '.join(spelled)}"
