"""Teachers and their student side by side: parameters, size on disk, latency, score, and the
student's share of each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch
from plmctl.core.rounding import spell_size
from plmctl.core.terminal import print_columns, tell
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.training.checkpoint import tensors_of
from plmctl.training.device.precision import Precision

BATCHES = (1, 32)  # rows of the batches that are timed
ENOUGH = 0.3  # seconds of timing at one batch size, at least
ROUNDS = 9  # rounds of timing, in which the models take turns, at least
PATIENCE = 5.0  # seconds after which three rounds are enough

Forward = Callable[[Model, Batch], Any]  # the timed function


@dataclass(frozen=True)
class ModelColumn:
    """The numbers of one model."""

    title: str  # teacher, student
    folder: str
    parameters: int
    bytes: int  # bytes of its weights on the disk
    layers: int
    latency: Mapping[int, float] = field(default_factory=dict)  # {rows of the batch: milliseconds}
    scores: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, title: str, loaded: Loaded) -> ModelColumn:
        """The column of a model, without latency and scores."""
        folder, model = loaded.source.folder, loaded.model
        sizes = [file.stat().st_size for file in folder.glob("model*.safetensors")]
        size = sum(sizes or (tensor.nbytes for tensor in tensors_of(model).values()))
        return cls(title, str(folder), count(model), size, model.backbone.num_layers)

    def numbers(self) -> dict[str, float]:
        """{name of the row of the table: its number}."""
        sizes = {"parameters": self.parameters, "layers": self.layers, "bytes on disk": self.bytes}
        latency = {
            f"latency of {rows} {'rows' if rows > 1 else 'row'}, ms": milliseconds
            for rows, milliseconds in self.latency.items()
        }
        return {**sizes, **latency, **self.scores}


@torch.no_grad()
def measure_latencies(
    models: Sequence[Model],
    batches: Sequence[Mapping[int, Batch]],
    forward: Forward,
    *,
    precision: Precision,
) -> list[dict[int, float]]:
    """For each model {rows: milliseconds of `forward` on its batch of them}: rounds in which all
    take turns, after one to warm up.

    The lower quartile of the rounds: whatever else the machine does only ever adds to one.
    """
    latencies: list[dict[int, float]] = [{} for _ in models]
    for rows in batches[0]:
        pairs = [
            (m, own[rows].to(precision.device)) for m, own in zip(models, batches, strict=True)
        ]
        for model, batch in pairs:
            _measure_time(model, batch, forward, precision)
        rounds: list[list[float]] = []
        began, spent = time.perf_counter(), 0.0
        while spent <= ENOUGH or len(rounds) < (ROUNDS if spent <= PATIENCE else 3):
            rounds.append([_measure_time(*pair, forward, precision) for pair in pairs])
            spent = time.perf_counter() - began
        for latency, times in zip(latencies, zip(*rounds, strict=True), strict=True):
            latency[rows] = round(1000 * statistics.quantiles(times, n=4)[0], 3)
    return latencies


def _measure_time(model: Model, batch: Batch, forward: Forward, precision: Precision) -> float:
    """The seconds of one call."""
    wait = torch.cuda.synchronize if precision.device.type == "cuda" else lambda: None
    wait()
    began = time.perf_counter()
    with precision.autocast():
        forward(model, batch)
    wait()
    return time.perf_counter() - began


def compute_share(student: float, teacher: float, *, largest_is_best: bool) -> float | None:
    """The student's share of the teacher's score: 1 is as good; for a loss, the teacher's divided
    by the student's.
    """
    above, below = (student, teacher) if largest_is_best else (teacher, student)
    return above / below if below > 0 and above >= 0 else None


@dataclass(frozen=True)
class SideBySide:
    """The models side by side, and the student's share of the first teacher's score."""

    teachers: Sequence[ModelColumn]
    student: ModelColumn
    metric: str = ""  # the score that the share is of
    largest_is_best: bool = True
    place: str = ""  # where the latency was measured
    notes: Sequence[str] = ()  # remarks on the worth of the scores

    @property
    def columns(self) -> list[ModelColumn]:
        return [*self.teachers, self.student]

    @property
    def share(self) -> float | None:
        """The share of the first teacher's score; None without one of the two scores."""
        student = self.student.scores.get(self.metric)
        teacher = self.teachers[0].scores.get(self.metric) if self.teachers else None
        if student is None or teacher is None:
            return None
        return compute_share(student, teacher, largest_is_best=self.largest_is_best)

    def to_json(self) -> dict[str, Any]:
        """{title: the numbers of a model}, and the share."""
        return {
            **{
                column.title: {"folder": column.folder, **column.numbers()}
                for column in self.columns
            },
            "metric": self.metric,
            "share of the teacher's score": self.share,
            "measured on": self.place,
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """(header, rows of text): a number of each model, and the student's divided by that of the
        first teacher.
        """
        numbers = [column.numbers() for column in self.columns]
        header, rows = ["", *(column.title for column in self.columns)], []
        for name in dict.fromkeys(name for column in numbers for name in column):
            row = [name, *(_spell(name, column.get(name)) for column in numbers)]
            if self.teachers:
                student, teacher = numbers[-1].get(name), numbers[0].get(name)
                row.append(f"{student / teacher:.3f}" if student is not None and teacher else "")
            rows.append(row)
        if self.share is not None:
            empty = [""] * len(self.columns)
            rows.append([f"share of the teacher's {self.metric}", *empty, f"{self.share:.1%}"])
        return header + ["student / teacher"] * bool(self.teachers), rows

    def markdown(self) -> str:
        """The table as a page, with where each model is."""
        header, rows = self.rows()
        table = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
        lines = [f"| {' | '.join(cells)} |" for cells in table]
        folders = [f"- {column.title}: {column.folder}" for column in self.columns]
        blocks = ["# Distillation", "\n".join(lines), f"Latency: {self.place}."]
        blocks += [*self.notes, "\n".join(folders)]
        return "\n\n".join(blocks) + "\n"

    def show(self) -> None:
        """Print the table."""
        print_columns("teacher and student", *self.rows())
        tell("\n".join([f"latency: {self.place}", *self.notes]))


def _spell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "bytes on disk":
        return spell_size(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if name.startswith("latency") else f"{value:.4f}"
