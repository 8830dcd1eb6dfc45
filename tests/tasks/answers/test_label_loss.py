"""Weighted, focal and smoothed losses of labels, against loops and torch's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.tasks.answers.label_loss import LabelLoss
from plmctl.tasks.record import Example

NAMES = ["a", "b", "c"]
LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0], [1.0, 1.0, 1.0]])
LABELS = torch.tensor([0, 2, IGNORE, 1])


def by_loop(weights: dict[str, float], gamma: float, smoothing: float) -> float:
    total = 0.0
    for logits, label in zip(LOGITS.tolist(), LABELS.tolist(), strict=True):
        if label == IGNORE:
            continue
        log_sum = math.log(sum(math.exp(x) for x in logits))
        log_p = [x - log_sum for x in logits]
        loss = -(1 - smoothing) * log_p[label] - smoothing / 3 * sum(log_p)
        total += weights.get(NAMES[label], 1.0) * (1 - math.exp(log_p[label])) ** gamma * loss
    return total


@pytest.mark.parametrize("weights", [{}, {"a": 3.0, "c": 0.25}])
@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_a_loop(
    weights: dict[str, float], gamma: float, smoothing: float
) -> None:
    total, right = LabelLoss(weights, gamma, smoothing)(LOGITS, LABELS, NAMES)
    assert total.item() == pytest.approx(by_loop(weights, gamma, smoothing), rel=1e-5)
    assert right.item() == 2


def test_smoothing_is_that_of_torch() -> None:
    total, _ = LabelLoss(None, 0.0, 0.2)(LOGITS, LABELS, NAMES)
    wanted = F.cross_entropy(
        LOGITS, LABELS, ignore_index=IGNORE, reduction="sum", label_smoothing=0.2
    )
    assert total.item() == pytest.approx(wanted.item())


def test_a_certain_label_has_a_gradient() -> None:
    logits = torch.tensor([[60.0, 0.0, 0.0]], requires_grad=True)
    total, _ = LabelLoss(None, 2.0, 0.0)(logits, torch.tensor([0]), NAMES)
    total.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_balanced_weights_have_the_mean_one_over_training() -> None:
    loss = LabelLoss("balanced", 0.0, 0.0)
    loss.fit(["a"] * 6 + ["b"] * 3 + ["c"], NAMES)
    assert loss.weights == {"a": 10 / 18, "b": 10 / 9, "c": 10 / 3}
    loss.fit(["c"], NAMES)  # of dev: they stay
    assert loss.decided["class_weights"]["a"] == 10 / 18
    assert LabelLoss(None, 0.0, 0.0).decided == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("balance", 0.0, 0.0),
            "task.class_weights='balance': balanced, .*did you mean 'balanced'",
        ),
        (({"a": -1.0}, 0.0, 0.0), r"task.class_weights.a=-1.0: 0 or more"),
        ((None, -1.0, 0.0), "task.focal_gamma=-1.0"),
        ((None, 0.0, 1.0), "task.label_smoothing=1.0"),
    ],
)
def test_wrong_settings(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LabelLoss(*settings)


def test_a_weight_of_no_label_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task.class_weights='aa': labels of training: a, b, c"):
        LabelLoss({"aa": 2.0}, 0.0, 0.0).fit(["a"], NAMES)


@pytest.mark.parametrize("name", ["classification", "tagging", "sst2", "conll2003"])
def test_tasks_take_them(name: str, tmp_path: Path) -> None:
    words = ["task.class_weights=balanced", "task.focal_gamma=2", "task.label_smoothing=0.1"]
    spec = config.compose(
        "finetune", None, [f"task={name}", f"task.path={tmp_path}", "checkpoint=null", *words]
    )
    task = build(spec.task, {"pooling": "first"}, path="task")
    tags = "tag" in task.facts.head
    names = task.label_names or ["0", "1"]
    fields, labels = ({"words": ["x"]}, [["O"], ["B-A"]]) if tags else ({"text": "x"}, names)
    task.fit_labels([Example("0", fields, labels[0])] * 3 + [Example("1", fields, labels[1])])
    weights = task.decided["class_weights"]
    assert sorted(weights.values()) == [pytest.approx(4 / 6), 2.0]
