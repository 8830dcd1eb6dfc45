"""A fine-tuning task turns examples into rows and labels, and has one head, one loss and its
metrics.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import base_of
from plmctl.core.terminal import remark
from plmctl.models.base import Model
from plmctl.objectives.base import Objective, Output
from plmctl.tasks.answers.base import Answer
from plmctl.tasks.facts import ModelNeeds, RowLengths, TaskFacts
from plmctl.tasks.layouts.base import RowLayout, RowSettings
from plmctl.tasks.readers.label_codes import (
    LabelNames,
    describe_named,
    name_by_files,
    name_examples,
    names_of,
    read_codes,
)
from plmctl.tasks.record import Arrays, Example, Examples, Predictions, Reader
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.directions import Directions
from plmctl.tasks.splits import Splits
from plmctl.tasks.transform import Transform

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The settings of every task in the config; a family of tasks adds its own settings.

    Args:
        name: The name of the task, for messages and run directories.
        reader: knows the layout of the files.
        columns: Columns to read; empty for files without columns.
        max_length: tokens of a row at most.
        metrics: The metrics; the first one chooses the best checkpoint.
        pooling: The state that stands for a row: the "first" token of an encoder, the "last" of a
            causal decoder, the "mean" of all. The value "compare" joins the means of its two texts.
        sees_later: Whether the state of every token has read the whole text. Either the pattern
            lets it see later tokens, or it is a decoder's, whose encoder has read the text.
        path: a directory, a file, or the files of the splits.
        dev_share: the share of the training examples that is dev where no file is; None:
            `DEV_SHARE` of a single file, otherwise none.
        test_share: share of the training examples for test, if there is no test file, chosen by a
            hash of their text; task.dev_share is a share of the rest; None: none.
        folds: parts into which the training examples are cut, for cross-validation: one is dev,
            and a dev file is not read; None: `dev_share` says what is dev.
        fold: the number of the part that is dev, from 0.
        stratified: Whether the parts of the training examples have the same share of each label.
    """

    name: str
    reader: Reader
    max_length: int
    metrics: Sequence[str]
    columns: Mapping[str, Any] = field(default_factory=dict)
    pooling: str = "first"
    sees_later: bool = True
    path: Any = None
    dev_share: float | None = None
    test_share: float | None = None
    folds: int | None = None
    fold: int = 0
    stratified: bool = False


def signature_of(settings: type[TaskSettings]) -> inspect.Signature:
    """The keyword parameters that a class of settings takes, with their types."""
    hints = typing.get_type_hints(settings, include_extras=True)
    signature = inspect.signature(settings)
    typed = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=typed)


