"""The values that parts of a slot get by name, besides those of their YAML. They fill a parameter
of the same name wherever the config leaves it out.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from plmctl.models.base import Model
    from plmctl.text.tokenizer import Tokenizer
    from plmctl.text.vocab import Vocab


@dataclass(frozen=True, kw_only=True)
class Injected:
    """Values by the names under which the parts of a slot ask for them."""

    def by_name(self) -> dict[str, Any]:
        """{name: value}, as `build` takes it."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclass(frozen=True, kw_only=True)
class ToFormats(Injected):
    """The values for formats and their parts.

    Args:
        vocab: ids, and which of them have a role.
    """

    vocab: Vocab


@dataclass(frozen=True, kw_only=True)
class ToNoises(Injected):
    """The values for noises and their parts.

    Args:
        vocab: ids, and which of them have a role.
        corpus_sample: [k] ids of tokens drawn from the corpus, for how frequent each token is.
        tokenizer: The tokenizer of the corpus; None before it is read.
        home: The knowledge directory of the ids in the corpus, or None.
    """

    vocab: Vocab
    corpus_sample: np.ndarray
    tokenizer: Tokenizer | None = None
    home: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToHeads(Injected):
    """The values for heads and the parts before them, besides the numbers of `size` and the values
    for models.

    Args:
        width: The width of the features that they read.
        state_width: The width of a state of the backbone, whatever stands between it and the head.
        num_layers: The number of layers of the backbone.
        token_embedding: The table of tokens, for heads that are tied to it, or None.
    """

    width: int
    state_width: int
    num_layers: int
    token_embedding: nn.Module | None


@dataclass(frozen=True, kw_only=True)
class ToObjectives(Injected):
    """The values for objectives and their own parts, besides the `vocab`.

    Args:
        model: The model that learns.
        width: The width of its states.
        vocab_size: tokens of the vocabulary.
        max_length: tokens of the longest row that the model takes; None: any.
        table_width: The width of its table of tokens; its `width` where it has none.
    """

    model: Model
    width: int
    vocab_size: int
    max_length: int | None
    table_width: int
