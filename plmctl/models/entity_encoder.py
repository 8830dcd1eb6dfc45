"""ERNIE's encoder (Zhang et al., 2019): tokens, together with the vectors of their entities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.models.base import Hidden
from plmctl.models.encoder import Encoder, EncoderParts, token_positions
from plmctl.nn.entities import EntityVectors
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.stack import Stack


@part_of("model")
class EntityEncoder(Encoder):
    """`Encoder` with a second stream `entity` [B, T, E], the frozen vectors of the entities at the
    tokens, 0 elsewhere.

    The layout says where both meet: `af` leaves entities alone, `ax` mixes them into tokens, and
    `amx` lets them see each other before. `af*5 ax amx*6` is ERNIE (Zhang et al., 2019,
    arXiv:1905.07129, sec. 3.3; thunlp/ERNIE: sim, mix, norm). Without `tracks.entity` no token has
    one.
    """

    uses = Encoder.uses | {"tracks.entity"}
    fields: Mapping[str, Field] = {
        "tracks.entity": Field(
            "[n, T]",
            "int",
            "entity of the token that the model is shown, from 1; 0: none; below 0: any",
        )
    }

    def __init__(
        self, *, stack: Stack, entities: EntityVectors, **parts: Unpack[EncoderParts]
    ) -> None:
        super().__init__(stack=stack, **parts)
        self.entities = entities

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        ids = batch.text.tracks.get("entity")
        vectors, marked = self.entities(batch.text.ids.new_zeros(()) if ids is None else ids)
        if ids is None:
            vectors = vectors.expand(*x.shape[:2], -1)
        first = token_positions(batch.text, 0) == 0  # its zero vector is seen by all
        mask = (marked | first).expand(x.shape[:2])[..., None].to(x.dtype)
        beside = {"entity": vectors.to(x.dtype), "entity_mask": mask}
        return self.read(batch.text, x, cache=state, record=record, beside=beside)
