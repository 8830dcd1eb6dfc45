"""What every head says of itself, and which heads of a model can be asked about its last states."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from plmctl.core.parts import base_of
from plmctl.models.base import Model

# what an answer is about: a row (by the token that stands for it), a token, the two ends of a span,
# a token of the text itself (logits over the vocabulary); or a head that makes features of features
About = Literal["rows", "tokens", "spans", "text", "features"]

POOLER = "pooler"  # of `Model.heads`: what stands before heads about rows


@base_of("heads")
class Head(nn.Module):
    """Features `[..., W]` to logits `[..., K]`.

    `about`: what an answer is about. `of_task`: it is learned in fine-tuning, and so says what a
    fine-tuned model is for.
    """

    about: About
    of_task: bool = False


def pool(model: Model, features: Tensor) -> Tensor:
    """[N, W] the features of the tokens that stand for rows, through the pooler if there is one."""
    return model.heads[POOLER](features) if POOLER in model.heads else features


def heads_of_states(model: Model) -> list[str]:
    """The heads that can be asked about the last states of a model: first those of tasks, then
    those of the text, then those about rows that pretraining left.

    A head of the text is not asked where it reads another stream, or what a decoder wrote.
    """
    backbone = model.backbone
    plain = "query" not in backbone.streams and backbone.writes != "target"
    heads = {name: head for name, head in model.heads.items() if isinstance(head, Head)}
    return [
        *(name for name, head in heads.items() if head.of_task),
        *(name for name, head in heads.items() if head.about == "text" and plain),
        *(name for name, head in heads.items() if head.about == "rows" and not head.of_task),
    ]
