"""The Transformer backbone of BERT, RoBERTa and GPT.

Encoder and decoder are one class here: what makes a decoder is its pattern (`Causal`), which is a slot of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.attention.kernels import Mask
from plmctl.attention.patterns import Documents, Padding, Pattern
from plmctl.batch import Batch
from plmctl.models.base import Backbone, Hidden
from plmctl.nn.cells.base import Context
from plmctl.nn.embeddings import Embedding
from plmctl.nn.positions import Position
from plmctl.nn.stack import Stack

Initializer = Callable[..., None]  # (module, *, generator)


class Encoder(Backbone):
    """`stack(embedding(ids))` where tokens see each other as `pattern & Padding & Documents` allows.

    Token ids [B, T] -> states [B, T, W]. `initializer(model, generator=g)` is the rule that draws the first weights of the
    backbone and of its heads; it is kept here and called by whoever starts a model from nothing. `classifier` says how rows
    are classified in fine-tuning: `pooler`, whether BERT's stands before the head, and settings of `heads.classify.Classify`.
    """

    def __init__(
        self, *, embedding: Embedding, position: Position, stack: Stack, pattern: Pattern,
        initializer: Initializer | None = None, classifier: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding, self.position, self.stack = embedding, position, stack
        self.pattern = pattern & Padding() & Documents()
        self.initializer, self.classifier = initializer, dict(classifier or {})
        self.needs = frozenset({"text"}) | self.pattern.needs
        self.max_length = position.max_length

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.embedding.width

    @property
    def num_layers(self) -> int:  # type: ignore[override]
        return self.stack.num_layers

    @property
    def token_embedding(self) -> nn.Embedding:  # type: ignore[override]
        return self.embedding.token

    def embed(self, batch: Batch) -> Tensor:
        return self.embedding(batch.text, self.position, self._places(batch))

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: frozenset[str] = frozenset()) -> Hidden:
        """`record={"hidden"}` adds the embedding output and the state after every layer to `recorded["hidden"]`."""
        context = Context(Mask.of(self.pattern, batch.text), self.position, self._places(batch))
        last, hidden = self.stack(x, context, record="hidden" in record)
        return Hidden(last, recorded={"hidden": hidden} if hidden else {})

    def _places(self, batch: Batch) -> Tensor:
        """[B | 1, T] the position track where rows are packed, otherwise 0..T-1."""
        seq = batch.text
        track = seq.tracks.get("position")
        return torch.arange(seq.ids.shape[1], device=seq.ids.device)[None] if track is None else track
