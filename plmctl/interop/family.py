"""A family of published models: its settings, its structure as our config states it, and its names.

`nodes(numbers)` is used in both directions: import fills it with the numbers of a `config.json`;
export reads the numbers from our config, fills it in the same way, and any remaining difference is
what the family cannot express.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from plmctl.core.used_cells import drop_unused_cells
from plmctl.interop.difference import list_differences
from plmctl.interop.names import NameRule, Tensors, Weights, find_missing, linear
from plmctl.interop.settings import Activation, Config, Numbers, Settings, make_schema
from plmctl.nn.layout import parse

Node = dict[str, Any]


# where a model has its table
TOKENS = ("backbone.embedding.token.weight", "backbone.encoder.embedding.token.weight")
CLUSTER = "backbone.embedding.token.tables.{}.weight"


@dataclass(frozen=True)
class Architecture:
    """One published class: its heads, by our names, and the names of their tensors."""

    name: str
    heads: tuple[str, ...] = ()
    rules: Sequence[NameRule] = ()
    bare: bool = False  # the backbone alone: its names carry no prefix
    outputs: int | None = None  # exactly so many outputs (1: regression)

    @property
    def tensors(self) -> list[str]:
        """Names of the heads' tensors in a file."""
        return [part for rule in self.rules if not rule.optional for part in rule.theirs]

    def in_file(self, tensors: Weights) -> bool:
        """Whether `tensors` has all tensors of its heads."""
        names = self.tensors
        return all(part in tensors for part in names) and self.outputs in (
            None,
            *(tensors[part].shape[0] for part in names[-1:]),
        )


def row_classes(
    name: str, rules: Callable[[str], list[NameRule]], pooler: Sequence[NameRule] = ()
) -> list[Architecture]:
    """The class that gives a row a number, or one of several labels.

    Args:
        rules: The rules of our head of this name.
        pooler: The rules of a pooler before it.
    """
    before = ("pooler",) if pooler else ()
    return [
        Architecture(name, (*before, head), [*pooler, *rules(head)], outputs=outputs)
        for head, outputs in (("score", 1), ("class", None))
    ]


def linear_class(name: str, head: str, theirs: str) -> Architecture:
    """The class that has one linear map as its head."""
    return Architecture(name, (head,), linear(f"heads.{head}.linear", theirs))


def lm_head(numbers: Numbers, **own: Any) -> Node:
    """The node of a head that predicts tokens."""
    plain = {"tied": numbers.tied, "transform": False, "bias": True}
    return {"_target_": "plmctl.heads.lm.LMHead", **plain, **own}


