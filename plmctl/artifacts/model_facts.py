"""Facts about the model of a config that tasks and reports need before any model is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.artifacts.assemble import row_lengths
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.remarks import remark_on
from plmctl.config.build import build, plain
from plmctl.core.errors import ConfigError, find_meant, nearest, raise_all
from plmctl.core.locate import locate
from plmctl.heads.rows import POOLINGS
from plmctl.models.base import Backbone
from plmctl.models.encoder import Encoder
from plmctl.nn.stack import Stack


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
    whole text; `segments`: the segment numbers of the texts that are read and written.
    """
    part = locate(config["model"]["_target_"], plugins)
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
    }


def remark_on_model(
    config: Any,
    backbone: Backbone,
    plugins: Sequence[str],
    length: int | None = None,
    *,
    trained: bool = False,
) -> dict[str, str]:
    """{"pattern", "attention", its kernel, and "columns", of cells in parallel: what one should
    know of them in rows of `length` tokens, of the formats without one}; or nothing. ConfigError if
    the kernel cannot train this model.
    """
    longest = max(row_lengths(plain(config)).values()) if length is None else length
    memory = getattr(backbone, "memory", 0)
    pattern = remark_on(pattern_of(config, plugins), longest + memory)
    parts = [part for part in backbone.modules() if isinstance(part, Encoder)]
    problems = find_kernel_problems(backbone, longest)
    if trained:  # its checkpoint brings the settings of the model
        problems = [
            ConfigError(error.path, error.value, error.allowed, fix=error.fix.partition(" or ")[0])
            for error in problems
        ]
    raise_all(problems)
    kernels = dict.fromkeys(_remark_on_kernel(part, longest) for part in parts)
    stacks = (part for part in backbone.modules() if isinstance(part, Stack))
    columns = dict.fromkeys(stack.columns_remark for stack in stacks)
    remarks = {
        "pattern": pattern,
        "attention": "; ".join(filter(None, kernels)),
        "columns": "; ".join(filter(None, columns)),
    }
    return {name: remark for name, remark in remarks.items() if remark}


def find_kernel_problems(backbone: Backbone, length: int) -> list[ConfigError]:
    """The kernels that cannot train in rows of up to `length` tokens."""
    errors = []
    for name, part in backbone.named_modules():
        problem = part.find_kernel_problem(length) if isinstance(part, Encoder) else None
        if problem is not None:
            inside = f"model.{name}." if name else "model."  # model.decoder.stack
            path, fix = (text.replace("model.", inside) for text in (problem.path, problem.fix))
            errors.append(ConfigError(path, problem.value, problem.allowed, fix=fix))
    return errors


def _remark_on_kernel(encoder: Encoder, length: int) -> str:
    """The remark of the kernel about the pattern of each layer; a remark about several layers
    stands once.
    """
    layers: dict[str, list[str]] = {}
    for number, pattern in enumerate(encoder.layer_patterns, start=1):
        layers.setdefault(encoder.kernel.remark(pattern, length), []).append(str(number))
    if len(layers) == 1:
        return next(iter(layers))
    return "; ".join(
        f"{remark or 'kernel dense: all pairs are computed'},"
        f" in layer{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        for remark, numbers in layers.items()
    )


def heads_about(config: Any, plugins: Sequence[str] = ()) -> list[str]:
    """The answers of the heads of a config, such as words or labels, as far as they state them; a
    setting counts before the class.
    """
    nodes = [node for node in (config.get("heads") or {}).values() if node]
    stated = [
        node.get("about") or getattr(locate(node["_target_"], plugins), "about", None)
        for node in nodes
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
