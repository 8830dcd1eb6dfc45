"""Attention that tells words and entities apart (Yamada et al., 2020: LUKE)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.parts import part_of
from plmctl.core.values import DropoutRate
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.base import RowSize, Work
from plmctl.nn.env import Env, Streams


@part_of("cells")
class EntityAwareAttention(Attention):
    """`Attention` whose queries depend on what asks and what is asked: from words to words by the
    query map of `qkv`, from words to entities, entities to words and entities to entities by maps
    of their own; keys and values are the same for all.

    [B, T + E, W] -> [B, T + E, W]; the last E are entities, as many as the stream `entities` has.
    Without that stream it is `Attention`. The rows of `queries.weight [3 H D, W]` are those of
    word-to-entity, entity-to-word and entity-to-entity. `aware=False`: one query map for all.
    (Yamada et al., 2020, arXiv:2010.01057, sec. 3.2; transformers, `LukeSelfAttention`.)
    """

    def __init__(
        self, *, width: int, num_heads: int, dropout: DropoutRate, aware: bool = True
    ) -> None:
        super().__init__(width=width, num_heads=num_heads, dropout=dropout)
        self.queries = nn.Linear(width, 3 * width) if aware else None

    def work(self, row: RowSize) -> Work:
        """The cost without entities, which are few: a word then has one query."""
        own = super().work(row)
        if self.queries is None:
            return own
        spare = row.tokens * self.queries.weight.numel()
        return Work(own.macs - spare, own.scores, own.kept - row.tokens * self.queries.out_features)

    def attend(self, streams: Streams, env: Env) -> Tensor:
        entities = streams.get("entities")
        if entities is None or self.queries is None:
            return super().attend(streams, env)
        assert isinstance(self.qkv, nn.Linear)
        words, x = streams["text"].shape[1] - entities.shape[1], streams["text"]
        inner = self.num_heads * self.head_width
        own = self.qkv.weight.split(inner), self.qkv.bias.split(inner)
        q, k, v = (F.linear(x, weight, bias) for weight, bias in zip(*own, strict=True))
        weights = self.queries.weight.split(inner), self.queries.bias.split(inner)
        to_entity, of_entity, among = zip(*weights, strict=True)
        from_words, from_entities = x[:, :words], x[:, words:]
        to_words = torch.cat([q[:, :words], F.linear(from_entities, *of_entity)], 1)
        to_entities = torch.cat(
            [F.linear(from_words, *to_entity), F.linear(from_entities, *among)], 1
        )
        first, other, key, value = map(self._split, (to_words, to_entities, k, v))
        scale = self.head_width**-0.5
        # what scores of entities lack where queries are those for words
        missing = (other - first) @ key[:, :, words:].transpose(2, 3) * scale
        bias = F.pad(missing, [words, 0])  # [B, H, T + E, T + E]
        dropout = self.dropout if self.training else 0.0
        return env.ops["text"](
            self.score(first), key, value, env, dropout=dropout, bias=lambda *_: bias
        )

    def _split(self, projected: Tensor) -> Tensor:
        """[B, T, H D] -> [B, H, T, D]."""
        return projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
