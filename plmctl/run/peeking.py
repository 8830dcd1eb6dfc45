"""Can a question be answered, and was the answer not given away? If not, the numbers of a run
are worthless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plmctl.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from torch.nn import Module

    from plmctl.attention.patterns.base import Pattern
    from plmctl.data.formats.base import Format
    from plmctl.models.base import Backbone
    from plmctl.noise.base import Noise
    from plmctl.objectives.base import Objective


def find_peeking(objectives: Mapping[str, Objective], backbone: Backbone) -> list[UsageError]:
    """Every objective that asks all states of a sequence for the token behind them, where they
    look ahead.
    """
    errors: list[UsageError] = []
    for name, objective in objectives.items():
        asked = objective.facts.asks_next
        if asked is not None and backbone.looks_ahead(asked):
            allowed = (
                f"asks for the next token of the {asked}, whose states in this"
                f" {type(backbone).__name__} have seen what follows them: the answer stands in the"
                " input"
            )
            fix = (
                "pattern=causal in a model that goes by it, such as model=decoder; or"
                " objective=[mlm] and a noise that hides"
            )
            errors.append(ConfigError(f"objective.{name}", ..., allowed, fix=fix))
    return errors


def find_answered_elsewhere(
    objectives: Mapping[str, Objective], heads: Mapping[str, Module]
) -> list[UsageError]:
    """Every head that an objective asks for the next token, and that says it predicts another."""
    return [
        ConfigError(
            f"heads.{name}.about",
            "text",
            f"objective.{asking} asks it for the next token",
            fix=f"heads.{name}.about=next",
        )
        for asking, objective in objectives.items()
        if objective.facts.asks_next
        for name in sorted(objective.facts.heads & set(heads))
        if getattr(heads[name], "about", None) == "text"
    ]


def find_altered(
    format: Format, noise: Mapping[str, Noise], objectives: Mapping[str, Objective], where: str
) -> list[UsageError]:
    """Every objective that would read its answers off a text which a noise of the list at
    `where` has changed.
    """
    changing = next((name for name, part in noise.items() if part.changes), None)
    if changing is None:
        return []
    allowed = (
        f"reads its answers off the text, which {where}.{changing} has changed:"
        " masks would be asked for"
    )
    fix = "noise=[], or objective=[mlm], which asks for what is hidden"
    if where == "eval.noise":
        fix = "eval.noise=null"
    return [
        ConfigError(f"objective.{name}", ..., allowed, fix=fix)
        for name, objective in objectives.items()
        if objective.facts.reads_text and not objective.facts.needs <= format.provides
    ]


def find_unheard(
    format: Format, objectives: Mapping[str, Objective], backbone: Backbone
) -> list[UsageError]:
    """Every objective that asks one token about a row of which it hears nothing, or only a part."""
    pattern: Pattern | None = getattr(backbone, "pattern", None)
    place, where = (-1, "last") if format.anchors_last else (0, "first")
    segments = (0, 1) if "tracks.segment" in format.provides else (0, 0)
    asking = [name for name, objective in objectives.items() if objective.facts.asks_row]
    if not asking or pattern is None or pattern.reaches_all(place, segments, format.max_length):
        return []
    allowed = (
        f"asks the {where} token about all of its row, of which it does not hear under this pattern"
    )
    fix = "pattern=full, or without this objective"
    return [ConfigError(f"objective.{name}", ..., allowed, fix=fix) for name in asking]
