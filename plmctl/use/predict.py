"""One split predicted and scored, and the scores as a table for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from plmctl.core.rounding import round_floats
from plmctl.core.terminal import hears, print_columns, tell
from plmctl.models.base import Model
from plmctl.runtime.base import Runtime
from plmctl.tasks import inference
from plmctl.tasks.inference import Split
from plmctl.tasks.intervals import Intervals
from plmctl.tasks.scores.metrics import spell_metric
from plmctl.tasks.task import Task
from plmctl.training.device.precision import Precision

# rows of an evaluation batch, the default of `plmctl eval`: the same batches give the same digits
BATCH = 32
AVERAGE = "average"  # the row of a table of scores that is the mean of the others


def predict(
    model: Model,
    task: Task,
    split: Split,
    *,
    precision: Precision,
    batch_size: int = BATCH,
    digits: int | None = None,
    runtime: Runtime | None = None,
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """(predictions, metrics with the mean loss) of one split; no metrics where it has no labels.

    `digits`: how many significant ones the numbers of predictions keep, before they are scored;
    None: all. `runtime`: the library of the computation; None: PyTorch.
    """
    training = model.training
    if training:
        model.eval()
    with torch.no_grad(), precision.autocast():
        predictions, loss = inference.predict_split(
            model, task, split, batch_size=batch_size, device=precision.device, runtime=runtime
        )
    if training:
        model.train()
    predictions = predictions if digits is None else round_floats(predictions, digits)
    if loss is None or not all(example.is_labelled for example in split.examples):
        return predictions, {}
    return predictions, {**task.score(predictions), "loss": loss}


# on a terminal; what is most frequent in train is another number
SHOWN = {"majority": "share of the most frequent label here"}
CONSTANT = "constant_"  # before the metric that one answer to all has at best


def show_metric(name: str) -> str:
    """`best f1 of one answer to all here` of `constant_f1`; the name of most others."""
    best = f"best {name.removeprefix(CONSTANT)} of one answer to all here"
    return best if name.startswith(CONSTANT) else SHOWN.get(name, name)


@dataclass(frozen=True)
class Told:
    """A fact that a table shows as a sentence, and `--json` as its number, or numbers by name, with
    the sentence; None where it has no number.
    """

    text: str
    value: float | Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return self.text


def tell_numbers(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as JSON has them: numbers, and the sentences under `remarks`."""
    told = {name: value for name, value in extra.items() if isinstance(value, Told)}
    plain = {name: value for name, value in extra.items() if name not in told}
    known = {name: fact.value for name, fact in told.items() if fact.value is not None}
    found = {**plain, **round_floats(known)}
    sentences = {name: value.text for name, value in told.items()}
    return {**found, "remarks": sentences} if sentences else found


@dataclass(frozen=True)
class ScoreTable:
    """Scores {split or other row: {metric: value}}, and remarks by their topic; sentences are
    `Told`.

    `examples`: of how many examples the intervals of a split are. `is_percent`: whether a metric is
    from 0 to 100. `called`: {split: its name for people}.
    """

    title: str
    metrics: Mapping[str, Mapping[str, float | None]]  # None: cannot be computed
    extra: Mapping[str, Any]
    intervals: Mapping[str, Intervals] = field(default_factory=dict)
    examples: Mapping[str, int] = field(default_factory=dict)
    is_percent: Callable[[str], bool] = lambda metric: False
    called: Mapping[str, str] = field(default_factory=dict)

    def show(self, *, as_json: bool, aside: bool = False) -> None:
        """One column a split on a terminal, with one of intervals behind it where there are some;
        or one JSON object. `aside`: on standard error, since standard output has something else.
        """
        if aside and not hears():
            return
        stream = sys.stderr if aside else None
        if as_json:
            tell(json.dumps(self.to_json()), file=stream)
            return
        if self.metrics:
            names = self.names
            shown = [spell_metric(show_metric(name), self.percent) for name in names]
            columns: dict[str, list[str]] = {"metric": shown}
            for split, of in self.metrics.items():
                head = self.called.get(split, split)
                columns[head] = [_spell(of.get(name)) for name in names]
                if known := self.known_intervals.get(split):
                    n = f", n = {self.examples[split]:,}" if split in self.examples else ""
                    columns[f"95% of {head}{n}"] = [_spell_pair(known.get(name)) for name in names]
            rows = zip(*columns.values(), strict=True)
            print_columns(self.title, list(columns), rows, stderr=aside)
        for name, value in self.extra.items():
            tell(f"{name}: {value}", file=stream)

    def to_json(self) -> dict[str, Any]:
        """The output of `--json`, its floats rounded."""
        known = round_floats(self.known_intervals)
        more: dict[str, Any] = (
            {"intervals": known, "examples": dict(self.examples)} if known else {}
        )
        more |= {"percent": self.percent} if self.percent else {}
        return {**tell_numbers(self.extra), "metrics": round_floats(self.metrics), **more}

    @property
    def names(self) -> list[str]:
        """The metrics, each once."""
        return [*dict.fromkeys(name for column in self.metrics.values() for name in column)]

    @property
    def percent(self) -> list[str]:
        """The metrics from 0 to 100; others are from 0 to 1."""
        return [*filter(self.is_percent, self.names)]

    def flatten(self) -> dict[str, float]:
        """{split/metric: score} of the scores that could be computed, for the table of a sweep."""
        return {
            f"{split}/{name}": value
            for split, of in self.metrics.items()
            for name, value in of.items()
            if value is not None
        }

    @property
    def known_intervals(self) -> dict[str, Intervals]:
        """The intervals of the splits that have scores."""
        return {
            split: own for split, own in self.intervals.items() if own and split in self.metrics
        }


def _spell(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.4f}"


def _spell_pair(pair: tuple[float, float] | None) -> str:
    return "" if pair is None else f"{pair[0]:.4f} to {pair[1]:.4f}"
