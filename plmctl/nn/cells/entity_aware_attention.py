"""Attention that tells words and entities apart (Yamada et al., 2020: LUKE)."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.nn.cells.attention import Attention, AttentionSettings
from plmctl.nn.cells.base import RowSize, Work
from plmctl.nn.divided import Plan
from plmctl.nn.env import Env, Streams
from plmctl.nn.starting import FitsIn


@part_of("cells")
class EntityAwareAttention(Attention, FitsIn):
    """`Attention` whose query map depends on the types of the query and the key. From words to
    words it is the query map of `qkv`. Words to entities, entities to words and entities to
    entities have maps of their own. Keys and values are the same for all.

    [B, T + E, W] -> [B, T + E, W]; the last E are entities, as many as the stream `entities` has.
    Without that stream it is `Attention`. The rows of `queries.weight [3 H D, W]` are those of
    word-to-entity, entity-to-word and entity-to-entity; in a trained model each begins as its query
    map. `aware=False`: one query map for all. (Yamada et al., 2020, arXiv:2010.01057, sec. 3.2;
    transformers, `LukeSelfAttention`.)
    """

    facts = replace(Attention.facts, reads=frozenset({"text"}), takes_prefix=False)

    def __init__(
        self, *, projections: str = "own", aware: bool = True, **settings: Unpack[AttentionSettings]
    ) -> None:
        if projections != "own":
            allowed = "own: queries have maps of their own"
            raise ConfigError("projections", projections, allowed)
        super().__init__(**settings)
        width, inner = settings["width"], self.num_heads * self.head_width
        bias = settings.get("bias", True)
        self.queries = nn.Linear(width, 3 * inner, bias=bias) if aware else None

    def fit_in(self) -> None:
        assert isinstance(self.qkv, nn.Linear)
        if self.queries is None:
            return
        for mine, trained in zip(self.queries.parameters(), self.qkv.parameters(), strict=True):
            with torch.no_grad():
                mine.copy_(torch.cat([trained.chunk(3)[0]] * 3))

    def work(self, row: RowSize) -> Work:
        """The cost without entities, which are few: a word then has one query."""
        own = super().work(row)
        if self.queries is None:
            return own
        spare = row.tokens * self.queries.weight.numel()
        return Work(own.macs - spare, own.scores, own.kept - row.tokens * self.queries.out_features)

    def plan_division(self) -> Plan:
        return {} if self.queries is not None else super().plan_division()

    def attend(self, streams: Streams, env: Env) -> Tensor:
        entities = streams.get("entities")
        if entities is None or self.queries is None:
            return super().attend(streams, env)
        assert isinstance(self.qkv, nn.Linear)
        words, x = streams["text"].shape[1] - entities.shape[1], streams["text"]
        q, k, v = (F.linear(x, *own) for own in _split_map(self.qkv))
        to_entity, of_entity, among = _split_map(self.queries)
        from_words, from_entities = x[:, :words], x[:, words:]
        to_words = torch.cat([q[:, :words], F.linear(from_entities, *of_entity)], 1)
        to_entities = torch.cat(
            [F.linear(from_words, *to_entity), F.linear(from_entities, *among)], 1
        )
        first, other, key, value = map(self._split, (to_words, to_entities, k, v))
        if self.q_norm is not None and self.k_norm is not None:
            first, other, key = self.q_norm(first), self.q_norm(other), self.k_norm(key)
        first, other, op = self.score(first), self.score(other), env.ops["text"]
        # the difference of entity scores if queries are those for words; turning is linear
        turned, keys = op.position.rotate(other - first, key, op.positions, op.positions)
        missing = turned @ keys[:, :, words:].transpose(2, 3) * self.head_width**-0.5
        bias = F.pad(missing, [words, 0])  # [B, H, T + E, T + E]
        dropout = self.dropout if self.training else 0.0
        return op(first, key, value, env, dropout=dropout, bias=lambda *_: bias, weigh=self.weigh)

    def _split(self, projected: Tensor) -> Tensor:
        """[B, T, H D] -> [B, H, T, D]."""
        return projected.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _split_map(joined: nn.Linear) -> list[tuple[Tensor, ...]]:
    """(weight, bias) or (weight,) of the three maps that are one."""
    return list(zip(*(parameter.chunk(3) for parameter in joined.parameters()), strict=True))
