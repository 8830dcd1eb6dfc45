"""Facts about the model of a config that tasks and reports need before any model is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.attention.patterns.base import Pattern
from plmctl.config.build import build, class_of
from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.heads.rows import POOLINGS


def pooling(config: Any, plugins: Sequence[str] = ()) -> str:
    """The vector that stands for a row: the value of `model.classifier.pooling`; else "first", or
    "last" where some tokens do not see those behind them.
    """
    if stated := stated_pooling(config):
        return stated
    pattern = pattern_of(config, plugins)
    return "first" if all(pattern.looks_ahead(segment) for segment in (0, 1)) else "last"


def stated_pooling(config: Any) -> str | None:
    """The value of `model.classifier.pooling`, if any; ConfigError for a word unknown."""
    stated = (config["model"].get("classifier") or {}).get("pooling")
    if stated and stated not in POOLINGS:
        allowed = f"one of {', '.join(POOLINGS)}{nearest(str(stated), POOLINGS)}"
        fix = f"model.classifier.pooling={find_meant(stated, POOLINGS) or 'null'}"
        raise ConfigError("model.classifier.pooling", stated, allowed, fix=fix)
    return str(stated) if stated else None


def reading(config: Any, plugins: Sequence[str] = ()) -> dict[str, Any]:
    """Facts that tasks need about the model of `config`.

    `kind`: its class; `pooling`: the token that stands for a row; `writes`: the sequence that is
    written; `directed`: no written token sees a later one; `causal`: no token of any text does;
    `sees_later`: all of them do, or belong to a decoder, which reads an encoder's states of the
    whole text; `segments`: the segment numbers of the texts that are read and written; `start`,
    `forced`: `model.start` and `model.forced`.
    """
    part = class_of(config["model"], plugins)
    writes = getattr(part, "writes", "text")
    pattern = pattern_of(config, plugins)
    read, written = pattern.prefix_segments or (0, 1)
    directed = writes == "target" or (writes == "text" and not pattern.looks_ahead(written))
    causal = writes == "text" and not pattern.looks_ahead()
    return {
        "kind": part.__name__,
        "pooling": pooling(config, plugins),
        "writes": writes,
        "directed": directed,
        "causal": causal,
        "sees_later": writes == "target" or all(map(pattern.looks_ahead, (0, 1))),
        "segments": (read, written),
        "start": config["model"].get("start"),
        "forced": config["model"].get("forced"),
    }


def heads_about(config: Any, plugins: Sequence[str] = ()) -> list[str]:
    """The answers of the heads of a config, such as words or labels, as far as they state them; a
    setting counts before the class.
    """
    nodes = [node for node in (config.get("heads") or {}).values() if node]
    stated = [
        node.get("about") or getattr(class_of(node, plugins), "about", None) for node in nodes
    ]
    return [about for about in stated if about]


def networks(model: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The parts of a model's node that are models themselves."""
    return {
        name: node
        for name, node in model.items()
        if isinstance(node, Mapping) and "embedding" in node and "stack" in node
    }


def pattern_of(config: Any, plugins: Sequence[str]) -> Pattern:
    pattern: Pattern = build(config["pattern"], plugins=plugins, path="pattern")
    return pattern


def framing(config: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens around the sources and targets that a model was trained on, as far as its
    config states them.
    """
    rows = config.get("format") or config.get("task") or {}
    return {name: rows[name] for name in ("source_template", "target_template") if rows.get(name)}
