"""Comparisons with a head that one of the two arms never trains. Their verdicts say that training a
head works, which no paper has to show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from plmctl.analysis.sequences import Comparison
from plmctl.study.study import Metric, Study

_OFF = re.compile(r"objective\.(\w+)\.weight=0(\.0*)?$|~objective\.(\w+)$")


def find_untrained(
    arms: Mapping[str, Sequence[str]], baseline: str, metrics: Mapping[str, Metric]
) -> list[Comparison]:
    """The comparisons whose metric reads a head that the arm or the baseline does not train, and
    for which no figure is published.

    Args:
        arms: {name: overrides of its pretraining}.
        baseline: The arm that the others are compared with.
        metrics: The metrics of the study.
    """
    off = {name: list_untrained(words) for name, words in arms.items()}
    return [
        (name, arm)
        for name, metric in metrics.items()
        for arm in arms
        if arm != baseline
        and not _is_published(metric, arm)
        and any(_reads(metric, off[one]) for one in (arm, baseline))
    ]


def describe_untrained(study: Study) -> list[str]:
    """A line for each metric with such comparisons that have an expectation."""
    found: dict[str, list[str]] = {}
    arms = {name: arm.overrides for name, arm in study.arms.items()}
    for name, arm in find_untrained(arms, study.baseline, study.metrics):
        if arm in study.metrics[name].expect:
            found.setdefault(name, []).append(arm)
    return [
        f"{name}: {', '.join(arms)} or the baseline '{study.baseline}' does not train the head that"
        " is measured. The verdict says that training it works, and nothing about the paper."
        for name, arms in found.items()
    ]


def list_untrained(words: Iterable[str]) -> set[str]:
    """The objectives that overrides take away, or give no weight."""
    matches = filter(None, (_OFF.match(word) for word in words))
    return {str(match[1] or match[3]) for match in matches}


def _reads(metric: Metric, objectives: Iterable[str]) -> bool:
    """Whether a metric (acc/lexical) is of a head of one of these (lexical_relation)."""
    kind, _, head = metric.key.partition("/")
    heads = {head, *([kind] if not head else [])}
    return any(f"{each}_".startswith(f"{name}_") for each in objectives for name in heads)


def _is_published(metric: Metric, arm: str) -> bool:
    return metric.published is not None and arm in metric.published.values
