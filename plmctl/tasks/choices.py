"""Multiple choice: one right answer of several, each with the context in a row of its own (SWAG,
RACE, ARC, ROCStories).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example
from plmctl.tasks.scores import labels as label_score
from plmctl.tasks.task import Task, TaskSettings
from plmctl.tasks.transform import Transform, pool_rows


@dataclass(frozen=True, kw_only=True)
class ChoiceSettings(TaskSettings):
    """Settings of multiple choice.

    Args:
        transform: The change of rows for a model.
        first_label: the number of the first choice.
        submission: {split: the file name that a leader board asks for}.
    """

    transform: Transform | None = None
    first_label: int = 0
    submission: Mapping[str, str] | None = None


@part_of("task")
class Choice(Task):
    """Multiple choice: a score for each row `text, choice`, and a softmax over the choices of an
    example.

    `loss = -log softmax_k(head(pool(h_k)))[right]`, averaged over examples (Radford et al., 2018,
    sec. 3.3; Devlin et al., 2019, sec. 4.4). Examples may have different numbers of choices. Labels
    are numbers from `first_label` on, or letters from A on. The choice and the token that stands
    for the row are global if the pattern has global tokens.
    """

    fields: Mapping[str, Field] = {
        "labels.choice": Field(
            "[N]",
            "int",
            "number of the right choice, at the first row of an example; IGNORE at its others",
        )
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.choice", "values.group"}),
        head="choice",
        answer="choice",
        pipeline="multiple-choice",
        outputs=1,
        typed="texts that you type, one a line, each with a tab before every choice",
    )

    Settings: ClassVar[type[ChoiceSettings]] = ChoiceSettings

    def __init__(self, **settings: Any) -> None:
        own = self.Settings(**settings)
        metrics = label_score.check_names(own.metrics, self.known_metrics())
        super().__init__(own, metrics=metrics, transform=own.transform, submission=own.submission)
        self.first_label = own.first_label

    @classmethod
    def known_metrics(cls) -> Sequence[str]:
        """The names of the metrics that `score` can compute."""
        return label_score.known_names(None)

    def parse(self, line: str, number: int) -> Example:
        text, *choices = line.split("\t")
        if len(choices) < 2:
            raise ValueError(
                f"text <tab> choice <tab> choice ... is needed, found {len(choices) + 1} columns"
            )
        return Example(
            id=str(number - 1), fields={"text": text, "choices": choices}, place=f"line {number}"
        )

    def texts(self, example: Example) -> list[str]:
        return [example.fields["text"], *example.fields["choices"]]

    def gold_of(self, example: Example) -> int:
        return self._right(example)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        for example in examples:
            self._right(example)

    def _right(self, example: Example) -> int:
        """The number, from 0, of the right choice."""
        label, count = str(example.label), len(example.fields["choices"])
        letter = len(label) == 1 and label.isalpha() and label.isascii()
        number = (
            ord(label.upper()) - ord("A")
            if letter
            else int(label) - self.first_label
            if label.isdecimal()
            else -1
        )
        if not 0 <= number < count:
            last = (
                f"{self.first_label} to {self.first_label + count - 1}, or A to"
                f" {chr(ord('A') + count - 1)}"
            )
            other = 1 - self.first_label  # counted from 0 or from 1
            fits = label.isdecimal() and other in (0, 1) and 0 <= int(label) - other < count
            fix = (
                f"task.first_label={other}, where choices are counted from {other}, or "
                if fits
                else ""
            )
            raise DataError(
                f"label '{label}' of {count} choices: {last}",
                file=example.place,
                fix=f"{fix}correct the label",
            )
        return number

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        vocab = self.transform.vocab(tokenizer.vocab)
        laid_out: list[encode.Row] = []
        example_of: list[int] = []
        for number, example in enumerate(examples):
            text = tokenizer.encode(example.fields["text"])
            for choice in tokenizer.encode_batch(example.fields["choices"]):
                laid_out.append(
                    encode.lay_out(
                        text, choice, vocab, max_length=self.max_length, pooling=self.pooling
                    )
                )
                example_of.append(number)
        rows = encode.group_rows(encode.pad(laid_out, vocab, example=example_of))
        assert rows.anchors is not None
        positions = np.arange(rows.seqs["text"].ids.shape[1])
        choice = rows.seqs["text"].real & (rows.seqs["text"].tracks["segment"] == 1)
        rows = encode.mark_global(rows, choice | (positions == rows.anchors[:, 1:]))
        rows = self.transform.add_targets(rows)
        if any(example.label is None for example in examples):
            return rows
        right = np.array([self._right(example) for example in examples], dtype=np.int64)
        return encode.add_labels(rows, {"choice": right})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {"choice": model.heads["choice"](pool_rows(self, model, batch)).squeeze(-1)}  # [N]

    def flatten_logits(
        self, logits: Mapping[str, Tensor], batch: Batch
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """[N, K] logits for N examples; those with fewer than K choices are padded with the
        lowest number.
        """
        scores = logits["choice"]
        _, group, sizes = batch.require("values.group").unique_consecutive(
            return_inverse=True, return_counts=True
        )
        first = sizes.cumsum(0) - sizes
        padded = scores.new_full((len(sizes), int(sizes.max())), torch.finfo(scores.dtype).min)
        padded = padded.index_put(
            (group, torch.arange(len(group), device=group.device) - first[group]), scores
        )
        return {"choice": (padded, batch.require("labels.choice")[first] != IGNORE)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        scores, group, gold = (
            logits["choice"].float(),
            batch.require("values.group"),
            batch.require("labels.choice"),
        )
        # the first row of each example; its rows are neighbours
        first = (gold != IGNORE).nonzero()[:, 0]
        most, norm = find_largest(scores, group), add_exponentials(scores, group)
        own = scores[first + gold[first]]
        total = (norm[group[first]] - own).sum()
        return Output(
            {"choice": Term(total)}, {"acc/choice": ((own == most[group[first]]).sum(), len(first))}
        )

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        scores = np.split(logits["choice"].astype(np.float64), encode.firsts(rows)[1:])
        return [
            {
                "id": e.id,
                "gold": None if e.label is None else self._right(e),
                "guess": int(own.argmax()),
                "probabilities": torch.from_numpy(own).softmax(0).tolist(),
                **label_score.name_sets(e),
            }
            for e, own in zip(examples, scores, strict=True)
        ]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return label_score.score_labels(predictions, self.metrics)


def find_largest(scores: Tensor, group: Tensor) -> Tensor:
    """[N] at the number of each group the largest of its scores, without a gradient.

    Args:
        scores: [N] of rows.
        group: [N] the number of the group of each row.
    """
    lowest = scores.new_full(scores.shape, -torch.inf)
    return lowest.scatter_reduce(0, group, scores.detach(), "amax")


def add_exponentials(scores: Tensor, group: Tensor) -> Tensor:
    """[N] at the number of each group `log sum_k exp(scores_k)` over its rows."""
    most = find_largest(scores, group)
    none = scores.new_zeros(scores.shape)
    return none.index_add(0, group, (scores - most[group]).exp()).log() + most
