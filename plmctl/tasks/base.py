"""What a fine-tuning task is: examples in, rows and labels out, one head, one loss, the right
metrics.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.fields import Field
from plmctl.core.parts import base_of
from plmctl.heads.base import About, pool
from plmctl.heads.features import read as features_of
from plmctl.models.base import Model
from plmctl.noise.base import Noise
from plmctl.objectives.base import Objective, Output
from plmctl.tasks import files
from plmctl.tasks.holding import hold_out
from plmctl.tasks.transform import Transform, add_rows
from plmctl.text.vocab import Vocab

DEV_SHARE = 0.1  # of a single labelled file


@dataclass(frozen=True)
class Example:
    """One labelled (or unlabelled: label None) example as the files state it."""

    id: str
    # {"text": ..., "text2": ...} or {"words": [...]} or {"question": ..., "context": ...}
    fields: Mapping[str, Any]
    label: Any = None
    place: str = ""  # file:line, for error messages
    # examples with the same number stood in one document, in this order
    document: int | None = None


@base_of("reader")
class Reader(Protocol):
    """What knows the layout of a data set's files (`tables.Table`, `conll.Columns`,
    `squad_files.SquadFiles`).
    """

    splits: Mapping[str, Sequence[str]]  # split -> file name patterns, in order of preference
    skipped: dict[str, int]  # file -> examples left out

    def has(self, path: Any, split: str) -> bool: ...
    def read(self, path: Any, split: str, columns: Mapping[str, Any]) -> list[Example]: ...
    def read_file(
        self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True
    ) -> list[Example]: ...


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """What the config says of every task; a family of tasks adds its own settings.

    Args:
        name: of the task, for messages and run directories.
        reader: knows the layout of the files.
        columns: which columns are read.
        max_length: tokens of a row at most.
        metrics: what is scored; the first one chooses the best checkpoint.
        pooling: which token stands for a row: "first" for an encoder, "last" for a causal decoder.
        path: a directory, a file, or the files of the splits.
        dev_share: the share of the training examples that is dev where no file is; None:
            `DEV_SHARE` of a single file, otherwise none.
    """

    name: str
    reader: Reader
    columns: Mapping[str, Any]
    max_length: int
    metrics: Sequence[str]
    pooling: str = "first"
    path: Any = None
    dev_share: float | None = None


def signature_of(settings: type[TaskSettings]) -> inspect.Signature:
    """The keyword parameters that a class of settings takes, with their types."""
    hints = typing.get_type_hints(settings, include_extras=True)
    found = inspect.signature(settings)
    typed = [each.replace(annotation=hints[each.name]) for each in found.parameters.values()]
    return found.replace(parameters=typed)


@base_of("task")
class Task(Objective):
    """Fine-tuning is an Objective on labels: a Task reads files, encodes examples to Rows, names
    its head, scores predictions.

    Call order: `read` every split, `fit_labels(train)`, then `encode`, training through the
    Objective interface, `predict`, `score`. `metrics` names what `score` returns. `Settings` is
    what the config says of a family: its constructor takes these by name.
    """

    fields: Mapping[str, Field] = {
        "values.example": Field("[n]", "int", "number of the example a fine-tuning row comes from"),
        "values.group": Field(
            "[n]",
            "int",
            "rows with the same number, neighbours, make one example (choices; both orders of a"
            " pair)",
        ),
    }
    head: str  # the name of the head that gives the logits
    pipeline: str = ""  # what Hugging Face calls the task, for model cards; empty: nothing
    chooses: bool = True  # among answers, each with a probability
    # its head answers with tokens of the vocabulary
    asks_tokens: bool = False
    # what the language-model heads that it looks up are asked for
    language_heads_about: About = "next"
    # labels are few and come again, or numbers; not texts that are written
    has_classes: bool = True

    Settings: ClassVar[type[TaskSettings]] = TaskSettings

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the settings of the class as what it takes."""
        super().__init_subclass__(**kwargs)
        if "Settings" in vars(cls):
            cls.__signature__ = signature_of(cls.Settings)  # type: ignore[attr-defined]
        elif "__init__" in vars(cls):  # settings of its own, one by one
            found = inspect.signature(cls.__init__)
            cls.__signature__ = found.replace(  # type: ignore[attr-defined]
                parameters=list(found.parameters.values())[1:]
            )

    def __init__(
        self,
        settings: TaskSettings,
        *,
        metrics: Sequence[str],
        label_names: Sequence[str] | None = None,
        submission: Mapping[str, str] | None = None,
        transform: Transform | None = None,
    ) -> None:
        super().__init__()
        share = settings.dev_share
        if share is not None and not 0 <= share < 1:
            raise ConfigError(
                "task.dev_share", share, "at least 0 and below 1", fix=f"task.dev_share={DEV_SHARE}"
            )
        self.settings, self.dev_share = settings, share
        self.name, self.reader, self.path = settings.name, settings.reader, settings.path
        self.columns, self.max_length = dict(settings.columns or {}), settings.max_length
        self.metrics, self.pooling = list(metrics), settings.pooling
        self.label_names = [str(label) for label in label_names] if label_names else None
        # split -> the file name that a leader board asks for
        self.submission = dict(submission or {})
        self.transform = transform or Transform()
        asked = {self.head, *self.transform.heads}
        self.facts = replace(self.facts, heads=frozenset(asked), terms=frozenset(asked))
        # of metrics whose exact definition has one, once `score` has computed them
        self.signatures: dict[str, str] = {}

    @property
    def remarks(self) -> list[str]:
        """On the files that were read: what a score should be seen with."""
        return []

    @property
    def outputs(self) -> int:
        """How many logits the head has to give."""
        return len(self.names)

    @property
    def names(self) -> list[str]:
        """The label names in the order of the logits; `fit_labels` must have seen the training
        split.
        """
        if self.label_names is None:
            raise ValueError(f"the labels of task '{self.name}' are not known yet")
        return self.label_names

    def has(self, split: str) -> bool:
        """Whether `task.path` has a file of that split, or one to hold dev out of."""
        if split == "dev" and self.held_share:
            return bool(self._halves[1])
        return not (split.startswith("dev") and files.is_single(self.path)) and self.has_file(split)

    def has_file(self, split: str) -> bool:
        return self.reader.has(self.path, split)

    @property
    def held_share(self) -> float:
        """The share of the training examples that is dev; 0 where dev has a file of its own."""
        if files.is_single(self.path):
            return DEV_SHARE if self.dev_share is None else self.dev_share
        return self.dev_share if self.dev_share and not self.has_file("dev") else 0.0

    @cached_property
    def _halves(self) -> tuple[list[Example], list[Example]]:
        examples = self.reader.read(self.path, "train", self.columns)
        return hold_out(examples, self.held_share, unit=self.unit, labels=self.labels_of)

    def unit(self, example: Example) -> str:
        """What stays together where dev is held out of train: examples of the same texts."""
        return "\t".join(str(value) for name, value in example.fields.items() if name != "answers")

    def labels_of(self, example: Example) -> Sequence[str]:
        """The labels that training must have seen before it can answer this example."""
        return ()

    def read(self, split: str) -> list[Example]:
        known = [*self.reader.splits, *(self.path if isinstance(self.path, Mapping) else ())]
        if split not in known:
            raise ConfigError("split", split, f"one of {', '.join(known)}{nearest(split, known)}")
        if split in ("train", "dev") and self.held_share:
            return list(self._halves[split == "dev"])
        return self.reader.read(self.path, split, self.columns)

    @property
    def decided(self) -> dict[str, Any]:
        """Settings as `fit_labels` found them in the training split: every checkpoint carries
        them.
        """
        return {} if self.label_names is None else {"label_names": self.label_names}

    @property
    def longest(self) -> int:
        """Tokens of the longest row that the model has to have places for."""
        return self.max_length

    def fitting(self, places: int) -> dict[str, int]:
        """Lengths, by the names of their settings, of which the longest row has `places` tokens."""
        return {"max_length": places}

    def check_vocabulary(self, size: int) -> None:
        """ConfigError for a setting that a vocabulary of `size` tokens does not allow."""

    @property
    def best_is_largest(self) -> bool:
        """Of the first metric, which chooses the best checkpoint."""
        return True

    def texts(self, example: Example) -> list[str]:
        """What a new tokenizer learns from."""
        return [
            " ".join(value) if isinstance(value, list) else value
            for name, value in example.fields.items()
            if name != "answers"
        ]

    def parse(self, line: str, number: int) -> Example:
        """One line of a text file, unlabelled: tab-separated in the order of the task's text
        columns; else ValueError.
        """
        raise NotImplementedError(type(self).__name__)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        """Learn the label names from the training split, or check it against those that the
        config states.
        """
        raise NotImplementedError(type(self).__name__)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        """All rows of a split, padded to the longest; an example may make several,
        `values.example` numbers it.
        """
        raise NotImplementedError(type(self).__name__)

    def noise(self, vocab: Vocab) -> Noise | None:
        """What hides parts of the rows in training, afresh in every epoch; None: they are
        trained on as they are.
        """
        return None

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """What `predict` reads, by name, `[B, ...]`; a second dimension of T is padded to the
        split's longest row.
        """
        raise NotImplementedError(type(self).__name__)

    @property
    def answered(self) -> tuple[str, ...]:
        """Names of the logits of one example, or of one word."""
        return (self.head,)

    def places(
        self, logits: Mapping[str, Tensor], batch: Batch
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """By the names in `answered`: `[P, K]` logits over K answers each, and `[P]` bool, where
        it is known which is right.
        """
        gold = batch.require(f"labels.{self.head}")
        asked = (gold != IGNORE).view(len(gold), -1).any(1)
        return {
            name: (found if found.ndim > 1 else found[:, None], asked)
            for name, found in logits.items()
        }

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        raise NotImplementedError(type(self).__name__)

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        return self.transform.forward(self, model, batch)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.head: batch.counts[self.head], **self.transform.counts(batch)}

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        """One JSON-able prediction for each example, with everything that `score` needs.

        Its keys are the task's own. `plmctl report` reads these, where they are there:
        `id`: of the example; `gold` and `guess`: its label and the predicted one; `probabilities`:
        {label: probability}, or a list by the number that `guess` is.
        """
        raise NotImplementedError(type(self).__name__)

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The metrics of `predictions`, a function of them alone, so that saved predictions give
        the same digits again.
        """
        raise NotImplementedError(type(self).__name__)

    def pooled(self, model: Model, batch: Batch, *, together: bool = False) -> Tensor:
        """[N, W'] the features of the tokens that stand for rows, through the pooler where the
        model has one.

        `together`: those of all rows of an example are added first.
        """
        assert batch.anchors is not None
        features = features_of(model, batch)[batch.anchors[:, 0], batch.anchors[:, 1]]
        features = add_rows(features, batch) if together else features
        return pool(model, features)


def cut(text: str, length: int) -> str:
    """`text`, or its beginning with dots behind it."""
    return text if len(text) <= length else f"{text[:length]}..."


def label_ids(labels: Iterable[tuple[str, str]], names: Sequence[str]) -> list[int]:
    """The numbers of (label, place) pairs; DataError for a label that training has never seen."""
    ids = {name: number for number, name in enumerate(names)}
    found = []
    for label, place in labels:
        if label not in ids:
            shown = cut(", ".join(names), 160)
            raise DataError(
                f"label '{cut(str(label), 60)}' was never seen in training{nearest(label, names)};"
                f" known: {shown}",
                file=place,
                fix="correct the label, or train on data that has it",
            )
        found.append(ids[label])
    return found
