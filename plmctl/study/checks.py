"""Are the arms comparable, and does every metric exist? Asked of composed arms, answered all at
once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.study.composing import Composed
from plmctl.study.study import PRETRAIN, Metric, Study
from plmctl.tasks.base import Task

HELD_OUT = ("data.valid_path", "data.valid_target_path", "data.field", "data.lines", "data.segment")
MEASURED = ("eval.noise", "eval.seed", "eval.rows")


def check_study(
    study: Study, arms: Mapping[str, Composed], tasks: Mapping[str, Task]
) -> list[UsageError]:
    """Everything that would make a figure meaningless."""
    errors: list[UsageError] = []
    for name, metric in study.metrics.items():
        errors += _missing(f"metrics.{name}", metric, study, arms, tasks)
    of_pretraining = {
        name: metric for name, metric in study.metrics.items() if metric.of == PRETRAIN
    }
    pretrained = {name: each for name, each in arms.items() if each.arm.pretrain}
    if of_pretraining and len(pretrained) > 1:
        configs = {name: each.pretrain for name, each in pretrained.items()}
        errors += _other_validation(configs)
        errors += _other_tokens(of_pretraining, configs)
    if study.stop:
        kept = {key for each in pretrained.values() for key in each.measured}
        wanted = study.stop.metric.removeprefix("valid/")
        if wanted not in kept:
            errors.append(_no_metric("stop.metric", study.stop.metric, "pretraining", kept))
    return errors


def _missing(
    path: str, metric: Metric, study: Study, arms: Mapping[str, Composed], tasks: Mapping[str, Task]
) -> list[UsageError]:
    of = study.evals[metric.of].of if metric.of in study.evals else metric.of
    if of in tasks:
        has = {*tasks[of].metrics, "loss"}
        return (
            []
            if metric.key in has
            else [_no_metric(f"{path}.key", metric.key, f"task '{of}'", has)]
        )
    if metric.of != PRETRAIN:
        return []  # of text: what the checkpoint's heads can be asked
    errors: list[UsageError] = []
    for name, each in arms.items():
        if each.arm.pretrain and metric.key not in each.measured:
            errors.append(
                _no_metric(
                    f"{path}.key",
                    metric.key,
                    f"the pretraining of arm '{name}'",
                    set(each.measured),
                )
            )
    return errors


def _other_validation(arms: Mapping[str, Mapping[str, Any]]) -> list[UsageError]:
    """Arms that are validated on other documents, or under other masks, than the first."""
    first, reference = next(iter(arms.items()))
    errors: list[UsageError] = []
    for name, config in arms.items():
        keys = list(MEASURED)
        keys += (
            HELD_OUT
            if config["data"]["valid_path"]
            else [*HELD_OUT, "data.path", "data.mixture", "data.sources"]
        )
        keys += [] if config["data"]["valid_path"] else ["data.valid_share"]
        for key in keys:
            own, theirs = _at(config, key), _at(reference, key)
            if own != theirs:
                fix = (
                    "give data.valid_path"
                    if key.startswith("data.")
                    else f"leave {key} out of arms; set it in pretrain"
                )
                allowed = f"validation is the same for all arms; '{first}' has {_short(theirs)}"
                errors.append(ConfigError(f"arm '{name}': {key}", _short(own), allowed, fix=fix))
    return errors


def _other_tokens(
    metrics: Mapping[str, Metric], arms: Mapping[str, Mapping[str, Any]]
) -> list[UsageError]:
    """Losses per token of different vocabularies."""
    tokenizers = {
        json.dumps(config["tokenizer"], sort_keys=True, default=str) for config in arms.values()
    }
    if len(tokenizers) == 1:
        return []
    return [
        ConfigError(
            f"metrics.{name}.key",
            metric.key,
            "the arms have different tokenizers, whose losses per token do not compare",
            fix=f"key: bits_per_byte/{_objective(metric.key)}",
        )
        for name, metric in metrics.items()
        if not metric.key.startswith("bits_per_byte/")
    ]


def _objective(key: str) -> str:
    """The objective that a metric's key names, or a place for it."""
    return key.rpartition("/")[2] if "/" in key else "<objective>"


def _no_metric(path: str, key: str, owner: str, has: set[str]) -> ConfigError:
    return ConfigError(
        path,
        key,
        f"{owner} does not produce it{nearest(key, has)}; it has {', '.join(sorted(has))}",
    )


def _at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 120 else f"{text[:117]}..."
