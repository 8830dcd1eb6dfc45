"""From ids to the input of the first layer."""

from __future__ import annotations

from torch import Tensor, nn

from plmctl.batch import Seq
from plmctl.nn.dropout import Dropout
from plmctl.nn.positions import Position
from plmctl.nn.tables import TokenTable


class Embedding(nn.Module):
    """`dropout(norm(token[id] + segment[segment id] + place))`, ids [B, T] -> [B, T, W] (Devlin et al., 2019, sec. 3, fig. 2).

    `segments = 0` leaves the segment table out (RoBERTa, GPT), `norm = None` the norm (GPT). Rows without a segment track
    are all of segment 0.
    """

    def __init__(
        self, *, vocab_size: int, width: int, dropout: float, segments: int = 0, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.token = TokenTable(vocab_size=vocab_size, width=width)
        self.segment = nn.Embedding(segments, width) if segments else None
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(rate=dropout)

    def forward(self, seq: Seq, position: Position, places: Tensor) -> Tensor:
        x = self.token(seq.ids)
        if self.segment is not None:
            segment = seq.tracks.get("segment")
            x = x + (self.segment.weight[0] if segment is None else self.segment(segment))
        return self.dropout(self.norm(position.embed(x, places)))
