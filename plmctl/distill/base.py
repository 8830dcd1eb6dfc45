"""The interfaces of distillation (Hinton et al., 2015): `Predictions`, `Teacher`, `Signal`.

A `Question` reads the logits of the hard labels, from student and teacher alike, so that they are
compared position by position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of
from plmctl.distill.maps import Layers, make_layer_map
from plmctl.models.base import Model
from plmctl.nn.cells.base import Cell
from plmctl.nn.recorder import Record
from plmctl.objectives.base import Output, Term
from plmctl.objectives.generator import wide

# the name of heads' logits in a record; a backbone records the other names
LOGITS = "logits"


@dataclass(frozen=True)
class Logits:
    """The logits `head(features)` at P positions, computed when they are needed, since P x V may be
    large.
    """

    features: Tensor  # [P, ...]
    labelled: Tensor  # [P] bool: the positions with a label, which count
    # [p, ...] -> [p, K]; None: the features are the logits
    head: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.labelled)

    def gather(self, positions: slice | Tensor) -> Tensor:
        """[p, K] the logits at these positions, in fp32 (or float64)."""
        selected = self.features[positions]
        return wide(selected if self.head is None else self.head(selected))

    def probabilities(self, positions: slice | Tensor, temperature: float) -> Tensor:
        """[p, K] `softmax(z / temperature)`."""
        return (self.gather(positions) / temperature).softmax(-1)


@dataclass(frozen=True)
class Predictions:
    """The recorded predictions and states of a model for a batch."""

    real: Tensor  # [B, T] bool: not padding
    # by the name of the head (a span has two: start, end)
    logits: Mapping[str, Logits] = field(default_factory=dict)
    # by name, one for each layer: "hidden" [B, T, W] (the embedding output first); "queries",
    # "keys", "values" [B, H, T, D]; "scores" [B, H, T, T] (lowest number for tokens that may not be
    # seen); "attention", their softmax
    recorded: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Measures:
    """The sizes of a model that must fit another one; a model without weights has them, too."""

    name: str  # for messages: "the teacher runs/base", "the student"
    width: int
    num_layers: int
    num_heads: int | None  # None: no self-attention that is recorded, or cells of several kinds
    inner: int | None  # num_heads times their width: of queries, keys and values
    records: frozenset[str]  # LOGITS, and what its backbone records
    kind: str  # kind of the backbone

    @classmethod
    def of(cls, model: Model, name: str) -> Measures:
        """The sizes of a model, called `name` in messages."""
        backbone = model.backbone
        cells = [
            cell for cell in backbone.modules() if isinstance(cell, Cell) and cell.facts.records
        ]
        shapes: set[Any] = {(cell.num_heads, cell.head_width) for cell in cells}
        heads, width = shapes.pop() if len(shapes) == 1 else (None, 0)
        return cls(
            name,
            backbone.width,
            backbone.num_layers,
            heads,
            heads and heads * width,
            backbone.records | {LOGITS},
            type(backbone).__name__,
        )


class Question(Protocol):
    """The logits of a model, and the number of positions at which they count."""

    heads: frozenset[str]  # the heads that give them
    chooses: bool  # whether they are of classes, not numbers

    @property
    def names(self) -> Collection[str]:
        """The names of the logits."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """{name of logits: number of positions that count}."""

    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]:
        """{name: the logits}."""


def record_model(model: Model, batch: Batch, question: Question, record: Record) -> Predictions:
    """The predictions and states named in `record`, in one pass if `model` is a `Once`."""
    layers = record - {LOGITS}
    recorded = model(batch, record=layers).recorded if layers else {}
    logits = question.logits(model, batch) if LOGITS in record else {}
    return Predictions(
        find_written(model.backbone.writes, batch).real,
        logits,
        {name: recorded[name] for name in layers},
    )


def find_written(writes: str, batch: Batch) -> Seq:
    """The sequence whose states a backbone gives; `writes` is the backbone's attribute."""
    return batch.seqs.get(writes) or batch.text


def count_tokens(writes: str, batch: Batch) -> int:
    """The number of real tokens of that sequence; the host knows it if the batch has only one."""
    return (
        batch.counts["tokens"]
        if len(batch.seqs) == 1
        else int(find_written(writes, batch).real.sum())
    )


