"""The facts about a task that tools know before a file is read: its own, the needs of its rows,
and their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from plmctl.core.errors import ConfigError
from plmctl.heads.base import About
from plmctl.objectives.base import Facts


@dataclass(frozen=True)
class TaskFacts(Facts):
    """The facts about a task, in addition to those of every objective.

    Args:
        head: The name of the head that gives the logits.
        outputs: The number of logits that the head gives; None: one for each label name.
        own_label: The name of its labels and of its loss; "": that of its head.
        own_logits: The names of the logits of one example, or of one word; (): that of its labels.
        answer: The kind of its answers, for models without pretraining: class, number, types,
            choice, tags, span or text; "": another one.
        pipeline: The name of the task at Hugging Face, for model cards; "": none.
        typed: The texts that `parse` reads; "": none.
        chooses: Whether it chooses among labels, each with a probability.
        ranks: Whether `plmctl eval` ranks a whole corpus by it.
        scores_pairs: Whether it scores a text for a question by reading both together.
        has_classes: Whether its labels are classes or numbers, not texts that are written.
        writes: Whether its answers are texts that a model writes.
        shows_train: Whether rows show labels of any of the training examples.
        keyed: Whether its leader board takes one JSON object {id: answer}, not lines.
        incomparable: The error where single logits say too little to be compared.
    """

    head: str = ""
    outputs: int | None = None
    own_label: str = ""
    own_logits: tuple[str, ...] = ()
    answer: str = ""
    pipeline: str = ""
    typed: str = "texts that you type, one a line"
    chooses: bool = True
    ranks: bool = False
    scores_pairs: bool = False
    has_classes: bool = True
    writes: bool = False
    shows_train: bool = False
    keyed: bool = False
    incomparable: ConfigError | None = None

    @property
    def label_name(self) -> str:
        """The name of its labels and of its loss."""
        return self.own_label or self.head

    @property
    def logit_names(self) -> tuple[str, ...]:
        """The names of the logits of one example, or of one word."""
        return self.own_logits or (self.label_name,)


@dataclass(frozen=True)
class ModelNeeds:
    """The needs that the rows of a task have of a model.

    Args:
        new_tokens: The rows of the table of tokens after those of the tokenizer.
        reads_ids: Whether rows need the tokens of the vocabulary, so that characters of words alone
            do not do.
        vectors: The number of states that the head reads side by side, where the task itself picks
            them in the row; None: what stands for a row, through a pooler.
        heads_about: The tokens that its language-model heads predict.
        head_settings: Settings of its head that follow from its own.
        settings: {config path below `model`: value} of settings for models that have them.
        pattern: The node of a pattern that its rows need in addition to that of the model.
    """

    new_tokens: int = 0
    reads_ids: bool = False
    vectors: int | None = None
    heads_about: About = "next"
    head_settings: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    pattern: Mapping[str, Any] | None = None

    def __or__(self, other: ModelNeeds) -> ModelNeeds:
        """Its own needs and those of another part of the task."""
        return replace(
            self,
            new_tokens=self.new_tokens + other.new_tokens,
            reads_ids=self.reads_ids or other.reads_ids,
            vectors=other.vectors or self.vectors,
            head_settings={**self.head_settings, **other.head_settings},
            settings={**self.settings, **other.settings},
            pattern=other.pattern or self.pattern,
        )


@dataclass(frozen=True)
class RowLengths:
    """The lengths of the rows of a task, in tokens.

    Args:
        read: The most tokens of a row, or of a text that is read.
        written: The tokens that a language-model head writes at most.
        apart: Whether a decoder writes these in a row of its own; otherwise they stand behind the
            text.
    """

    read: int
    written: int = 0
    apart: bool = False

    @property
    def longest(self) -> int:
        """Tokens of the longest row that the model has to have positions for."""
        return max(self.read, self.written) if self.apart else self.read + self.written

    @property
    def sides(self) -> tuple[int, int]:
        """(most tokens of a row, most tokens that are written in a row of their own)."""
        return (self.read, self.written) if self.apart else (self.longest, 0)

    def fit(self, longest: int) -> dict[str, int]:
        """The lengths by the names of their settings, chosen so that the longest row has `longest`
        tokens; in one row, what is read and what is written keep their shares of it.
        """
        if not self.written:
            return {"max_length": longest}
        if self.apart:
            return {"max_length": min(self.read, longest), "max_target": min(self.written, longest)}
        target = max(1, longest * self.written // self.longest)
        return {"max_length": longest - target, "max_target": target}
