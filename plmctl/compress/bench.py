"""The rows that time every model, and the costs of a model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plmctl.artifacts.cost import cost
from plmctl.artifacts.loading import Loaded, load
from plmctl.compress.memory import Open, measure_growth, open_run
from plmctl.core.machine import describe_cpu
from plmctl.core.spelling import spell_line
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.runtime.base import Answer, Program
from plmctl.runtime.eager import EagerRuntime
from plmctl.tasks import inference
from plmctl.tasks.inference import Split
from plmctl.tasks.task import Task
from plmctl.training.checkpoint import tensors_of
from plmctl.use.deploying import advise, measure_answers, open_graph_task, read_labelled

ROWS, LEAST, MOST = 256, 8, 32  # rows that are timed, and their batches, at least and at most
HELD_OUT = "task.dev_share=0.1, in the training of the run"
ENOUGH, ROUNDS = 1.0, 3  # seconds of timing, and rounds, at least


@dataclass(frozen=True)
class Costs:
    """The costs of a model, and the ratio of its latency to that of the run.

    Args:
        latency: Milliseconds of a row.
        size: Bytes of the weights in the file.
        flops: Multiply-adds of a row of the mean length.
        memory: Bytes that a process needs to open it and to answer, libraries aside; None: not
            measured.
        faster: The latency of the run, measured in turns, divided by `latency`.
    """

    latency: float
    size: int
    flops: float
    memory: int | None
    parameters: int
    faster: float

    def of(self, quantity: str) -> float:
        """The amount of a quantity of a target."""
        return float(getattr(self, quantity) or 0)

    def beside(self, run: Costs | None) -> Costs:
        """These costs with the latency that the ratio to that of the run makes. It was measured at
        another moment, when the machine may have been slower.
        """
        return self if run is None else replace(self, latency=run.latency / self.faster)

    def times_less(self, quantity: str, run: Costs) -> float:
        """How many times less of a quantity it needs than the run."""
        if quantity == "latency":
            return self.faster
        return run.of(quantity) / max(self.of(quantity), 1e-12)


class Bench:
    """The run, its dev rows, and a few batches of their usual lengths.

    Args:
        checkpoint: The fine-tuned run.
        batch_size: Rows of a batch; 1: one request after the other.
        memory: Whether memory is measured, which takes a process for each model.
        plugins: The packages outside plmctl that it may be made of.

    Raises:
        UsageError: It is no run of a task that a graph answers.
    """

    def __init__(
        self, checkpoint: str, batch_size: int, *, memory: bool, plugins: Sequence[str] = ()
    ) -> None:
        self.checkpoint, self.memory, self.plugins = checkpoint, memory, tuple(plugins)
        self.threads = torch.get_num_threads()  # a training may change it
        self.loaded: Loaded = load(checkpoint, plugins=plugins)
        source = Path(checkpoint)
        others = ("task=<name>", f"teacher={source}", "kept_layers=spread")
        with advise(lambda: spell_line("distill", *others)):
            self.task: Task = open_graph_task(self.loaded, source)
        self.split: Split = read_labelled(self.task, self.loaded, source, None, fix=HELD_OUT)
        batches = [batch for _, batch in inference.list_batches(self.split.rows, batch_size)]
        count = min(len(batches), max(LEAST, min(MOST, ROWS // batch_size)))
        self.longest = batches[0]
        self.batches = [batches[int((n + 0.5) * len(batches) / count)] for n in range(count)]
        self.rows = sum(len(batch.key) for batch in self.batches)
        if self.task.answer:
            self.task.answer.attach(self.loaded.model)
        self.program = Program(self.loaded.model, self.task.logits)

    @property
    def metric(self) -> str:
        """The score that is kept."""
        return self.task.metrics[0]

    @property
    def surroundings(self) -> dict[str, Any]:
        """All that decides measured numbers except the model: the rows, and the machine."""
        machine = {"processor": describe_cpu(), "threads": self.threads}
        return {"task": self.loaded.own_task(), "measured_on": machine}

    def time(self, answer: Answer) -> tuple[float, float]:
        """(milliseconds of a row, how many times faster than the run).

        Both take turns for equal times, and the ratio is the median of their rounds.
        """
        calls = [lambda: self._pass(answer), lambda: self._pass(self.program)]
        rounds = _time_in_turns(calls)
        own, _ = map(_low, zip(*rounds, strict=True))
        return 1000 * own / self.rows, statistics.median(run / own for own, run in rounds)

    def _pass(self, answer: Answer) -> None:
        for batch in self.batches:
            answer(batch)

    def cost(
        self, answer: Answer, model: Model, size: int, opening: Callable[[], Open] | None
    ) -> Costs:
        """The costs of a model.

        Args:
            answer: Computes it.
            model: The model, whose numbers are counted.
            size: The bytes of its file.
            opening: Opens it in another process; None: its memory is not measured.
        """
        latency, faster = self.time(answer)
        memory = self._measure_memory(opening)
        return Costs(latency, size, self.count_flops(model), memory, count(model), faster)

    def _measure_memory(self, opening: Callable[[], Open] | None) -> int | None:
        return measure_growth(opening, self.batches) if self.memory and opening else None

    def count_flops(self, model: Model) -> float:
        """The multiply-adds of a row of the mean length of the dev rows, heads included."""
        length = self.find_length()
        return sum(cost(model, length=length, predicted={}).macs_per_token.values()) * length

    def find_length(self) -> int:
        """The mean length of the dev rows, in tokens."""
        lengths = [float(seq.length.mean()) for seq in self.split.rows.seqs.values()]
        return max(1, round(sum(lengths)))

    def score(self, loaded: Loaded) -> float:
        """The score of a model on dev, by PyTorch in fp32."""
        found = measure_answers(EagerRuntime(), loaded, self.task, self.split, loaded.source.folder)
        return float(found.metrics[self.metric])

    def measure_run(self) -> Costs:
        """The costs of the run, computed by PyTorch in fp32."""
        model = self.loaded.model
        own = _low([own for (own,) in _time_in_turns([lambda: self._pass(self.program)])])
        latency = 1000 * own / self.rows
        size = sum(tensor.nbytes for tensor in tensors_of(model).values())
        memory = self._measure_memory(partial(open_run, self.checkpoint, self.plugins))
        return Costs(latency, size, self.count_flops(model), memory, count(model), 1.0)


def _time_in_turns(calls: Sequence[Callable[[], Any]]) -> list[tuple[float, ...]]:
    """The seconds of each call in each round; quick ones are repeated, as long as the slowest."""
    rounds: list[tuple[float, ...]] = []
    with torch.no_grad():
        for call in calls:
            call()
        first = [_time(call) for call in calls]
        often = [max(1, round(max(first) / seconds)) for seconds in first]
        began = time.perf_counter()
        while len(rounds) < ROUNDS or time.perf_counter() - began < ENOUGH:
            pairs = zip(calls, often, strict=True)
            rounds.append(tuple(_time(call, count) for call, count in pairs))
    return rounds


def _low(times: Sequence[float]) -> float:
    """The lower quartile: whatever else the machine does only ever adds to a time."""
    return sorted(times)[len(times) // 4]


def _time(call: Callable[[], Any], count: int = 1) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count
