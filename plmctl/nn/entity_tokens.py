"""Tokens of entities behind the words of a text (Yamada et al., 2020: LUKE)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from plmctl.core.batch import Seq
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate, Whole
from plmctl.nn.dropout import Dropout
from plmctl.nn.starting import FitsIn

PAD, UNKNOWN, MASKED, FIRST = 0, 1, 2, 3  # rows of the table; entity n has row FIRST + n


@part_of("entities")
class EntityTokens(FitsIn):
    """`dropout(norm(project(table[id]) + mean of p_t over the tokens t of the mention + kind))`,
    entities [B, E] -> [B, E, W].

    Positions p are learned for entities apart from those of words, and `kind` is one vector that
    all entities have. (Yamada et al., 2020, arXiv:2010.01057, sec. 3.1; transformers,
    `LukeEntityEmbeddings`.) Ids below 0 are the entities that a task asks about, -1 the first one;
    in a trained model they begin as the hidden entity (sec. 4.1 and 4.2).

    Args:
        count: entities; what is beyond is unknown.
        entity_width: columns of the table.
        width: W.
        max_length: tokens of a row; p is 0 of those beyond, which only positions without a bound
            allow.
        norm: makes the norm.
        dropout: the rate.
        asked: The vectors of entities that a task asks about, in addition to the table.
    """

    def __init__(
        self,
        *,
        count: Count,
        entity_width: Count,
        width: int,
        max_length: int,
        norm: Callable[..., nn.Module],
        dropout: DropoutRate,
        asked: Whole = 0,
    ) -> None:
        super().__init__()
        self.count, self.width = count, entity_width
        self.table = nn.Embedding(count + FIRST, entity_width)
        self.asked = nn.Embedding(asked, entity_width) if asked else None
        self.project = nn.Linear(entity_width, width, bias=False)
        self.position = nn.Embedding(max_length, width)
        self.kind = nn.Embedding(1, width)
        self.norm = norm(width=width)
        self.dropout = Dropout(rate=dropout)

    def fit_in(self) -> None:
        if self.asked is not None:
            with torch.no_grad():
                self.asked.weight.copy_(self.table.weight[MASKED].expand_as(self.asked.weight))

    def forward(self, entities: Seq, length: int) -> Tensor:
        """Embed the entities of rows.

        Args:
            entities: ids, with the tracks `mention_start` and `mention_size` [B, E].
            length: tokens of a row of the text.
        """
        x = self.project(self._look_up(entities.ids))
        start = entities.tracks["mention_start"][..., None]  # [B, E, 1]
        size = entities.tracks["mention_size"][..., None]
        places = torch.arange(length, device=start.device)
        inside = ((places >= start) & (places < start + size)).to(x.dtype)  # [B, E, T]
        known = self.position.weight[:length]
        mean = inside[..., : len(known)] @ known / size.clamp(min=1)
        return self.dropout(self.norm(x + mean + self.kind.weight[0]))

    def _look_up(self, ids: Tensor) -> Tensor:
        """[B, E, entity_width] the vectors of `ids [B, E]`."""
        x = self.table(ids.clamp(min=PAD))
        if self.asked is None:
            return x  # type: ignore[no-any-return]
        return torch.where((ids < PAD)[..., None], self.asked((-1 - ids).clamp(min=0)), x)
