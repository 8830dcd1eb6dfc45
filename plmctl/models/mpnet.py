"""The backbone of MPNet (Song et al., 2020, arXiv:2004.09297): an encoder that in pretraining also
reads the predicted tokens one by one, in a random order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import IGNORE, Batch, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Hidden
from plmctl.models.encoder import Encoder, token_positions
from plmctl.models.query_rows import make_query_rows
from plmctl.nn.env import Env, Streams
from plmctl.nn.recorder import NONE, Record

TARGETS = "mlm"
PREDICTED = "predicted"  # the stream of the states that predict


@dataclass(frozen=True)
class _Layout:
    """The rows of one batch: T tokens, then twice its P' predicted positions."""

    seq: Seq  # [B, T + 2 P'] the tokens, the predicted ones as they were before they were hidden
    place: Tensor  # [B, T + 2 P'] their numbers in the text
    allowed: Tensor  # [B, H | 1, T + 2 P', T + 2 P'] which row sees which
    slot: Tensor  # [P] each target's number among the last (row, P')


@part_of("model")
class MPNet(Encoder):
    """`Encoder`, and where rows have an order (`tracks.order`, 1, 2, ... for predicted tokens, 0
    for plain ones) masked and permuted prediction.

    The P predicted tokens of a row stand in it as they were; a mask (or what the noise shows) of
    each follows, and once more as queries, all at their own positions. A row sees all plain tokens,
    predicted tokens of order <= r as they were, and the masks of the others. So it knows of every
    position. Here r is 0 for plain tokens and masks, t for the predicted token of order t, and t -
    1 for its query. Nothing sees a query. `streams["predicted"]` [P, W]: the queries. Without an
    order, and without targets, it is an encoder. (arXiv:2004.09297, sec. 2.2 and fig. 2;
    microsoft/MPNet, two_stream_self_attention.)
    """

    uses = Encoder.uses | {"tracks.order", "tracks.segment"}
    streams = frozenset({PREDICTED})
    asked_rows = 2

    def set_pattern(self, pattern: Pattern) -> None:
        super().set_pattern(pattern)
        if pattern.layers > 1:
            allowed = "a pattern that is the same in all layers, for this model"
            raise ConfigError("pattern", f"{pattern.layers} layers", allowed, fix="model=encoder")
        for letter, blocks in self.stack.blocks.items():
            cell = blocks[0].cell  # type: ignore[index]
            if cell.facts.offsets is not None or cell.facts.ahead is not None:
                allowed = f"cells that see tokens by the pattern alone, unlike {letter}"
                raise ConfigError("model.stack.layout", letter, allowed, fix="model=encoder")

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        layout = self._lay_out(batch)
        if layout is None:
            return super().embed(batch, state)
        places = self._at_places(batch, layout) + self.offset
        return self.embedding(layout.seq, self.position, places)

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        """As `Encoder.encode`; with an order only "hidden" can be recorded."""
        layout, length = self._lay_out(batch), batch.text.ids.shape[1]
        if layout is None:
            return super().encode(x, batch, state, record)
        op = BoundOp(Mask(layout.allowed), self.position, self._at_places(batch, layout))
        env = Env({"text": op}, seq=layout.seq)
        streams, layers = self.stack(Streams({"text": x}), env, record="hidden" in record)
        last = streams["text"]
        asked = last[:, (length + last.shape[1]) // 2 :].flatten(0, 1)[layout.slot]
        recorded = {"hidden": [layer[:, :length] for layer in layers]} if "hidden" in record else {}
        noted = {part: tuple(notes) for part, notes in env.notes.items()}
        return Hidden(last[:, :length], {PREDICTED: asked}, recorded=recorded, noted=noted)

    def _at_places(self, batch: Batch, layout: _Layout) -> Tensor:
        """[B, T + 2 P'] the position of each row."""
        positions = token_positions(batch.text, 0)
        return positions.expand(len(layout.place), -1).gather(1, layout.place)

    def _lay_out(self, batch: Batch) -> _Layout | None:
        """The rows of a batch with an order and targets; None for another one."""
        text = batch.text
        if "order" not in text.tracks or TARGETS not in batch.targets:
            return None
        targets, (rows, length) = batch.targets[TARGETS], text.ids.shape
        queries = make_query_rows(targets, rows, length)
        own = torch.arange(length, device=text.ids.device).expand(rows, -1)
        place = torch.cat([own, queries.positions, queries.positions], 1)
        seq = Seq(
            torch.cat([_restore(text, targets), text.ids.gather(1, place[:, length:])], 1),
            text.length + 2 * queries.real.sum(1),
            {name: track.gather(1, place) for name, track in text.tracks.items()},
        )
        order = text.tracks["order"].long()
        allowed = _see(order, order.gather(1, queries.positions), queries.real)
        known = self.pattern.dense(text, q_index=place)
        if known is not None:
            heads = known.expand(rows, -1, place.shape[1], -1)
            columns = place[:, None, None].expand(-1, heads.shape[1], place.shape[1], -1)
            allowed = allowed & heads.gather(3, columns)
        return _Layout(seq, place, allowed, queries.slot)


def _restore(text: Seq, targets: Targets) -> Tensor:
    """[B, T] the tokens as they were before noise hid the targets."""
    flat = torch.cat([text.ids.flatten(), text.ids.new_zeros(1)])  # one more, for spare slots
    real = targets.ids != IGNORE
    index = targets.index.masked_fill(~real, text.ids.numel())
    return flat.scatter(0, index, targets.ids.to(flat.dtype))[:-1].view_as(text.ids)


def _see(order: Tensor, asked: Tensor, real: Tensor) -> Tensor:
    """[B, 1, T + 2 P', T + 2 P'] which row sees which by the order of factorisation.

    Args:
        order: [B, T] of the tokens, 0 for plain ones.
        asked: [B, P'] of the predicted ones.
        real: [B, P'] bool, False: a spare one.
    """
    known = torch.cat([order, torch.zeros_like(asked), asked - 1], 1)[:, :, None]  # r of a row
    tokens = order[:, None] <= known
    masks = (asked[:, None] > known) & real[:, None]
    queries = torch.zeros_like(masks)
    return torch.cat([tokens, masks, queries], 2)[:, None]
