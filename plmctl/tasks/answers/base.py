"""The answer of a task: its labels, what it reads from its head, its loss, and its predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import base_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output
from plmctl.tasks.facts import ModelNeeds, TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.splits import Splits

HALF = 0.5  # the threshold of a label that has none of its own
Threshold = float | Mapping[str, float]


@base_of("answer")
class Answer(ABC):
    """Learns labels and predicts them.

    It states its `facts`, with the head, the `fields` of its labels, and what it `requires` of a
    model. `together`: the states of all rows of an example are added before the head. `threshold`:
    the least probability of a label, where each is decided by itself.
    """

    facts: TaskFacts = TaskFacts()
    fields: Mapping[str, Field] = {}
    requires: ModelNeeds = ModelNeeds()
    together: bool = True
    threshold: Threshold = HALF
    # whether `settle` leaves single unlabelled examples as they are, and each is answered alone
    streams: bool = True

    @property
    def decided(self) -> dict[str, Any]:
        """Settings of its own as `fit` found them, which every checkpoint carries."""
        return {}

    @property
    def remarks(self) -> list[str]:
        """Remarks for a reader of the score, once `fit` has seen the examples."""
        return []

    def check_columns(self, columns: Mapping[str, Any]) -> None:  # noqa: B027
        """ConfigError for a column that its settings do not allow."""

    def settle(
        self, examples: list[Example], names: list[str] | None, files: Splits
    ) -> tuple[list[Example], list[str] | None]:
        """The examples that were read, with labels as the task spells them, and the known names.

        Args:
            examples: Examples of a split, or of another file.
            names: The known names; None: not known yet.
            files: The files, with their reader and their columns.
        """
        return examples, names

    def check_model(self, model: Model) -> None:  # noqa: B027
        """ConfigError for a setting that a model, which may have no weights, does not allow."""

    def describe_scoring(self, examples: Examples, files: Splits) -> str:
        """A sentence on labels that the metrics of the task do not fit; "" where they do."""
        return ""

    def seen(self, example: Example) -> Sequence[str]:
        """The labels that training must have seen before this example can be predicted."""
        return ()

    def gold(self, example: Example) -> Any:
        """The label as predictions have it; DataError for an impossible one."""
        return example.label

    def fit(self, examples: Examples, names: list[str] | None, *, stated: bool) -> list[str] | None:
        """The names of labels, learned from examples or checked against them; None: no names.

        Args:
            examples: Labelled examples.
            names: The known names; None: not known yet.
            stated: Whether the config states the names, which files may spell otherwise.
        """
        for example in examples:
            self.gold(example)
        return names

    def fit_metrics(
        self, metrics: Sequence[str], names: Sequence[str], *, stated: bool
    ) -> list[str]:
        """The metrics for labels of these names; ConfigError for stated ones that do not fit.

        Args:
            metrics: The metrics.
            names: The names of labels.
            stated: Whether the config states the metrics.
        """
        return list(metrics)

    def admit(self, examples: Examples, names: list[str] | None) -> Counter[str]:
        """The rows by labels that the model lacks, which count as wrong from now on, instead of an
        error; none where an answer is no label.
        """
        return Counter()

    def label(self, rows: Rows, examples: Examples, names: list[str] | None) -> Rows:
        """`rows` with the labels of their examples, where all have one."""
        if any(example.label is None for example in examples):
            return rows
        return encode.add_labels(rows, self.number(examples, names))

    def number(self, examples: Examples, names: list[str] | None) -> dict[str, np.ndarray]:
        """The labels of examples by field name, without "labels." before it."""
        raise NotImplementedError

    def attach(self, model: Model) -> None:  # noqa: B027
        """Keep what `loss` and `predict` read of a model in addition to its logits."""

    def logits(self, head: Any, states: Tensor) -> Tensor:
        """The logits of its head for states: [N] or [N, K] of rows."""
        logits: Tensor = head(states)
        return logits.squeeze(-1) if self.facts.outputs == 1 else logits

    @abstractmethod
    def loss(self, logits: Tensor, batch: Batch, names: list[str] | None) -> Output:
        """The summed loss of a batch, as the term of its label, with its logs.

        Args:
            logits: [N] or [N, K] of rows.
            batch: a micro-batch.
            names: The names of labels, if it has some.
        """

    @abstractmethod
    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        """One JSON-able prediction an example: `id`, `gold`, `guess` and all that scores need.

        Args:
            logits: [n] or [n, K] of rows.
            rows: The rows of the examples.
            examples: The examples.
            names: The names of labels, if it has some.
        """

    def weigh(  # noqa: B027
        self,
        predictions: Sequence[dict[str, Any]],
        logits: np.ndarray,
        rows: Rows,
        names: list[str] | None,
    ) -> None:
        """Add to `predictions` the probabilities that an ensemble averages, and files do not have.

        Args:
            predictions: The rows of `predict`.
            logits: The logits of rows.
            rows: The rows of the examples.
            names: The names of labels, if it has some.
        """

    def decide(self, probabilities: Mapping[str, float], threshold: Threshold | None = None) -> Any:
        """The prediction for labels with these probabilities.

        Args:
            probabilities: {label: its probability}.
            threshold: Another threshold than its own, where it decides each label by itself.
        """
        return max(probabilities, key=probabilities.__getitem__)

    def flatten(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """[P, K] logits over K classes, and [P] bool: whether the label is known."""
        gold = batch.require(f"labels.{self.facts.label_name}")
        known = (gold != IGNORE).view(len(gold), -1).any(1)
        return logits if logits.ndim > 1 else logits[:, None], known
