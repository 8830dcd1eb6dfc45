"""GPT's changes to the rows of a task: tokens of its own around texts, pairs in both orders, and
an additional language-model loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import pool
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import POOLINGS
from plmctl.models.base import Model, Once
from plmctl.objectives.base import Objective, Output, Term
from plmctl.objectives.clm import CLM
from plmctl.tasks.facts import ModelNeeds
from plmctl.text.vocab import Vocab

OWN = ("bos", "sep", "eos")  # the roles of start, delimiter and extract


@part_of("transform")
class Transform:
    """The input transformations of Radford et al. (2018, sec. 3.3), each by itself; without any,
    rows are as BERT's.

    `own_tokens`: `start A extract` and `start A delimiter B extract`, three new rows of the table
    behind the tokenizer's own, so that nothing the checkpoint knows gets another meaning; the
    extract token stands for the row. `both_orders`: a pair that has no order (`task.symmetric`)
    makes two rows, whose states are added before the head. `language_model`: the weight of the loss
    of the next tokens of the rows, specials included, in addition to that of the task (eq. 5: 0.5).
    Differs: that loss is a mean over tokens; the released code means over a row's tokens, then over
    rows.
    """

    def __init__(
        self,
        *,
        own_tokens: bool = False,
        both_orders: bool = False,
        language_model: float = 0.0,
        causal: bool = True,
    ) -> None:
        if language_model < 0:
            raise ConfigError("language_model", language_model, "0 (none) or a weight above it")
        if language_model and not causal:
            allowed = "0: in this model every token sees the token to predict"
            fix = "language_model=0, or a checkpoint whose pattern is causal"
            raise ConfigError("language_model", language_model, allowed, fix=fix)
        self.own_tokens = own_tokens
        self.both_orders = both_orders
        self.language_model = language_model
        self.clm = CLM()

    @property
    def new_tokens(self) -> int:
        """How many rows of the table of tokens follow those of the tokenizer."""
        return len(OWN) if self.own_tokens else 0

    @property
    def requires(self) -> ModelNeeds:
        """Its needs: tokens of the vocabulary, which it predicts or adds some to."""
        ids = bool(self.new_tokens or self.language_model)
        return ModelNeeds(new_tokens=self.new_tokens, reads_ids=ids)

    @property
    def heads(self) -> frozenset[str]:
        """The heads that it needs in addition to that of the task."""
        return self.clm.facts.heads if self.language_model else frozenset()

    def vocab(self, vocab: Vocab) -> Vocab:
        """The same tokens, in GPT's template where it has tokens of its own."""
        if not self.own_tokens:
            return vocab
        own: dict[str, Any] = {role: vocab.size + number for number, role in enumerate(OWN)}
        return replace(
            vocab, cls=None, **own, single=("bos", "A", "eos"), pair=("bos", "A", "sep", "B", "eos")
        )

    def add_targets(self, rows: Rows) -> Rows:
        """`rows`, with targets.clm if there is a language-model loss."""
        return rows.with_targets(**self.clm.labels(rows)) if self.language_model else rows

    def counts(self, batch: Batch) -> dict[str, int]:
        """{term: summands} of the language-model loss; empty without one."""
        return self.clm.counts(batch) if self.language_model else {}

    def forward(self, task: Objective, model: Model, batch: Batch) -> Output:
        """The loss of the task, and that of the language model from the same states."""
        if not self.language_model:
            return task.loss(task.logits(model, batch), batch)  # type: ignore[operator]
        once = Once(model)
        out = task.loss(task.logits(once, batch), batch)  # type: ignore[operator]
        also = self.clm(once, batch)
        terms = {name: Term(term.total, self.language_model) for name, term in also.terms.items()}
        return replace(out, terms={**out.terms, **terms}, logs={**out.logs, **also.logs})


class Pooled(Protocol):
    """Settings with the pooling of rows."""

    @property
    def pooling(self) -> str: ...


def pool_rows(task: Pooled, model: Model, batch: Batch, *, together: bool = False) -> Tensor:
    """[N, W'] what stands for rows (heads/rows.py), through the pooler where the model has one.

    Args:
        task: A task or the settings of its rows, whose `pooling` is read.
        model: backbone and heads.
        batch: a micro-batch.
        together: Whether the states of all rows of an example are added first.
    """
    how = POOLINGS[task.pooling]
    rows = how.read(features_of(model, batch), batch)
    if not together or "group" not in batch.values:
        return pool(model, rows)
    if how.late:
        allowed = "a pooling with one vector a row: rows of one example are added up"
        raise ConfigError("row_pooling", task.pooling, allowed, fix="row_pooling=mean")
    return pool(model, add_rows(rows, batch))


def add_rows(states: Tensor, batch: Batch) -> Tensor:
    """[N, W] where several rows make one example: for each the sum over them all."""
    group = batch.values.get("group")
    return (
        states
        if group is None
        else states.new_zeros(states.shape).index_add(0, group, states)[group]
    )
