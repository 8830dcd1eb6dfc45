"""The kinds of metrics that have names in common."""

from __future__ import annotations

from typing import Any

import pytest

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.tasks.scores.base import Scores, join_meanings
from plmctl.tasks.scores.label_sets import SetScores, TypeScores
from plmctl.tasks.scores.labels import LabelScores
from plmctl.tasks.scores.numbers import NumberScores
from plmctl.tasks.scores.relation import RelationScores
from plmctl.tasks.scores.tags import TagScores


def open_task(name: str) -> Any:
    given = [f"task={name}", "task.path=x", "checkpoint=x"]
    return build(compose("finetune", None, given).task, {}, path="task")


@pytest.mark.parametrize(
    ("task", "metric", "words"),
    [
        ("conll2003", "f1", "entities of exact span and type"),
        ("squad", "f1", "shared words in any order"),
        ("cmrc2018", "f1", "longest common run"),
        ("mrpc", "f1", "F1 of the label "),
        ("hotpotqa", "sp_f1", "supporting facts"),
        ("coqa", "f1", "left out in turn"),
        ("quac", "heq_q", "as well as by people"),
    ],
)
def test_a_task_says_the_kind_of_its_metric(task: str, metric: str, words: str) -> None:
    assert words in open_task(task).describe_metric(metric)


@pytest.mark.parametrize(
    "scores",
    [
        *(TagScores(), LabelScores(positive="1"), NumberScores(), RelationScores()),
        *(SetScores(), TypeScores()),
    ],
    ids=lambda scores: type(scores).__name__,
)
def test_every_f1_and_correlation_says_its_kind(scores: Scores) -> None:
    several = [name for name in scores.known if "f1" in name or name in ("pearson", "spearman")]
    assert several
    assert all(map(scores.describe_metric, several))


def test_metrics_of_one_kind_are_named_together() -> None:
    assert join_meanings({"f1": "x", "exact": "y", "recall": "x"}) == "f1, recall: x; exact: y"
