"""Losses and scores that compare: they answer one question about one text, or the same examples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import read_result, read_rows
from plmctl.analysis.scored import find_tested
from plmctl.config.build import class_of
from plmctl.config.walks import leaves
from plmctl.core.errors import UsageError, list_some
from plmctl.core.terminal import counted

MODEL, GENERATOR = "model", "generator"  # the owners of losses
KINDS = (
    "loss",
    "nll",
    "perplexity",
    "acc",
    "bits_per_byte",
)  # before the name of a term, "loss/mlm"
OF_TOKENS = ("loss", "nll", "perplexity", "acc")  # other tokens change these
# the settings that decide the question and its text, by its name
ASKED = (
    ("text", ("data.path", "data.valid_path", "data.valid_share", "data.mixture", "data.sources")),
    ("masks", ("eval.noise", "eval.seed", "noise")),
)


def find_role(config: Mapping[str, Any], metric: str) -> str:
    """The owner of the loss of a term: the "model", or the "generator" of an objective such as
    ELECTRA. The whole loss has its summands instead, `electra (weight=1, rtd_weight=50)`; numbers
    without a term have "".
    """
    kind, _, term = metric.removeprefix("valid/").partition("/")
    if kind == "loss" and not term:
        return _name_summands(config)
    if kind not in KINDS or not term:
        return ""
    nodes = [node for node in (config.get("objective") or {}).values() if isinstance(node, Mapping)]
    return GENERATOR if any(term in _find_generator_terms(node) for node in nodes) else MODEL


def _find_generator_terms(node: Mapping[str, Any]) -> frozenset[str]:
    """The terms that train a generator, as the objective states; none of an unknown objective."""
    try:
        found: frozenset[str] = class_of(node).facts.generator_terms
    except (ValueError, UsageError):  # only its own run imports a plug-in
        return frozenset()
    return found


def _name_summands(config: Mapping[str, Any]) -> str:
    """`mlm (weight=1), sop (weight=1)`: the objectives of a run with all their weights."""
    summands = []
    for name, node in sorted((config.get("objective") or {}).items()):
        if not isinstance(node, Mapping):
            continue
        weights = [(key, value) for key, value in leaves(node) if key.endswith("weight")]
        if ("weight", 0) in weights:
            continue
        listed = ", ".join(f"{key}={value:g}" for key, value in weights if _is_number(value))
        summands.append(f"{name} ({listed})" if listed else str(name))
    return ", ".join(summands)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def name_role(config: Mapping[str, Any], metric: str, others: Sequence[str]) -> str:
    """The metric, with "of the generator" behind it where it is none of the model, or its summands
    where those of others differ.
    """
    role = find_role(config, metric)
    if role == GENERATOR:
        return f"{metric} (of the generator)"
    if role in ("", MODEL) or {*others} <= {role}:
        return metric
    return f"{metric} of {role}"


def list_unlike(
    configs: Mapping[str, Mapping[str, Any]], metrics: Mapping[str, Collection[str]]
) -> list[str]:
    """Lines on losses of pretrained runs that do not compare.

    Args:
        configs: {run: its config}.
        metrics: {metric: the runs that have it}.
    """
    asked = [name for name in metrics if name.removeprefix("valid/").partition("/")[0] in KINDS]
    lines: list[str] = []
    if len(configs) < 2 or not asked:
        return lines
    for name in asked:
        roles = {run: find_role(configs[run], name) for run in configs if run in metrics[name]}
        made = [run for run, role in roles.items() if role == GENERATOR]
        if made and MODEL in roles.values():
            lines.append(
                f"{name} of {', '.join(made)} is that of a generator of the objective, not of the"
                " model: it does not compare with the others"
            )
        sums = {role: run for run, role in roles.items() if role not in ("", MODEL, GENERATOR)}
        if len(sums) > 1:
            listed = "; ".join(f"{run}: {role}" for role, run in sums.items())
            lines.append(f"{name} is a sum of unlike losses, which do not compare ({listed})")
    nodes = {json.dumps(each.get("tokenizer"), sort_keys=True) for each in configs.values()}
    if len(nodes) > 1 and any(name.removeprefix("valid/").startswith(OF_TOKENS) for name in asked):
        lines.append(
            "tokenizers differ: losses per token do not compare; bits_per_byte/<term> does, where"
            " it is of one text"
        )
    for what, keys in ASKED:
        values = {
            json.dumps(_take(config, what, keys), sort_keys=True, default=str)
            for config in configs.values()
        }
        if len(values) > 1:
            lines.append(f"held-out {what} differ: losses are not of one question")
    return lines


def _take(config: Mapping[str, Any], what: str, keys: Sequence[str]) -> list[Any]:
    """The settings; masks of training only where validation has none of its own."""
    found = []
    for key in keys:
        group, _, name = key.partition(".")
        node = config.get(group)
        found.append(node.get(name) if name and isinstance(node, Mapping) else node)
    return found[:-1] if what == "masks" and found[0] is not None else found


def find_examples(run: Path, split: str) -> tuple[int, str]:
    """(the number of the examples of a split, a hash of their ids and gold labels); of a run
    without predictions the number in its result, 0 where it has none, and "".
    """
    places = (run / folder / f"{split}.jsonl" for folder in ("predictions", "eval"))
    tested = find_tested(run) if split == "test" else None
    file = tested or next((file for file in places if file.is_file()), None)
    if file is None:
        return ((read_result(run) or {}).get("examples") or {}).get(split, 0), ""
    known = sorted(
        json.dumps([row.get("id"), row.get("golds", row.get("gold"))], sort_keys=True)
        for row in read_rows(file)
    )
    return len(known), hashlib.sha256("\n".join(known).encode()).hexdigest()


def list_unlike_examples(examples: Mapping[str, tuple[int, Hashable]]) -> list[str]:
    """A line on runs, by their names, that were scored on different examples, if they were.

    Args:
        examples: {run: (the number of its examples, a mark of exactly these)}.
    """
    groups: dict[tuple[int, Hashable], list[str]] = {}
    for name, own in examples.items():
        groups.setdefault(own, []).append(name)
    if len(groups) < 2:
        return []
    sizes = [
        f"{list_some(names, 3)}: {counted(own[0], 'example')}" for own, names in groups.items()
    ]
    others = " others" if len({count for count, _ in groups}) < len(groups) else ""
    return [f"scored on different examples ({'; '.join(sizes)}{others}), so scores do not compare"]
