"""The feed-forward cell that mixes tokens with the entities at their positions (ERNIE; Zhang et
al., 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell, CellFacts
from plmctl.nn.cells.feedforward import PositionWise
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams
from plmctl.nn.starting import FitsIn


@part_of("cells")
class EntityFusion(Cell, FitsIn):
    """`h = activation(up(w) + up_entity(m e))`, then `down(h)` for the stream `text`, and `norm(m e
    + dropout(down_entity(h)))` as the new stream `entity`; m is 1 at tokens with an entity.

    text [B, T, W], entity [B, T, E] (thunlp/ERNIE, modeling.py, BertIntermediate and BertOutput).
    `up`, `activation` and `down` are those of `words`, the feed-forward cell that the layer had; a
    gated one has two maps of words and two of entities. In a trained model that cell goes on, and
    `up_entity` begins at 0: what the model computes is at first what it was.
    Differs: Zhang et al. (2019, arXiv:1905.07129, eq. 3 and 4) write the activation around both
    results, and neither sum nor norm; this is the released code. There up_entity is drawn also in a
    trained model. `entity_out=false`: of the last layer, whose entities nothing reads.
    """

    projected_by = "words.down"
    facts = CellFacts(
        computes="feed-forward",
        reads=frozenset({"text", "entity", "entity_mask"}),
        continues="words",
    )

    def __init__(
        self,
        *,
        width: int,
        words: Callable[..., Cell],
        entity_width: Count,
        norm: Callable[..., nn.Module],
        dropout: DropoutRate,
        entity_out: bool = True,
    ) -> None:
        super().__init__()
        cell = words(width=width)
        if not isinstance(cell, PositionWise):
            allowed = "a feed-forward cell, FeedForward or GLU, which entities are mixed into"
            raise ConfigError("words", type(cell).__name__, allowed)
        self.words, inner = cell, cell.down.in_features
        self.up_entity = nn.ModuleDict(
            {name: nn.Linear(entity_width, inner) for name in cell.inputs}
        )
        self.dropout = Dropout(rate=dropout)
        self.down_entity = nn.Linear(inner, entity_width) if entity_out else None
        self.norm_entity = norm(width=entity_width) if entity_out else nn.Identity()
        if entity_out:
            self.facts = replace(self.facts, also_writes=frozenset({"entity"}))

    def fit_in(self) -> None:
        for parameter in self.up_entity.parameters():
            nn.init.zeros_(parameter)

    def prepare(self, streams: Streams, env: Env) -> Streams:
        """The streams with h as `fused`, and with the entities after this layer."""
        x, entity = streams["text"], streams["entity"] * streams["entity_mask"]
        projected = [
            getattr(self.words, name)(x) + up(entity) for name, up in self.up_entity.items()
        ]
        h = self.words.combine(*projected)  # [B, T, inner]
        streams = streams.replace("fused", h)
        if self.down_entity is None:
            return streams
        changed = self.norm_entity(self.dropout.add(entity, self.down_entity(h)))
        return streams.replace("entity", changed)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        h = streams.get("fused")
        return self.words.down(self.prepare(streams, env)["fused"] if h is None else h)
