"""What a teacher answers and what a student learns of it (Hinton et al., 2015): `Answers`,
`Teacher`, `Signal`.

A `Question` reads the logits that the hard labels are asked of, from student and teacher alike, so
they meet place by place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from plmctl.core.batch import Batch, Seq
from plmctl.core.parts import base_of
from plmctl.models.base import Model
from plmctl.nn.cells.base import Cell
from plmctl.objectives.base import Output
from plmctl.objectives.generator import wide

# among the names of a record: the answers of a head; the others are those that a backbone records
LOGITS = "logits"


@dataclass(frozen=True)
class Logits:
    """The answers to one question at P places, `head(features)`, made when they are asked for: P
    x V may be large.
    """

    features: Tensor  # [P, ...]
    asked: Tensor  # [P] bool: the places that count
    # [p, ...] -> [p, K]; None: the features are the logits
    head: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.asked)

    def gather(self, places: slice | Tensor) -> Tensor:
        """[p, K] logits, in fp32 (or float64)."""
        found = self.features[places]
        return wide(found if self.head is None else self.head(found))

    def probabilities(self, places: slice | Tensor, temperature: float) -> Tensor:
        """[p, K] `softmax(z / temperature)`."""
        return (self.gather(places) / temperature).softmax(-1)


@dataclass(frozen=True)
class Answers:
    """What a model made of a batch, as far as it was recorded."""

    real: Tensor  # [B, T] bool: not padding
    # by the name of the head (a span has two: start, end)
    logits: Mapping[str, Logits] = field(default_factory=dict)
    # by name, one for each layer: "hidden" [B, T, W] (the embedding output first), "queries",
    # "keys", "values" [B, H, T, D], "scores" [B, H, T, T] (lowest number where a token may not see)
    # and "attention", their softmax
    recorded: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Measures:
    """What has to meet between two models; read off a model without weights as well."""

    name: str  # for messages: "the teacher runs/base", "the student"
    width: int
    num_layers: int
    num_heads: int | None  # None: no self-attention that is recorded, or cells of several kinds
    inner: int | None  # num_heads times their width: of queries, keys and values
    records: frozenset[str]  # LOGITS, and what its backbone records
    kind: str  # of the backbone

    @classmethod
    def of(cls, model: Model, name: str) -> Measures:
        backbone = model.backbone
        cells = [cell for cell in backbone.modules() if isinstance(cell, Cell) and cell.records]
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
    """Which logits there are, and at how many places of a batch they count."""

    heads: frozenset[str]  # that make them
    chooses: bool  # they are of choices, not numbers

    def counts(self, batch: Batch) -> dict[str, int]: ...
    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]: ...


def ask_model(model: Model, batch: Batch, question: Question, record: frozenset[str]) -> Answers:
    """Everything named in `record`, from one pass where `model` is a `Once`."""
    layers = record - {LOGITS}
    recorded = model(batch, record=layers).recorded if layers else {}
    logits = question.logits(model, batch) if LOGITS in record else {}
    return Answers(
        written_sequence(model.backbone.writes, batch).real,
        logits,
        {name: recorded[name] for name in layers},
    )


def written_sequence(writes: str, batch: Batch) -> Seq:
    """The sequence whose states a backbone gives; `writes` is what it says of itself."""
    return batch.seqs.get(writes) or batch.text


def count_tokens(writes: str, batch: Batch) -> int:
    """Real tokens of that sequence: known to the host where the batch has only one."""
    return (
        batch.counts["tokens"]
        if len(batch.seqs) == 1
        else int(written_sequence(writes, batch).real.sum())
    )


@base_of("teacher")
class Teacher(nn.Module):
    """Answers a batch, in evaluation mode and without gradient.

    What it holds is neither trained nor saved nor counted, except what it registers as a buffer.
    """

    measures: Measures

    def models(self) -> list[Model]:
        """Those that run for every batch; none where answers are read."""
        return []

    def meet(self, question: Question) -> None:
        """ConfigError where it cannot answer that."""

    def answers(self, batch: Batch, question: Question, record: frozenset[str]) -> Answers:
        """Everything named in `record`; logits by the names, and at the places, of `question`."""
        raise NotImplementedError(type(self).__name__)

    def after_step(self, model: Model, step: int) -> None:
        """Called with the student after every optimizer step (averages of students)."""


@base_of("signals")
class Signal(nn.Module):
    """One thing that a student learns of its teacher, and the weight of its terms beside the
    others.

    Built with what it asks for of `student` (Measures) and `teacher` (Teacher); raises ConfigError
    where they do not meet. Projections between different widths are its own parameters: trained and
    saved with the run, not with the model.
    """

    record: frozenset[str] = frozenset()  # of both models
    of_choices: bool = False  # the answers have to be choices

    def __init__(self, *, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def counts(self, batch: Batch, asked: Mapping[str, int], real: int) -> dict[str, int]:
        """{term: how many summands its total has}; `asked`: places that count, by the name of
        logits; `real`: tokens.

        Terms are called as the signal, and what stands here behind it; "" where it has only one.
        """
        raise NotImplementedError(type(self).__name__)

    def forward(self, student: Answers, teacher: Answers, batch: Batch) -> Output:
        raise NotImplementedError(type(self).__name__)
