"""Tokens of entities behind the words of a text (Yamada et al., 2020: LUKE)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from plmctl.core.batch import Seq
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.dropout import Dropout

PAD, UNKNOWN, MASKED, FIRST = 0, 1, 2, 3  # rows of the table; entity n has row FIRST + n


@part_of("entities")
class EntityTokens(nn.Module):
    """`dropout(norm(project(table[id]) + mean of p_t over the tokens t of the mention + kind))`,
    entities [B, E] -> [B, E, W].

    Positions p are learned for entities apart from those of words, and `kind` is one vector that
    all entities have. (Yamada et al., 2020, arXiv:2010.01057, sec. 3.1; transformers,
    `LukeEntityEmbeddings`.)

    Args:
        count: entities; what is beyond is unknown.
        entity_width: columns of the table.
        width: W.
        max_length: tokens of a row.
        norm: makes the norm.
        dropout: the rate.
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
    ) -> None:
        super().__init__()
        self.count, self.width = count, entity_width
        self.table = nn.Embedding(count + FIRST, entity_width)
        self.project = nn.Linear(entity_width, width, bias=False)
        self.position = nn.Embedding(max_length, width)
        self.kind = nn.Embedding(1, width)
        self.norm = norm(width=width)
        self.dropout = Dropout(rate=dropout)

    def forward(self, entities: Seq, length: int) -> Tensor:
        """Embed the entities of rows.

        Args:
            entities: rows of the table, with the tracks `mention_start` and `mention_size` [B, E].
            length: tokens of a row of the text.
        """
        x = self.project(self.table(entities.ids))
        start = entities.tracks["mention_start"][..., None]  # [B, E, 1]
        size = entities.tracks["mention_size"][..., None]
        places = torch.arange(length, device=start.device)
        inside = ((places >= start) & (places < start + size)).to(x.dtype)  # [B, E, T]
        mean = inside @ self.position.weight[:length] / size.clamp(min=1)
        return self.dropout(self.norm(x + mean + self.kind.weight[0]))