@base_of("teacher")
class Teacher(nn.Module):
    """Gives predictions for a batch, in evaluation mode and without gradient.

    Its contents are neither trained nor saved nor counted, except its buffers.
    """

    measures: Measures

    def models(self) -> list[Model]:
        """The models that run for every batch; none if predictions are read from a cache."""
        return []

    def meet(self, question: Question) -> None:
        """Raise ConfigError if it does not have these logits."""

    def predict(self, batch: Batch, question: Question, record: Record) -> Predictions:
        """The predictions and states named in `record`; logits by the names and positions of
        `question`.
        """
        raise NotImplementedError(type(self).__name__)

    def bequeath(self, model: Model, *, fix: str) -> None:
        """Copy everything but the layers into the student.

        Raises:
            ConfigError: with `fix` as its advice, if something does not fit.
        """
        allowed = "one trained model: its embeddings and heads are used"
        raise ConfigError("teacher", self.measures.name, allowed, fix=fix)

    def after_step(self, model: Model, step: int) -> None:
        """Called with the student after every optimizer step (averages of students)."""


@base_of("signals")
class Signal(nn.Module):
    """One loss between student and teacher, and its weight.

    Built with `student` (Measures) and `teacher` (Teacher); raises ConfigError if they do not fit.
    Projections between different widths are its own parameters: trained and saved with the run, not
    with the model.
    """

    record: frozenset[str] = frozenset()  # recorded tensors of both models
    of_choices: bool = False  # the logits must be of classes
    # the student's layers (0: the embedding output) that have a term each; empty: no layer has
    layers: Sequence[int] = ()

    def __init__(self, *, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        """{term: number of summands of its total}, for some or all of `terms`.

        Args:
            positions: The number of positions that count, by the name of logits.
            real: tokens.

        A term is called as the signal, followed by the name here; "" if there is only one.
        """
        raise NotImplementedError(type(self).__name__)

    def terms(self, logits: Collection[str]) -> Collection[str]:
        """The names of its terms; `logits`: the names of the logits that are compared."""
        return [str(layer) for layer in self.layers] or [""]

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        """The summed losses between the predictions of student and teacher for a batch."""
        raise NotImplementedError(type(self).__name__)


class LayerDistance(Signal):
    """`sum_m d(x_S^m, x_T^g(m))` of the tensors x of paired layers, the mean over real tokens; a
    subclass defines the distance d.

    Args:
        layers: The layer of the teacher for each layer of the student.
        embeddings: Whether the embedding outputs are a pair, too.
        by_layer: Whether each layer of the student has a term of its own.

    Raises:
        ConfigError: The layers do not fit.
    """

    recorded = "hidden"  # the name of the tensors
    first = 0  # the layer of the first one; 0: the embedding output

    def __init__(
        self,
        *,
        weight: float,
        student: Measures,
        teacher: Teacher,
        layers: Layers = "uniform",
        embeddings: bool = False,
        by_layer: bool = False,
    ) -> None:
        super().__init__(weight=weight)
        self.check(student, teacher.measures)
        pairs = make_layer_map(
            layers, student=student.num_layers, teacher=teacher.measures.num_layers
        )
        self.pairs = [(0, 0), *pairs] if embeddings else pairs
        why = f"the embedding output (0) has no {self.recorded}"
        if embeddings and self.first:
            raise ConfigError("embeddings", True, f"false: {why}", fix="embeddings=false")
        if any(g < self.first for _, g in pairs):
            raise ConfigError("layers", layers, f"layers from 1 on: {why}")
        self.layers = [m for m, _ in self.pairs] if by_layer else []
        self.record = frozenset({self.recorded})

    def check(self, student: Measures, teacher: Measures) -> None:
        """Raise ConfigError if two models cannot be compared."""

    def counts(self, batch: Batch, positions: Mapping[str, int], real: int) -> dict[str, int]:
        return dict.fromkeys(self.terms(()), real)

    def forward(self, student: Predictions, teacher: Predictions, batch: Batch) -> Output:
        own, other = (side.recorded[self.recorded] for side in (student, teacher))
        totals = [
            self.distance(own[m - self.first], other[g - self.first], number)
            .where(student.real, 0.0)
            .sum()
            for number, (m, g) in enumerate(self.pairs)
        ]
        totals = totals if self.layers else [torch.stack(totals).sum()]
        terms = zip(self.terms(()), totals, strict=True)
        return Output({name: Term(total, self.weight) for name, total in terms})

    def distance(self, own: Tensor, other: Tensor, number: int) -> Tensor:
        """[B, T] the distance at each token, of the pair of layers with this number."""
        raise NotImplementedError(type(self).__name__)
