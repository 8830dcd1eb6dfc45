"""A teacher and its student beside each other: parameters, size on disk, latency, score, and the
student's share of each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from plmctl.core.batch import Batch
from plmctl.core.terminal import screen
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.run.loading import Loaded
from plmctl.training.checkpoint import tensors_of
from plmctl.training.device.precision import Precision

BATCHES = (1, 32)  # rows of the batches that are timed
ROUNDS = 9  # of timing at least, in which models take turns
ENOUGH = 0.3  # seconds of timing at one batch size, after which that many rounds do
PATIENCE = 5.0  # seconds after which three rounds do

Forward = Callable[[Model, Batch], Any]  # what is timed


@dataclass(frozen=True)
class ModelColumn:
    """One model."""

    title: str  # teacher, student
    folder: str
    parameters: int
    bytes: int  # of its weights on the disk
    layers: int
    latency: Mapping[int, float] = field(default_factory=dict)  # {rows of the batch: milliseconds}
    scores: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, title: str, loaded: Loaded) -> ModelColumn:
        folder, model = loaded.source.folder, loaded.model
        files = [file.stat().st_size for file in folder.glob("model*.safetensors")]
        size = sum(files) if files else sum(tensor.nbytes for tensor in tensors_of(model).values())
        return cls(title, str(folder), count(model), size, model.backbone.num_layers)

    def numbers(self) -> dict[str, float]:
        """Every row of the table."""
        latency = {
            f"latency of {rows} {'rows' if rows > 1 else 'row'}, ms": value
            for rows, value in self.latency.items()
        }
        return {
            "parameters": self.parameters,
            "layers": self.layers,
            "bytes on disk": self.bytes,
            **latency,
            **self.scores,
        }


@torch.no_grad()
def measure_latencies(
    models: Sequence[Model], batches: Mapping[int, Batch], forward: Forward, *, precision: Precision
) -> list[dict[int, float]]:
    """For each model {rows: milliseconds of `forward`}: rounds in which all take turns, after one
    to warm up.

    The lower quartile of the rounds: whatever else the machine does only ever adds to one.
    """
    found: list[dict[int, float]] = [{} for _ in models]
    for rows, batch in batches.items():
        batch = batch.to(precision.device)
        times: list[list[float]] = [[] for _ in models]
        for model in models:
            _timed(model, batch, forward, precision)
        began = time.perf_counter()
        while True:
            for place, model in enumerate(models):
                times[place].append(_timed(model, batch, forward, precision))
            spent, rounds = time.perf_counter() - began, len(times[0])
            if (spent > ENOUGH and rounds >= ROUNDS) or (spent > PATIENCE and rounds >= 3):
                break
        for place, each in enumerate(times):
            found[place][rows] = round(1000 * statistics.quantiles(each, n=4)[0], 3)
    return found


def _timed(model: Model, batch: Batch, forward: Forward, precision: Precision) -> float:
    wait = torch.cuda.synchronize if precision.device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    with precision.autocast():
        forward(model, batch)
    wait()
    return time.perf_counter() - began


def share(student: float, teacher: float, *, largest_is_best: bool) -> float | None:
    """Of the teacher's score, what the student keeps: 1 is as good; of a loss the teacher's over
    the student's.
    """
    good, than = (student, teacher) if largest_is_best else (teacher, student)
    return good / than if than > 0 and good >= 0 else None


@dataclass(frozen=True)
class SideBySide:
    """The models beside each other, and what the student keeps of the first teacher's score."""

    teachers: Sequence[ModelColumn]
    student: ModelColumn
    metric: str = ""  # the score that the share is of
    largest_is_best: bool = True
    place: str = ""  # where the latency was measured

    @property
    def share(self) -> float | None:
        if (
            not self.teachers
            or self.metric not in self.student.scores
            or self.metric not in self.teachers[0].scores
        ):
            return None
        own, other = self.student.scores[self.metric], self.teachers[0].scores[self.metric]
        return share(own, other, largest_is_best=self.largest_is_best)

    def to_json(self) -> dict[str, Any]:
        named = {
            column.title: {"folder": column.folder, **column.numbers()}
            for column in (*self.teachers, self.student)
        }
        return {
            **named,
            "metric": self.metric,
            "share of the teacher's score": self.share,
            "measured on": self.place,
        }

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """(header, rows of text): a number of each model, and the student's over that of the
        (first) teacher.
        """
        columns = [*self.teachers, self.student]
        numbers = [column.numbers() for column in columns]
        header = [
            "",
            *(column.title for column in columns),
            *(["student / teacher"] if self.teachers else []),
        ]
        rows = []
        for name in dict.fromkeys(name for each in numbers for name in each):
            row = [name, *(_text(name, each.get(name)) for each in numbers)]
            if self.teachers:
                ours, theirs = numbers[-1].get(name), numbers[0].get(name)
                row.append(f"{ours / theirs:.3f}" if ours is not None and theirs else "")
            rows.append(row)
        if self.share is not None:
            rows.append(
                [
                    f"share of the teacher's {self.metric}",
                    *([""] * len(columns)),
                    f"{self.share:.1%}",
                ]
            )
        return header, rows

    def markdown(self) -> str:
        header, rows = self.rows()
        lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
        where = [f"- {column.title}: {column.folder}" for column in (*self.teachers, self.student)]
        return "\n".join(
            [
                "# Distillation",
                "",
                *(f"| {' | '.join(line)} |" for line in lines),
                "",
                f"Latency: {self.place}.",
                "",
                *where,
                "",
            ]
        )

    def show(self) -> None:
        from rich.table import Table as Shown

        header, rows = self.rows()
        shown = Shown(title="teacher and student")
        for place, name in enumerate(header):
            shown.add_column(name, justify="right" if place else "left")
        for row in rows:
            shown.add_row(*row)
        console = screen()
        console.print(shown)
        console.print(f"latency: {self.place}", soft_wrap=True)


def _text(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "bytes on disk":
        return f"{value / 1e6:.1f} MB"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if name.startswith("latency") else f"{value:.4f}"
