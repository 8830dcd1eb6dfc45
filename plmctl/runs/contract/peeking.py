"""Can a question be answered, and does the input hide its answer? If not, the numbers of a run are
worthless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from plmctl.attention.patterns.hops import reaches_all
from plmctl.core.errors import ConfigError

if TYPE_CHECKING:
    from torch.nn import Module

    from plmctl.attention.patterns.base import Pattern
    from plmctl.data.formats.base import Format
    from plmctl.models.base import Backbone
    from plmctl.noise.base import Noise
    from plmctl.objectives.base import Objective


def find_peeking(objectives: Mapping[str, Objective], backbone: Backbone) -> Iterator[ConfigError]:
    """Every objective that asks all states of a sequence for the token behind them, where they
    look ahead.
    """
    answered = "the answer stands in the input"
    seen = f"whose states in this {type(backbone).__name__} have seen what follows them"
    fix = (
        "pattern=causal in a model that goes by it, such as model=decoder; or"
        " objective=[mlm] and a noise that hides"
    )
    for name, objective in objectives.items():
        asked = objective.facts.asks_next
        if asked is not None and backbone.looks_ahead(asked):
            allowed = f"asks for the next token of the {asked}, {seen}: {answered}"
            yield ConfigError(f"objective.{name}", ..., allowed, fix=fix)


def find_answered_elsewhere(
    objectives: Mapping[str, Objective], heads: Mapping[str, Module]
) -> Iterator[ConfigError]:
    """Every head that an objective asks for the next token, and that says it predicts another."""
    for asking, objective in objectives.items():
        for name in sorted(objective.facts.heads & set(heads)):
            if objective.facts.asks_next and getattr(heads[name], "about", None) == "text":
                path = f"heads.{name}.about"
                allowed = f"objective.{asking} asks it for the next token"
                yield ConfigError(path, "text", allowed, fix=f"{path}=next")


def find_altered(
    format: Format, noise: Mapping[str, Noise], objectives: Mapping[str, Objective], where: str
) -> Iterator[ConfigError]:
    """Every objective that would read its answers off a text which a noise of the list at
    `where` has changed.
    """
    changing = next((name for name, part in noise.items() if part.changes), None)
    if changing is None:
        return
    changed = f"changed by {where}.{changing}: the targets would be masks"
    fix = "noise=[], or objective=[mlm], which predicts hidden tokens"
    fix = "eval.noise=null" if where == "eval.noise" else fix
    for name, objective in objectives.items():
        if objective.facts.reads_text and not objective.facts.needs <= format.provides:
            allowed = f"reads its answers off the text, {changed}"
            yield ConfigError(f"objective.{name}", ..., allowed, fix=fix)


def find_unheard(
    format: Format, objectives: Mapping[str, Objective], backbone: Backbone
) -> Iterator[ConfigError]:
    """Every objective that asks one token about a row of which it hears nothing, or only a part."""
    pattern: Pattern | None = getattr(backbone, "pattern", None)
    place, where = (-1, "last") if format.anchors_last else (0, "first")
    segments = (0, 1) if "tracks.segment" in format.provides else (0, 0)
    allowed = (
        f"asks the {where} token about all of its row, of which it does not hear under this pattern"
    )
    fix = "pattern=full, or without this objective"
    for name, objective in objectives.items():
        if not objective.facts.asks_row or pattern is None:
            continue
        if not reaches_all(pattern, place, segments, format.max_length):
            yield ConfigError(f"objective.{name}", ..., allowed, fix=fix)
