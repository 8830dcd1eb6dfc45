"""What every head says of itself, and which heads of a model can be asked about its last states."""

from __future__ import annotations

from typing import Literal, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.core.parts import base_of
from plmctl.models.base import Model

# what an answer is about: a row (by the token that stands for it), a token, the two ends of a span,
# the token of the text at a place, the token that follows (logits over the vocabulary both); or a
# head that makes features of features
About = Literal["rows", "tokens", "spans", "text", "next", "features"]

POOLER = "pooler"  # of `Model.heads`: what stands before heads about rows


@base_of("heads")
class Head(nn.Module):
    """Features `[..., W]` to logits `[..., K]`.

    `about`: what an answer is about. `of_task`: it is learned in fine-tuning, and so says what a
    fine-tuned model is for.
    """

    about: About
    of_task: bool = False


class ClassHead(Head):
    """A head whose logits are those of K classes, of which one is right."""

    def loss(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """features [P, W], labels [P] -> (summed cross-entropy in fp32 or wider, number of right
        first guesses), both without IGNORE.
        """
        return cross_entropy(self(features), labels)


class Asked(Protocol):
    """What objectives ask of a head: logits, and the loss of them."""

    def __call__(self, features: Tensor) -> Tensor: ...

    def loss(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """As `ClassHead.loss`; None where right guesses are not known."""
        ...


def head_of(model: Model, name: str) -> Asked:
    """The head called `name`, which an objective or a task asks for classes."""
    return cast(Asked, model.heads[name])


def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """logits [P, K], labels [P] -> as `ClassHead.loss`."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
    return total, (logits.argmax(-1) == labels).sum()


def pool(model: Model, features: Tensor) -> Tensor:
    """[N, W] the features of the tokens that stand for rows, through the pooler if there is one."""
    return model.heads[POOLER](features) if POOLER in model.heads else features


def heads_about(model: Model, *about: About) -> list[str]:
    """The names of the heads whose answers are about the first of `about`, then the next one."""
    return [name for each in about for name, head in model.heads.items() if about_of(head) == each]


def about_of(head: nn.Module) -> About | None:
    """What the answers of a head are about, if it says so."""
    return head.about if isinstance(head, Head) else None


def language_heads(model: Model) -> list[str]:
    """The heads that can be asked for tokens of a text that the model reads: first those that
    predict the next one.

    None where they read another stream, or what a decoder wrote.
    """
    backbone = model.backbone
    plain = "query" not in backbone.streams and backbone.writes != "target"
    return heads_about(model, "next", "text") if plain else []


def heads_of_states(model: Model) -> list[str]:
    """The heads that can be asked about the last states of a model: first those of tasks, then
    those of the text, then those about rows that pretraining left.
    """
    heads = {name: head for name, head in model.heads.items() if isinstance(head, Head)}
    return [
        *(name for name, head in heads.items() if head.of_task),
        *language_heads(model),
        *(name for name, head in heads.items() if head.about == "rows" and not head.of_task),
    ]
