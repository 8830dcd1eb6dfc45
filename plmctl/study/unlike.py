"""Losses of arms that share no column: those of a model and of a generator, sums of other terms,
and missing ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from plmctl.analysis.likeness import GENERATOR, MODEL, find_role
from plmctl.study.composing import ComposedArm
from plmctl.study.study import PRETRAIN, Metric, Study

WHOSE = {GENERATOR: "the loss of a generator of its objective", MODEL: "the loss of its model"}


def list_unlike_arms(study: Study, arms: Mapping[str, ComposedArm]) -> list[str]:
    """A line for each arm and metric that are left out, known before any training."""
    lines = (
        explain_unlike(study, arms, metric, arm)
        for metric in study.metrics.values()
        for arm in arms
    )
    return [*dict.fromkeys(filter(None, lines))]


def explain_unlike(study: Study, arms: Mapping[str, ComposedArm], metric: Metric, arm: str) -> str:
    """Why an arm is left out of the column of a metric; empty where it is in it."""
    reference = _find_reference(study, arms, metric)
    pair = arms[arm], arms[reference]
    if metric.of == PRETRAIN and pair[0].arm.pretrain and metric.key not in pair[0].measured:
        return f"{metric.key} is no metric of '{arm}': it is left out of the column"
    if not (_is_loss(study, metric) and all(each.arm.pretrain for each in pair)):
        return ""
    own, other = (_describe(each, metric.key) for each in pair)
    if own == other:
        return ""
    return (
        f"{metric.key} of '{arm}' is {own}, of '{reference}' {other}: it is left out of the column"
    )


def _find_reference(study: Study, arms: Mapping[str, ComposedArm], metric: Metric) -> str:
    """The arm whose loss a column is made for: the baseline, or the first arm that has it."""
    having = [name for name, own in arms.items() if own.arm.pretrain and metric.key in own.measured]
    alone = metric.of == PRETRAIN and having and study.baseline not in having
    return having[0] if alone else study.baseline


def _is_loss(study: Study, metric: Metric) -> bool:
    """Whether a metric is of pretraining, or of a text that a pretrained model reads."""
    node = study.evals.get(metric.of)
    return metric.of == PRETRAIN or (node is not None and node.of == PRETRAIN and not node.task)


def _describe(composed: ComposedArm, key: str) -> str:
    """The kind of a loss, in words; empty for numbers that are no loss."""
    role = find_role(composed.pretrain, key)
    if role in WHOSE or not role:
        return WHOSE.get(role, "")
    # a model may have costs of its own
    terms = sorted(name[5:] for name in composed.measured if name.startswith("loss/"))
    return f"the sum of {', '.join(terms)} by {role}"
