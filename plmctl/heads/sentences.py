"""The vector of a whole text out of the states of its tokens: one definition for `plmctl embed`,
tasks and objectives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.heads.base import POOLER, widen
from plmctl.heads.features import HIDDEN, read
from plmctl.heads.term_weights import weigh_terms
from plmctl.models.base import Hidden, Model

Vectors = TypeVar("Vectors", Tensor, np.ndarray)

SENTENCE = "sentence"  # of `Model.heads`: what the vectors of a task that compares texts pass
LM = "mlm"  # of `Model.heads`: what predicts masked tokens
POOLED = "pooled"  # the track of the real tokens that poolings read, where these are not all

# states [B, ..., T, W], which tokens are real [B, T] -> [B, ..., W]; without a token, zeros
Reduce = Callable[[Tensor, Tensor], Tensor]


def average_tokens(states: Tensor, real: Tensor) -> Tensor:
    """The mean over the real tokens."""
    shown = _beside(states, real)
    return states.masked_fill(~shown, 0).sum(-2) / shown.sum(-2).clamp(min=1)


def take_largest(states: Tensor, real: Tensor) -> Tensor:
    """The largest value of each column over the real tokens."""
    shown = _beside(states, real)
    largest = states.masked_fill(~shown, -torch.inf).amax(-2)
    return largest.masked_fill(~shown.any(-2), 0)


def take_first(states: Tensor, real: Tensor) -> Tensor:
    """The state of the first real token."""
    return states.movedim(-2, 1)[torch.arange(states.shape[0]), find_first(real)]


def take_last(states: Tensor, real: Tensor) -> Tensor:
    """The state of the last real token."""
    return states.movedim(-2, 1)[torch.arange(states.shape[0]), find_last(real)]


def average_by_root(states: Tensor, real: Tensor) -> Tensor:
    """The sum over the n real tokens, divided by sqrt(n)."""
    shown = _beside(states, real)
    return states.masked_fill(~shown, 0).sum(-2) / shown.sum(-2).clamp(min=1).sqrt()


def average_weighted(states: Tensor, real: Tensor) -> Tensor:
    """The mean over the real tokens, the token in column t weighing t + 1 (Muennighoff, 2022,
    arXiv:2202.08904, eq. 2).
    """
    columns = torch.arange(1, real.shape[1] + 1, device=real.device)
    shown = _beside(states, real * columns)
    return (states * shown).sum(-2) / shown.sum(-2).clamp(min=1)


def find_first(real: Tensor) -> Tensor:
    """[B] the position of the first real token of each row."""
    return real.long().argmax(1)


def find_last(real: Tensor) -> Tensor:
    """[B] the position of the last real token of each row."""
    return real.shape[1] - 1 - real.long().flip(1).argmax(1)


def _beside(states: Tensor, real: Tensor) -> Tensor:
    """[B, 1..., T, 1] `real` in the shape of the states."""
    return real.view(real.shape[0], *[1] * (states.dim() - 3), real.shape[1], 1)


@dataclass(frozen=True)
class TextPooling:
    """A way from states to the vector of a text.

    Args:
        reduce: over the tokens.
        layers: The layers whose states are averaged first; 0 is the embedding output.
        head: The head of the model through which the result passes; "": none.
        terms: Whether the result has a weight for each token of the vocabulary, mostly 0, by the
            head `LM`; `reduce` is that of `weigh_terms` then.
    """

    reduce: Reduce
    layers: tuple[int, ...] = (-1,)
    head: str = ""
    terms: bool = False

    @property
    def needed(self) -> str:
        """The name of the head that the model must have; "": none."""
        return LM if self.terms else self.head


# of the tokens of any layer
REDUCTIONS: dict[str, Reduce] = {
    "mean": average_tokens,
    "first": take_first,
    "max": take_largest,
    "last": take_last,
    "mean_sqrt": average_by_root,
    "weighted": average_weighted,
}
TEXT_POOLINGS: dict[str, TextPooling] = {
    **{name: TextPooling(reduce) for name, reduce in REDUCTIONS.items()},
    # of the first and the last layer (Su et al., 2021, arXiv:2103.15316; Gao et al., 2021, tab. 5)
    "first_last": TextPooling(average_tokens, layers=(1, -1)),
    "pooler": TextPooling(take_first, head=POOLER),  # that of next sentences (Devlin et al., 2019)
    "splade": TextPooling(take_largest, terms=True),  # (Formal et al., 2021, arXiv:2109.10086)
}


def pool_text(model: Model, batch: Batch, pooling: str, hidden: Hidden | None = None) -> Tensor:
    """[B, W] the vector of each row, in fp32 or wider.

    Args:
        model: The model whose states are read.
        pooling: a name of `TEXT_POOLINGS`, or several joined by "+", whose vectors are joined.
        hidden: the output of the backbone if it is known already, with all layers recorded.

    Raises:
        ConfigError: the model lacks the head that this pooling needs.
    """
    if len(names := pooling.split("+")) > 1:
        hidden = model(batch, record=HIDDEN) if hidden is None else hidden
        return torch.cat([pool_text(model, batch, name, hidden) for name in names], -1)
    how = TEXT_POOLINGS[pooling]
    if how.needed and how.needed not in model.heads:
        others = ", ".join(name for name, other in TEXT_POOLINGS.items() if not other.needed)
        allowed = f"{others}: this model has no {how.needed}"
        raise ConfigError("pooling", pooling, allowed, fix="pooling=first")
    if how.layers == (-1,):
        states = read(model, batch, hidden)
    else:
        hidden = model(batch, record=HIDDEN) if hidden is None else hidden
        layers = [hidden.recorded["hidden"][layer] for layer in how.layers]
        states = torch.stack(layers).mean(0)
    text = batch.seqs[batch.input]
    real = text.tracks.get(POOLED, text.real)
    if how.terms:
        return weigh_terms(model.heads[LM], states, real)
    vectors = how.reduce(widen(states), real)
    return widen(model.heads[how.head](vectors)) if how.head else vectors


def embed_text(model: Model, batch: Batch, pooling: str, hidden: Hidden | None = None) -> Tensor:
    """[B, W'] as `pool_text`, then through the head `SENTENCE` where the model has one: what a task
    that compares texts was trained on.
    """
    vectors = pool_text(model, batch, pooling, hidden)
    return widen(model.heads[SENTENCE](vectors)) if SENTENCE in model.heads else vectors


def take_columns(vectors: Vectors, dimensions: int | None, *, path: str) -> Vectors:
    """[..., dimensions] the first columns of vectors [..., W]; None: all.

    Args:
        path: The config path of this number, for messages.

    Raises:
        ConfigError: They have fewer columns.
    """
    if dimensions is not None and dimensions > (width := vectors.shape[-1]):
        allowed = f"at most {width}, the width of the vectors"
        raise ConfigError(path, dimensions, allowed, fix="leave it out")
    return vectors[..., :dimensions]
