"""The base of most objectives: one head that predicts the tokens of one set of targets."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.heads.base import WORDS, about_of, head_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term


def ask(
    model: Model,
    batch: Batch,
    target: str,
    *,
    head: str | None = None,
    term: str | None = None,
    state: object = None,
) -> Output:
    """The summed cross-entropy of a head at the positions of `targets.<target>`, as one term.

    Args:
        head: name of the head; by default `target`.
        term: name of the term; by default `target`.
        state: the memory of the previous batch, for the backbone.
    """
    targets, hidden = batch.require(f"targets.{target}"), model(batch, state)
    name = head or target
    words = about_of(model.heads[name]) in WORDS
    states = (hidden.gather_words if words else hidden.gather)(targets.index)
    loss, right = head_of(model, name).loss(states, targets.ids)
    return make_output(term or target, loss, right, batch.counts[target], hidden.state)


def make_output(
    term: str,
    loss: Tensor,
    right: Tensor | None,
    count: int,
    state: Any = None,
    *,
    answers: Tensor | None = None,
) -> Output:
    """One term, with its accuracy where the number of right predictions is known.

    Args:
        answers: The right answers [P], where there are few kinds of them (`Output.answers`).
    """
    logs = {} if right is None else {f"acc/{term}": (right, count)}
    few = {} if answers is None else {term: answers}
    return Output({term: Term(loss)}, logs, state, answers=few)
