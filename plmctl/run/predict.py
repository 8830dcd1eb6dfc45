"""One split predicted and scored, and the scores as a table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from plmctl.core.rounding import round_floats
from plmctl.core.terminal import screen, tell
from plmctl.models.base import Model
from plmctl.tasks import inference
from plmctl.tasks.base import Task
from plmctl.tasks.inference import Split
from plmctl.training.device.precision import Precision

# rows of an evaluation batch, the default of `plmctl eval`: the same batches give the same digits
BATCH = 32


def predict(
    model: Model,
    task: Task,
    split: Split,
    *,
    precision: Precision,
    batch_size: int = BATCH,
    digits: int | None = None,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """(predictions, metrics with the mean loss) of one split; no metrics where it has no labels.

    `digits`: how many significant ones the numbers of predictions keep, before they are scored;
    None: all.
    """
    training = model.training
    model.eval()
    with torch.no_grad(), precision.autocast():
        found, loss = inference.predict_split(
            model, task, split, batch_size=batch_size, device=precision.device
        )
    model.train(training)
    found = found if digits is None else round_floats(found, digits)
    labelled = loss is not None and all(
        example.label is not None or "answers" in example.fields for example in split.examples
    )
    return found, {**task.score(found), "loss": loss} if labelled and loss is not None else {}


def show_scores(
    title: str,
    metrics: Mapping[str, Mapping[str, float]],
    *,
    as_json: bool,
    extra: Mapping[str, Any],
) -> None:
    """One column a split on a terminal, or one JSON object."""
    if as_json:
        tell(json.dumps({**extra, "metrics": round_floats(metrics)}))
        return
    from rich.table import Table

    table = Table(title=title)
    table.add_column("metric")
    for split in metrics:
        table.add_column(split, justify="right")
    for name in dict.fromkeys(name for column in metrics.values() for name in column):
        table.add_row(name, *(_number(column.get(name)) for column in metrics.values()))
    console = screen()
    if metrics:
        console.print(table)
    for name, value in extra.items():
        console.print(f"{name}: {value}", soft_wrap=True)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4f}"
