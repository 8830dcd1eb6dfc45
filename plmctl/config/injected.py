"""What parts of a slot are given by name, besides what their YAML says: a parameter that is called
like one of these fields is filled in wherever the config leaves it out.
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
    """What formats and their parts are given.

    Args:
        vocab: ids, and which of them have a role.
    """

    vocab: Vocab


@dataclass(frozen=True, kw_only=True)
class ToNoises(Injected):
    """What noises and their parts are given.

    Args:
        vocab: ids, and which of them have a role.
        corpus_sample: [k] ids of tokens drawn from the corpus, for how frequent each token is.
        tokenizer: of the corpus; None before it is read.
        home: the knowledge directory that the ids of the corpus mean; None: there is none.
    """

    vocab: Vocab
    corpus_sample: np.ndarray
    tokenizer: Tokenizer | None = None
    home: str | None = None


@dataclass(frozen=True, kw_only=True)
class ToHeads(Injected):
    """What heads, and what stands before them, are given, besides the numbers of `size` and what
    a model is given.

    Args:
        width: of the features that they read.
        state_width: of a state of the backbone, whatever stands between it and the head.
        num_layers: of the backbone.
        token_embedding: the table of tokens, for heads that are tied to it; None: there is none.
    """

    width: int
    state_width: int
    num_layers: int
    token_embedding: nn.Module | None


@dataclass(frozen=True, kw_only=True)
class ToObjectives(Injected):
    """What objectives and their own parts are given, besides the `vocab`.

    Args:
        model: that learns.
        width: of its states.
        vocab_size: tokens of the vocabulary.
        max_length: tokens of the longest row that the model takes; None: any.
        table_width: of its table of tokens; its `width` where it has none.
    """

    model: Model
    width: int
    vocab_size: int
    max_length: int | None
    table_width: int
