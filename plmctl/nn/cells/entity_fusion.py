"""The feed-forward cell that mixes tokens with the entities at their positions (ERNIE; Zhang et
al., 2019).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.nn.cells.base import Cell
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.dropout import Dropout
from plmctl.nn.env import Env, Streams


@part_of("cells")
class EntityFusion(Cell):
    """`h = activation(up(w) + up_entity(m e))`, then `down(h)` for the stream `text`, and `norm(m e
    + dropout(down_entity(h)))` in place of the stream `entity`; m is 1 at tokens with an entity.

    text [B, T, W], entity [B, T, E] (thunlp/ERNIE, modeling.py, BertIntermediate and BertOutput).
    Differs: Zhang et al. (2019, arXiv:1905.07129, eq. 3 and 4) write the activation around both
    results, and neither sum nor norm; this is the released code. `entity_out=false`: of the last
    layer, whose entities nothing reads.
    """

    reads = frozenset({"text", "entity", "entity_mask"})
    computes = "feed-forward"

    def __init__(
        self,
        *,
        width: int,
        inner_width: int,
        entity_width: Count,
        activation: str,
        norm: Callable[..., nn.Module],
        dropout: DropoutRate,
        entity_out: bool = True,
    ) -> None:
        super().__init__()
        self.activation = find_activation(activation)
        self.up = nn.Linear(width, inner_width)
        self.up_entity = nn.Linear(entity_width, inner_width)
        self.down = nn.Linear(inner_width, width)
        self.dropout = Dropout(rate=dropout)
        self.down_entity = nn.Linear(inner_width, entity_width) if entity_out else None
        self.norm_entity = norm(width=entity_width) if entity_out else nn.Identity()
        self.also_writes = frozenset({"entity"}) if entity_out else frozenset()

    @property
    def projection(self) -> nn.Linear:  # type: ignore[override]
        return self.down

    def prepare(self, streams: Streams, env: Env) -> Streams:
        """The streams with h as `fused`, and with the entities after this layer."""
        entity = streams["entity"] * streams["entity_mask"]
        h = self.activation(self.up(streams["text"]) + self.up_entity(entity))  # [B, T, inner]
        streams = streams.replace("fused", h)
        if self.down_entity is None:
            return streams
        changed = self.norm_entity(self.dropout.add(entity, self.down_entity(h)))
        return streams.replace("entity", changed)

    def forward(self, streams: Streams, env: Env) -> Tensor:
        h = streams.get("fused")
        return self.down(self.prepare(streams, env)["fused"] if h is None else h)
