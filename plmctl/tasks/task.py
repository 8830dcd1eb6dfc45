"""A fine-tuning task turns examples into rows and labels, and has one head, one loss and its
metrics.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError, nearest
from plmctl.core.fields import Field
from plmctl.core.folding import fold_name
from plmctl.core.parts import base_of
from plmctl.heads.base import About, pool
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import POOLINGS
from plmctl.models.base import Model
from plmctl.noise.base import Noise
from plmctl.objectives.base import Objective, Output
from plmctl.tasks.readers import files
from plmctl.tasks.readers.holding import hold_out, take_fold
from plmctl.tasks.readers.label_text import spell_label, spell_names
from plmctl.tasks.record import Example, Reader, as_number, cut
from plmctl.tasks.scores.metrics import LESS_IS_BETTER
from plmctl.tasks.transform import Transform, add_rows
from plmctl.text.vocab import Vocab

DEV_SHARE = 0.1  # the share of a single labelled file


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
        folds: parts into which the training examples are cut, for cross-validation: one is dev,
            and a dev file is not read; None: `dev_share` says what is dev.
        fold: the number of the part that is dev, from 0.
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
    folds: int | None = None
    fold: int = 0


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
    pipeline: str = ""  # Hugging Face's name of the task, for model cards; empty: none
    # the kind of its predictions, where models without pretraining can make them: class, number,
    # types, choice, tags
    answer: ClassVar[str] = ""
    chooses: bool = True  # among labels, each with a probability
    # its head predicts tokens of the vocabulary
    asks_tokens: bool = False
    # whether `plmctl eval` ranks a whole corpus by it
    ranks: bool = False
    # the predictions of the language-model heads that it looks up
    language_heads_about: About = "next"
    # its labels are classes or numbers, not texts that are written
    has_classes: bool = True
    shows_train: bool = False  # whether rows show labels of any of the training examples

    Settings: ClassVar[type[TaskSettings]] = TaskSettings
    # the lines that `parse` reads; "": none
    typed: ClassVar[str] = "texts that you type, one a line"

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
        _check_folds(settings)
        self.settings, self.dev_share = settings, share
        self.name, self.reader, self.path = settings.name, settings.reader, settings.path
        self.columns, self.max_length = dict(settings.columns or {}), settings.max_length
        self.metrics, self.pooling = list(metrics), settings.pooling
        self.label_names = [spell_label(label) for label in label_names] if label_names else None
        # split -> the file name that a leader board asks for
        self.submission = dict(submission or {})
        self.transform = transform or Transform()
        heads = self.facts.heads | {self.head} | self.transform.heads
        self.facts = replace(self.facts, heads=heads, terms=heads)
        # signatures of metrics whose exact definition has one, once `score` has computed them
        self.signatures: dict[str, str] = {}

    @property
    def remarks(self) -> list[str]:
        """Remarks on the files for a reader of the score."""
        return []

    def describe_scoring(self, examples: Sequence[Example]) -> str:
        """A sentence on labels that the metrics of the task do not fit; "" where they do."""
        return ""

    def describe_known(self, examples: Sequence[Example]) -> list[str]:
        """Lines on the share of the training examples that the task's knowledge covers; DataError
        if it covers nothing.
        """
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

    @property
    def states_labels(self) -> bool:
        """Whether the config states the names of labels, which files may spell otherwise."""
        return getattr(self.settings, "label_names", None) is not None

    def has(self, split: str) -> bool:
        """Whether `task.path` has a file of that split, or one to hold dev out of."""
        if split == "dev" and self.held_share:
            return bool(self._halves[1])
        return not (split.startswith("dev") and files.is_single(self.path)) and self.has_file(split)

    @property
    def dev_splits(self) -> list[str]:
        """The existing splits for validation."""
        return [name for name in self.reader.splits if name.startswith("dev") and self.has(name)]

    def has_file(self, split: str) -> bool:
        """Whether `task.path` has a file of that split."""
        return self.reader.has(self.path, split)

    @property
    def held_share(self) -> float:
        """The share of the training examples that is dev; 0 where dev has a file of its own."""
        if self.settings.folds:
            return 0.0 if self.dev_share == 0 else 1 / self.settings.folds
        if files.is_single(self.path):
            return DEV_SHARE if self.dev_share is None else self.dev_share
        return self.dev_share if self.dev_share and not self.has_file("dev") else 0.0

    @cached_property
    def _halves(self) -> tuple[list[Example], list[Example]]:
        examples = self.reader.read(self.path, "train", self.columns)
        if self.settings.folds:
            return take_fold(examples, self.settings.fold, self.settings.folds, unit=self.unit)
        return hold_out(examples, self.held_share, unit=self.unit, labels=self.labels_of)

    def unit(self, example: Example) -> str:
        """The unit that stays together where dev is held out of train: examples of one bundle, or
        of the same texts.
        """
        return example.bundle or "\t".join(
            str(value) for name, value in example.fields.items() if name != "answers"
        )

    def labels_of(self, example: Example) -> Sequence[str]:
        """The labels that training must have seen before this example can be predicted."""
        return ()

    def read(self, split: str) -> list[Example]:
        """The examples of a split; ConfigError for a name that is no split."""
        known = [*self.reader.splits, *(self.path if isinstance(self.path, Mapping) else ())]
        if split not in known:
            raise ConfigError("split", split, f"one of {', '.join(known)}{nearest(split, known)}")
        if split in ("train", "dev") and self.held_share:
            return list(self._halves[split == "dev"])
        return self.reader.read(self.path, split, self.columns)

    def read_file(
        self, file: Path, columns: Mapping[str, Any], *, labelled: bool = True
    ) -> list[Example]:
        """The examples of a file that is no split."""
        return self.reader.read_file(file, columns, labelled=labelled)

    def stream_file(self, file: Path, columns: Mapping[str, Any]) -> Iterator[Example] | None:
        """The unlabelled examples of a file that is no split, each when it is read; None where its
        reader, or the task, needs the whole file.
        """
        reader: Any = self.reader
        if self.streams and vars(type(reader)).get("streams", False):
            return reader.stream_file(file, columns, labelled=False)  # type: ignore[no-any-return]
        return None

    @property
    def streams(self) -> bool:
        """Whether `read_file` gives unlabelled examples as its reader does."""
        return type(self).read_file is Task.read_file

    @property
    def decided(self) -> dict[str, Any]:
        """Settings as `fit_labels` found them in the training split: every checkpoint carries
        them.
        """
        return {} if self.label_names is None else {"label_names": self.label_names}

    @property
    def longest(self) -> int:
        """Tokens of the longest row that the model has to have positions for."""
        return self.max_length

    @property
    def row_lengths(self) -> tuple[int, int]:
        """(tokens of a row at most, tokens that are written at most)."""
        return self.longest, 0

    @property
    def most_written(self) -> int:
        """Tokens of a row that a language-model head predicts, at most."""
        return 0

    @property
    def vectors(self) -> int | None:
        """How many vectors of states its head reads side by side, where the task itself picks them
        in the row; None: what stands for a row, through a pooler.
        """
        return None

    @property
    def head_settings(self) -> Mapping[str, Any]:
        """Settings of its head that follow from its own."""
        return {}

    @property
    def pattern(self) -> Mapping[str, Any] | None:
        """The node of a pattern that its rows need in addition to that of the model; None: no
        other.
        """
        return None

    @property
    def model_settings(self) -> Mapping[str, Any]:
        """{config path below `model`: value} of settings that its rows want of models that have
        them.
        """
        return {}

    @property
    def new_tokens(self) -> int:
        """How many rows of the table of tokens follow those of the tokenizer."""
        return self.transform.new_tokens

    @property
    def reads_ids(self) -> bool:
        """Whether its rows need the tokens of the vocabulary, so that characters of words alone do
        not do.
        """
        return self.asks_tokens or self.transform.adds_tokens

    def fit_lengths(self, longest: int) -> dict[str, int]:
        """The lengths by the names of their settings, chosen so that the longest row has `longest`
        tokens.
        """
        return {"max_length": longest}

    def check_vocabulary(self, size: int) -> None:
        """ConfigError for a setting that a vocabulary of `size` tokens does not allow."""

    def check_tokenizer(self, tokenizer: Any) -> None:
        """ConfigError for a setting that a tokenizer does not allow."""

    def check_model(self, model: Model) -> None:
        """ConfigError for a setting that a model, which may have no weights, does not allow."""

    @property
    def best_is_largest(self) -> bool:
        """Whether a larger value of the first metric, which chooses the checkpoint, is better."""
        return self.is_better_larger(self.metrics[0])

    def is_better_larger(self, metric: str) -> bool:
        """Whether a larger value of a metric is better."""
        return metric not in LESS_IS_BETTER

    def texts(self, example: Example) -> list[str]:
        """The texts that a new tokenizer learns from."""
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

    def gold_of(self, example: Example) -> Any:
        """The label as predictions have it."""
        return example.label

    def fit_labels(self, examples: Iterable[Example]) -> None:
        """Learn the label names from the training split, or check it against the names in the
        config.
        """
        raise NotImplementedError(type(self).__name__)

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        """All rows of a split, padded to the longest; an example may make several,
        `values.example` numbers it.
        """
        raise NotImplementedError(type(self).__name__)

    def noise(self, vocab: Vocab) -> Noise | None:
        """The noise that changes the rows in training, anew in every epoch; None: no noise."""
        return None

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """The inputs of `predict`, by name, `[B, ...]`; a second dimension of T is padded to the
        split's longest row.
        """
        raise NotImplementedError(type(self).__name__)

    @property
    def label_name(self) -> str:
        """The name of its labels and its loss: that of its head, if it is its own."""
        return self.head

    @property
    def logit_names(self) -> tuple[str, ...]:
        """Names of the logits of one example, or of one word."""
        return (self.label_name,)

    def check_compared(self) -> None:
        """Raise ConfigError where single logits say too little to be compared."""

    def flatten_logits(
        self, logits: Mapping[str, Tensor], batch: Batch
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """By the names in `logit_names`: `[P, K]` logits over K classes, and `[P]` bool: whether
        the label is known.
        """
        gold = batch.require(f"labels.{self.label_name}")
        labelled = (gold != IGNORE).view(len(gold), -1).any(1)
        chosen = {name: logits[name] for name in self.logit_names}
        return {
            name: (scores if scores.ndim > 1 else scores[:, None], labelled)
            for name, scores in chosen.items()
        }

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        """The summed loss of a batch from the logits of `logits`, as one term with its logs."""
        raise NotImplementedError(type(self).__name__)

    def forward(self, model: Model, batch: Batch, state: Any = None) -> Output:
        return self.transform.forward(self, model, batch)

    def counts(self, batch: Batch) -> dict[str, int]:
        own = {self.label_name: batch.counts[self.label_name]}
        return {**own, **self.transform.counts(batch)}

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        """One JSON-able prediction for each example, with everything that `score` needs.

        Its keys are the task's own. `plmctl report` reads these keys, if present: `id`: of the
        example; `gold` and `guess`: its label and the predicted one; `probabilities`: {label:
        probability}, or a list by the number that `guess` is.
        """
        raise NotImplementedError(type(self).__name__)

    def explain(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        """The predictions with all that an ensemble averages, which may be more than files have."""
        return self.predict(logits, rows, examples)

    def settle(self, joined: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The answer of an ensemble, joined from the results of `explain` for each member, with the
        task's additions.
        """
        return joined

    def decide(self, probabilities: Mapping[str, float]) -> Any:
        """The prediction for labels with these probabilities."""
        return max(probabilities, key=probabilities.__getitem__)

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The metrics of `predictions`, a function of them alone, so that saved predictions give
        the same digits again.
        """
        raise NotImplementedError(type(self).__name__)

    def submit(self, predictions: Sequence[Mapping[str, Any]], name: str = "") -> str:
        """The content of a file as the leader board takes it: GLUE's, `index <tab> prediction`,
        labels by name, scores with three digits; of a name in .jsonl SuperGLUE's, lines of `idx`
        and `label`.
        """
        if name.endswith(".jsonl"):
            rows = [{"idx": as_number(p["id"]), "label": p["guess"]} for p in predictions]
            return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        lines = [
            (
                f"{p['id']}\t{p['guess']:.3f}"
                if isinstance(p["guess"], float)
                else f"{p['id']}\t{p['guess']}"
            )
            for p in predictions
        ]
        return "\n".join(["index\tprediction", *lines]) + "\n"

    def pool_rows(self, model: Model, batch: Batch, *, together: bool = False) -> Tensor:
        """[N, W'] what stands for rows (heads/rows.py), through the pooler where the model has one.

        `together`: those of all rows of an example are added first.
        """
        rows = POOLINGS[self.pooling].read(features_of(model, batch), batch)
        return pool(model, add_rows(rows, batch) if together else rows)


def as_task(part: Any) -> Task | None:
    """The part at `task` in a config, if it is a task; None for a probe."""
    return part if isinstance(part, Task) else None


def _check_folds(settings: TaskSettings) -> None:
    """ConfigError for invalid folds, folds together with a share, or a number of fold that does not
    exist.
    """
    folds, fold = settings.folds, settings.fold
    if folds is None:
        if fold:
            raise ConfigError("task.fold", fold, "of task.folds", fix="task.folds=5")
        return
    if folds < 2:
        raise ConfigError("task.folds", folds, "2 or more, or null", fix="task.folds=5")
    if not 0 <= fold < folds:
        allowed = f"from 0 to {folds - 1}, as task.folds={folds}"
        raise ConfigError("task.fold", fold, allowed, fix="task.fold=0")
    if settings.dev_share:
        allowed = f"without task.folds={folds}, which say what is dev"
        raise ConfigError("task.dev_share", settings.dev_share, allowed, fix="task.dev_share=null")


def label_ids(
    labels: Iterable[tuple[str, str]], names: Sequence[str], *, learned: bool = False
) -> list[int]:
    """The numbers of (label, file:line) pairs; DataError for a label that is not in training.

    Args:
        learned: the names are those of the training split, which can have no others.
    """
    ids, labels = {name: number for number, name in enumerate(names)}, list(labels)
    place = next((place for label, place in labels if label not in ids), None)
    if place is not None:
        raise _explain_unknown([str(label) for label, _ in labels], names, place, learned=learned)
    return [ids[label] for label, _ in labels]


def _explain_unknown(
    labels: Sequence[str], names: Sequence[str], place: str, *, learned: bool
) -> DataError:
    """The error for the first of the labels that is none of the names."""
    found = dict.fromkeys(labels)
    label = next(label for label in found if label not in names)
    others = {fold_name(each): each for each in found if each not in names}
    meant = next((name for name in names if fold_name(name) == fold_name(label)), None)
    fix, what = "correct the label, or train on data that has it", "was never seen in training"
    if meant is not None:
        what = f"differs from '{meant}' in case, spaces, - or _ alone"
        fix = f"spell it '{meant}'"
        if not learned:
            fix = spell_names([others.get(fold_name(name), name) for name in names])
    elif not learned and len(found) == len(names) and found.keys().isdisjoint(names):
        what = "is none of the rows of the head, whose names may be others"
        fix = f"{spell_names(sorted(found))}, if these stand for {', '.join(names)} in this order"
    known = cut(", ".join(names), 160)
    hint = "" if meant is not None else nearest(label, names)
    return DataError(f"label '{cut(label, 60)}' {what}{hint}; known: {known}", file=place, fix=fix)