class Family:
    """A family of published models; each is one subclass in a module of its own."""

    model_type: str
    systems: tuple[str, ...]  # published ones that it reads and writes, for --help
    recipes: tuple[str, ...] = ()  # the recipes that train them
    # its published files name code of their own, which it computes without running it
    rebuilds_code: bool = False
    # usual names on the hub, each with its millions of parameters
    hub: tuple[tuple[str, int], ...] = ()
    stated: Settings  # the settings of its `config.json`, both ways
    # further settings of it, which change nothing that is read: of dropout, of other heads
    ignored: frozenset[str] = frozenset()
    prefix: str  # the prefix of names of the backbone in all but the bare class
    rules: Sequence[NameRule]  # the rules of the backbone, without the prefix
    # in order of preference for a model that has the heads of several
    architectures: Sequence[Architecture]
    ties: Mapping[str, str]  # tied tensor -> the one it is tied to, without the prefix
    # without the prefix; files of any class may have it, even if the class does not use it
    pooler: Sequence[NameRule] = ()
    # {head: the fix} of heads that no class of it has, and that another setting lets it have
    remedies: Mapping[str, str] = {}
    # heads in its files that no class of `transformers` reads: one of another shape is left out
    unread: tuple[str, ...] = ()

    @property
    def heads(self) -> set[str]:
        """All heads that some class of it has."""
        return {head for architecture in self.architectures for head in architecture.heads}

    @cached_property
    def schema(self) -> Any:
        """The annotations of its `config.json`, as a TypedDict."""
        return make_schema(self.stated)

    def numbers(self, settings: Config) -> Numbers:
        """The numbers of a `config.json`; ConfigError for a setting that our parts cannot
        express.
        """
        for each in self.stated:
            each.check(settings)
        return Numbers(**{k: v for each in self.stated for k, v in each.take(settings).items()})

    def settings(self, numbers: Numbers) -> Node:
        """The `config.json` of these numbers."""
        own = {k: v for each in self.stated for k, v in each.state(numbers).items()}
        return {"model_type": self.model_type, **own}

    def nodes(self, numbers: Numbers) -> Node:
        """size, pattern, position and model as conf/ composes them."""
        raise NotImplementedError(type(self).__name__)

    def compared(self, numbers: Numbers) -> Node:
        """The nodes as a model of ours is compared with them, whose layouts are spelled plainly."""
        return self.nodes(numbers)

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        """The config node of our head `name`."""
        raise NotImplementedError(type(self).__name__)

    def table(self, numbers: Numbers, architecture: Architecture) -> list[NameRule]:
        """All rules of a member: names of the backbone get the prefix, names of heads have it."""
        prefix = "" if architecture.bare else self.prefix
        backbone = [
            replace(rule, theirs=tuple(prefix + name for name in rule.theirs))
            for rule in self.backbone(numbers)
        ]
        return [*backbone, *architecture.rules]

    def backbone(self, numbers: Numbers) -> Sequence[NameRule]:
        """The rules of the backbone, without the prefix."""
        return self.rules

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        """The numbers of our model, read from the resolved `config`."""
        stack, embedding = _at(config, "model.stack") or {}, _at(config, "model.embedding") or {}
        cells = stack.get("cells") or {}
        attention, inner = cells.get("a") or {}, cells.get("f") or {}
        tables = find_token_tables(tensors)
        table, project = tables[0], tensors.get("backbone.embedding.project.weight")
        return Numbers(
            num_layers=count_layers(stack.get("layout", "")),
            width=table.shape[1] if project is None else len(project),
            num_heads=attention.get("num_heads", 1),
            inner_width=inner.get("inner_width", 0),
            vocab_size=sum(map(len, tables)),
            table_width=table.shape[1],
            max_length=_at(config, "position.max_length") or 0,
            segments=embedding.get("segments", 0),
            dropout=embedding.get("dropout", 0.0),
            attention_dropout=attention.get("dropout", 0.0),
            activation=inner.get("activation", "gelu"),
            eps=_at(config, "model.stack.residual.norm.eps") or 0.0,
            tied=all(
                (node or {}).get("tied", True) for node in (config.get("heads") or {}).values()
            ),
            pad=pad,
        )

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        """Import: correct the numbers by the tensors (without prefix), and the tensors."""
        return numbers, tensors

    def find_absent(
        self, tensors: Weights, rules: Sequence[NameRule], numbers: Numbers
    ) -> list[str]:
        """Import: published names that the member has and `tensors` lacks."""
        return find_missing(tensors, rules, num_layers=numbers.blocks)

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        """Export: add the tensors that every member has and our model lacks."""
        return tensors

    def simplify(self, config: Config, tensors: Weights) -> tuple[Config, Weights, list[str]]:
        """Export: config and tensors of any model without those parts, added by systems of this
        family, that it never uses; and what these are, in words.
        """
        return config, tensors, []

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        """The differences of a backbone from this family, as `path=value (published: value)`; none
        if it is a member.
        """
        published: Node = self.compared(numbers)
        nodes = {name: drop_unused_cells(config[name]) for name in published if name != "size"}
        return list_differences(nodes, {name: published[name] for name in nodes}, "")

    def find_unstated(self, config: Config, numbers: Numbers) -> list[str]:
        """The settings of a backbone of this structure, and of the heads that some class has, that
        a published folder cannot state; as `find_differences`.
        """
        differences: list[str] = []
        (named,) = [each.names.values() for each in self.stated if isinstance(each, Activation)]
        if numbers.activation not in named:
            ours = f"model.stack.cells.f.activation={numbers.activation}"
            differences.append(f"{ours} (published: {' or '.join(dict.fromkeys(named))})")
        pooling = _at(config, "model.classifier.pooling")
        if pooling not in (None, "first", "last"):
            differences.append(f"model.classifier.pooling={pooling} (published: one token)")
        published = _at(self.nodes(numbers), "model.classifier.pooling")
        asked = not {"class", "score"}.isdisjoint(config.get("heads") or {})
        if asked and published == "last" and pooling in (None, "first"):
            differences.append("model.classifier.pooling=first (published: last)")
        for name, lines in compare_heads(self, config, numbers).items():
            differences += [] if name in self.unread else lines
        return differences

    def remember(self, numbers: Numbers) -> Node:
        """The numbers of a `config.json` that no part of our model has, for export."""
        return {}

    def describe_reading(self, numbers: Numbers) -> str:
        """A line on where the model answers otherwise than the published one, or ""."""
        return ""

    def list_unexpressed(self, config: Config) -> list[str]:
        """Export: the properties of a member that a published folder does not state, in words."""
        return []


def compare_heads(family: Family, config: Config, numbers: Numbers) -> dict[str, list[str]]:
    """{name: differences} of every head that some class of the family has."""
    return {
        name: list_differences(node, family.head(name, numbers, 0), f"heads.{name}")
        for name, node in (config.get("heads") or {}).items()
        if node is not None and name in family.heads
    }


def drop_aliases(tensors: Weights, ties: Mapping[str, str], prefix: str, *, tied: bool) -> Tensors:
    """Keep each tied tensor once. If `config.json` unties them, the output table stays, with the
    output's own bias.
    """
    kept = dict(tensors)
    for alias, home in ties.items():
        present = any(name in kept for name in (prefix + home, home))
        if alias in kept and (not present or (not tied and alias.endswith(".bias"))):
            kept[home] = kept.pop(alias)
        elif alias in kept and tied:
            del kept[alias]
    return kept


def find_token_tables(tensors: Weights) -> list[Tensor]:
    """The table of tokens of our model, or of its encoder, in as many parts as it has clusters."""
    whole = next((tensors[name] for name in TOKENS if name in tensors), None)
    if whole is not None:
        return [whole]
    parts = (tensors.get(CLUSTER.format(i)) for i in itertools.count())
    return list(itertools.takewhile(lambda part: part is not None, parts))  # type: ignore[arg-type]


def rename_cells(config: Config, letters: Mapping[str, str]) -> dict[str, Any]:
    """`config` whose layout and cells have other letters, {old: new}."""
    model = config.get("model") or {}
    stack = model.get("stack") or {}
    layout = "".join(letters.get(each, each) for each in str(stack.get("layout", "")))
    cells = dict(stack.get("cells") or {})
    cells |= {new: cells[old] for old, new in letters.items() if old in cells}
    return {**config, "model": {**model, "stack": {**stack, "layout": layout, "cells": cells}}}


def count_layers(layout: str, letters: str = "af") -> int:
    """How many layers of `letters` a layout has, going by the first of them; 0 without a layout."""
    return sum(step.letter == letters[0] for step in parse(layout)) if layout else 0


def _at(config: Config, path: str) -> Any:
    node: Any = config
    for key in path.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node
