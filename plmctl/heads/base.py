"""The base of every head, and the heads of a model that read its last states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.core.parts import base_of
from plmctl.models.base import Model

# the kind of a head's predictions: a label of a row (from one token) or of a token; the two ends of
# a span; the token of the text at a position, or the next token. The last two are logits over the
# vocabulary. "features" predicts nothing: it turns features into features
About = Literal["rows", "tokens", "spans", "text", "next", "features"]

WORDS: tuple[About, ...] = ("text", "next")  # those over the vocabulary

POOLER = "pooler"  # entry of `Model.heads` that precedes heads about rows


@base_of("heads")
class Head(nn.Module):
    """Features `[..., W]` to logits `[..., K]`.

    `about`: what it predicts. `of_task`: fine-tuning makes it, so it shows the purpose of a
    fine-tuned model. `compiled`: what its loss does with logits over a vocabulary is compiled.
    `by_label`: {tensor: its axes that have a block for each of K labels, in their order}.
    """

    about: About
    by_label: ClassVar[Mapping[str, Sequence[int]]] = {}
    of_task: bool = False
    compiled: bool = False

    def work(self) -> tuple[float, float] | None:
        """(multiply-adds, logits) of one position, on average; None: all of its matrices and
        tables serve every position.
        """
        return None


class ClassHead(Head):
    """A head whose logits are those of K classes, of which one is right."""

    by_label: ClassVar[Mapping[str, Sequence[int]]] = {"linear.weight": (0,), "linear.bias": (0,)}

    def loss(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """features [P, W], labels [P] -> (summed cross-entropy in fp32 or wider, number of right
        first guesses), both without IGNORE.
        """
        return cross_entropy(self(features), labels)

    def token_losses(self, features: Tensor, labels: Tensor) -> Tensor:
        """features [P, W], labels [P] -> [P] the negative log-likelihood of each label in fp32 or
        wider; 0 for IGNORE.
        """
        logits = widen(self(features))
        return F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none")


class ScoringHead(Protocol):
    """The part of a head that objectives need: logits and their loss."""

    def __call__(self, features: Tensor) -> Tensor: ...

    def loss(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """As `ClassHead.loss`; None where the number of right guesses is not known."""
        ...

    def token_losses(self, features: Tensor, labels: Tensor) -> Tensor:
        """As `ClassHead.token_losses`."""
        ...


def head_of(model: Model, name: str) -> ScoringHead:
    """The head called `name`, for an objective or a task that needs its loss."""
    return cast(ScoringHead, model.heads[name])


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """logits [P, K], labels [P] -> as `ClassHead.loss`."""
    logits = widen(logits)
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return total, (logits.argmax(-1) == labels).sum()


def widen(logits: Tensor) -> Tensor:
    """Logits in fp32, or wider where they are."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def pool(model: Model, features: Tensor) -> Tensor:
    """[N, W] the features of the tokens that stand for rows, through the pooler if there is one."""
    return model.heads[POOLER](features) if POOLER in model.heads else features


def heads_about(model: Model, *about: About) -> list[str]:
    """The names of the heads that predict the first of `about`, then those of the next one."""
    return [
        name for topic in about for name, head in model.heads.items() if about_of(head) == topic
    ]


def about_of(head: nn.Module) -> About | None:
    """The kind of a head's predictions, if the head states it."""
    return head.about if isinstance(head, Head) else None


def language_heads(model: Model) -> list[str]:
    """The heads that predict tokens of a text that the model reads: first those of the next
    token.

    None if they read another stream, or what a decoder wrote.
    """
    backbone = model.backbone
    plain = "query" not in backbone.streams and backbone.writes != "target"
    return heads_about(model, "next", "text") if plain else []


def heads_of_states(model: Model) -> list[str]:
    """The heads that read the last states of a model: first heads of tasks, then of the text, then
    heads about rows from pretraining.
    """
    heads = {name: head for name, head in model.heads.items() if isinstance(head, Head)}
    return [
        *(name for name, head in heads.items() if head.of_task),
        *language_heads(model),
        *(name for name, head in heads.items() if head.about == "rows" and not head.of_task),
    ]