@base_of("task")
class Task(Objective):
    """Fine-tuning is an Objective on labels: a Task reads files, encodes examples to Rows, names
    its head, scores predictions.

    Call order: `read` every split, `fit_labels(train)`, then `encode`, training through the
    Objective interface, `predict`, `score`. A task of four values (`TableTask`) has a reader, a
    `layout`, an `answer` and `scores`, which these methods ask; other tasks have methods of their
    own. `metrics` names what `score` returns, `lower` those of which a lower value is better, where
    no `scores` state it; `percent` are metrics from 0 to 100. `Settings` is what the config says of
    a family: its constructor takes these by name.
    """

    lower: frozenset[str] = frozenset()
    percent: frozenset[str] = frozenset()

    fields: Mapping[str, Field] = {
        "values.example": Field("[n]", "int", "number of the example a fine-tuning row comes from"),
        "values.group": Field(
            "[n]",
            "int",
            "rows with the same number, neighbours, make one example (choices; both orders of a"
            " pair)",
        ),
    }
    facts: TaskFacts = TaskFacts()
    requires: ModelNeeds = ModelNeeds()

    Settings: ClassVar[type[TaskSettings]] = TaskSettings

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the settings of the class as what it takes."""
        super().__init_subclass__(**kwargs)
        if "Settings" in vars(cls):
            cls.__signature__ = signature_of(cls.Settings)  # type: ignore[attr-defined]
        elif "__init__" in vars(cls):  # settings of its own, one by one
            signature = inspect.signature(cls.__init__)
            cls.__signature__ = signature.replace(  # type: ignore[attr-defined]
                parameters=list(signature.parameters.values())[1:]
            )

    def __init__(
        self,
        settings: TaskSettings,
        *,
        metrics: Sequence[str] | None = None,
        label_names: LabelNames | None = None,
        submission: Mapping[str, str] | None = None,
        transform: Transform | None = None,
        layout: RowLayout | None = None,
        answer: Answer | None = None,
        scores: Scores | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.max_length = settings, settings.max_length
        self.name = settings.name
        self.columns = dict(settings.columns or {})
        self.splits = Splits(
            settings.reader,
            settings.path,
            self.unit,
            self.labels_of,
            self.columns,
            dev_share=settings.dev_share,
            test_share=settings.test_share,
            folds=settings.folds,
            fold=settings.fold,
            stratified=settings.stratified,
            change=partial(_settle, self),
            streams=answer is None or answer.streams,
        )
        # whether the config states the names of labels, which files may spell otherwise
        self.states_labels = getattr(settings, "label_names", None) is not None
        self.metrics = need(scores).check(settings.metrics) if metrics is None else list(metrics)
        self.pooling = settings.pooling
        self.label_names = names_of(label_names) if label_names else None
        self.label_codes = read_codes(label_names)  # {code in files: name}
        # split -> the file name that a leader board asks for
        self.submission = dict(submission or {})
        self.transform = transform or Transform()
        self.layout, self.answer, self.scores = layout, answer, scores
        if answer is not None:
            answer.check_columns(self.columns)
        heads = self.facts.heads | {self.facts.head} | self.transform.heads
        self.facts = replace(self.facts, heads=heads, terms=heads)
        if answer is not None:
            self.facts = replace(self.facts, incomparable=answer.facts.incomparable)
        self.requires |= self.transform.requires
        self.rows = RowSettings(
            self.max_length, self.pooling, self.transform, settings.sees_later, self.name
        )
        if layout is not None:
            self.requires |= layout.requires(self.rows)
        if answer is not None:
            self.requires |= answer.requires
        self.lengths = RowLengths(settings.max_length)
        # signatures of metrics whose exact definition has one, once `score` has computed them
        self.signatures: dict[str, str] = {}
        _fit_metrics(self)

    @property
    def remarks(self) -> list[str]:
        """Remarks on the files for a reader of the score."""
        return self.answer.remarks if self.answer else []

    def describe_scoring(self, examples: Examples) -> str:
        """A sentence on labels that the metrics of the task do not fit; "" where they do."""
        return self.answer.describe_scoring(examples, self.splits) if self.answer else ""

    def describe_known(self, examples: Examples) -> list[str]:
        """Lines on the share of the training examples that the task's knowledge covers; DataError
        if it covers nothing.
        """
        return self.layout.describe_known(examples, self.splits.path) if self.layout else []

    @property
    def directions(self) -> Directions:
        """The metrics of which a lower value is better."""
        stater = self if self.scores is None else self.scores
        return Directions(stater, self.metrics, bases=(Scores, Task))

    def is_percent(self, metric: str) -> bool:
        """Whether a metric, or its value on a slice (`f1/wikipedia`), is from 0 to 100 and not from
        0 to 1.
        """
        stater = self if self.scores is None else self.scores
        return not stater.percent.isdisjoint(metric.split("/"))

    def describe_metric(self, name: str) -> str:
        """The kind of a metric, where several have its name; ""."""
        return self.scores.describe_metric(name) if self.scores else ""

    @property
    def meanings(self) -> dict[str, str]:
        """{metric: its kind} of the task; plain ones have none."""
        return {name: said for name in self.metrics if (said := self.describe_metric(name))}

    @property
    def names(self) -> list[str]:
        """The label names in the order of the logits; `fit_labels` must have seen the training
        split.
        """
        if self.label_names is None:
            raise ValueError(f"the labels of task '{self.name}' are not known yet")
        return self.label_names

    def unit(self, example: Example) -> str:
        """The unit that stays together where dev is held out of train: examples of one bundle, or
        of the same texts.
        """
        return self.layout.unit(example) if self.layout else example.unit

    def labels_of(self, example: Example) -> Sequence[str]:
        """The labels that training must have seen before this example can be predicted."""
        return self.answer.seen(example) if self.answer else ()

    def read(self, split: str) -> list[Example]:
        """The examples of a split; ConfigError for a name that is no split."""
        return self.splits.read(split)

    @property
    def decided(self) -> dict[str, Any]:
        """Settings as `fit_labels` found them in the training split: every checkpoint carries
        them.
        """
        known: dict[str, Any] = (
            {}
            if self.label_names is None
            else {"label_names": self.label_codes or self.label_names}
        )
        if self.settings.metrics is None:
            known["metrics"] = self.metrics
        for part in (self.layout, self.answer):
            known |= part.decided if part else {}
        return known

    def check_tokenizer(self, tokenizer: Any) -> None:
        """ConfigError for a setting that a tokenizer does not allow."""
        if self.layout:
            self.layout.check_tokenizer(tokenizer)

    def check_model(self, model: Model, vocab_size: int = 0) -> None:
        """ConfigError for a setting that a model, which may have no weights, does not allow.

        Args:
            model: The model, maybe without weights.
            vocab_size: The number of tokens in the vocabulary; 0: not known yet.
        """
        if self.layout:
            self.layout.check_model(model)
        if self.answer:
            self.answer.check_model(model)

    def texts(self, example: Example) -> list[str]:
        """The texts that a new tokenizer learns from."""
        return self.layout.texts(example) if self.layout else example.texts

    def parse(self, line: str, number: int) -> Example:
        """One line of a text file, unlabelled: tab-separated in the order of the task's text
        columns; else ValueError.
        """
        return need(self.layout).parse(line, number, self.columns)

    def gold_of(self, example: Example) -> Any:
        """The label as predictions have it."""
        return self.answer.gold(example) if self.answer else example.label

    def fit_labels(self, examples: Iterable[Example]) -> None:
        """Learn the label names from the training split, or check it against the names in the
        config.
        """
        examples = list(examples)
        if self.layout:
            self.layout.fit(examples)
        self.label_names = need(self.answer).fit(
            examples, self.label_names, stated=self.states_labels
        )
        _fit_metrics(self)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        """All rows of a split, padded to the longest; an example may make several,
        `values.example` numbers it.
        """
        rows = need(self.layout).encode(examples, tokenizer, self.rows)
        return need(self.answer).label(rows, examples, self.label_names)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """The inputs of `predict`, by name, `[B, ...]`; a second dimension of T is padded to the
        split's longest row.
        """
        head, answer = self.facts.head, need(self.answer)
        answer.attach(model)
        states = need(self.layout).read(model, batch, self.rows, together=answer.together)
        return {head: answer.logits(model.heads[head], states)}

    def flatten_logits(
        self, logits: Mapping[str, Tensor], batch: Batch
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """By the names in `facts.logit_names`: `[P, K]` logits over K classes, and `[P]` bool:
        whether the label is known.
        """
        if self.answer:
            label = self.facts.label_name
            return {label: self.answer.flatten(logits[label], batch)}
        gold = batch.require(f"labels.{self.facts.label_name}")
        labelled = (gold != IGNORE).view(len(gold), -1).any(1)
        chosen = {name: logits[name] for name in self.facts.logit_names}
        return {
            name: (scores if scores.ndim > 1 else scores[:, None], labelled)
            for name, scores in chosen.items()
        }

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        """The summed loss of a batch from the logits of `logits`, as one term with its logs."""
        return need(self.answer).loss(logits[self.facts.label_name], batch, self.label_names)

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        return self.transform.forward(self, model, batch)

    def counts(self, batch: Batch) -> dict[str, int]:
        own = {self.facts.label_name: batch.counts[self.facts.label_name]}
        return {**own, **self.transform.counts(batch)}

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        """One JSON-able prediction for each example, with everything that `score` needs.

        Its keys are the task's own. `plmctl report` reads these keys, if present: `id`: of the
        example; `gold` and `guess`: its label and the predicted one; `probabilities`: {label:
        probability}, or a list by the number that `guess` is.
        """
        scores = logits[self.facts.label_name]
        return need(self.answer).predict(scores, rows, examples, self.label_names)

    def score(self, predictions: Predictions) -> dict[str, float]:
        """The metrics of `predictions`, a function of them alone, so that saved predictions give
        the same digits again.
        """
        return need(self.scores)(predictions, self.metrics)


def need(value: Value | None) -> Value:
    """The layout, answer or scores of a task that has no method of its own instead."""
    if value is None:
        raise NotImplementedError("a task without this method needs a layout, an answer and scores")
    return value


def _settle(task: Task, examples: list[Example]) -> list[Example]:
    """Examples that were read, with the names of their labels, as the answer spells them."""
    stated = getattr(task.splits.reader, "label_names", None)
    if task.label_codes and stated is not None and stated.found:
        if named := describe_named(task.label_codes, stated.found):
            remark(f"{task.splits.path}: {named}")  # a later task of the run has these names
        task.label_codes = name_by_files(task.label_codes, stated.found)
        task.label_names = [*task.label_codes.values()]
    examples = name_examples(examples, task.label_codes)
    if task.answer is not None:
        settled = task.answer.settle(examples, task.label_names, task.splits)
        examples, task.label_names = settled
        _fit_metrics(task)
    return list(examples)


def _fit_metrics(task: Task) -> None:
    """Choose the metrics that fit the labels, once these are known; ConfigError where none do."""
    if task.scores is not None and task.label_names is not None:
        task.scores.check_names(task.label_names)
    if task.answer is not None and task.label_names is not None:
        stated = task.settings.metrics is not None
        task.metrics = task.answer.fit_metrics(task.metrics, task.label_names, stated=stated)


def as_task(part: Any) -> Task | None:
    """The part at `task` in a config, if it is a task; None for a probe."""
    return part if isinstance(part, Task) else None
