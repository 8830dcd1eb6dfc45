"""Vectors of known facts about each token, added to its embedding (Ke et al., 2020, SentiLARE)."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Generator, Tensor, nn

from plmctl.core.batch import Seq
from plmctl.core.errors import AbsentData
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.knowledge.sentiment import Sentiment
from plmctl.nn.starting import FitsIn, Starting
from plmctl.text.vocab import Vocab

_COLUMNS = ("polarity", "pos")  # columns of `Sentiment.of_vocab`


class TokenTags(Starting):
    """ids [...] -> [...]: the tag of each token by a lexicon; looked up when a model starts from
    nothing, and then saved with its weights.
    """

    def __init__(
        self, *, vocab_size: int, column: int, lexicon: Sentiment, vocab: Vocab | None
    ) -> None:
        super().__init__()
        self.column, self.lexicon, self.vocab = column, lexicon, vocab
        self.register_buffer("table", torch.zeros(vocab_size, dtype=torch.int64))

    def start(self, generator: Generator) -> None:
        table = cast(Tensor, self.table)
        if self.vocab is not None:
            try:
                tags = self.lexicon.of_vocab(self.vocab)[:, self.column]
            except (
                AbsentData
            ):  # the noise needs it, too, and says so; a checkpoint brings the table
                return
            table[: len(tags)] = torch.from_numpy(tags).to(table.device)

    def forward(self, ids: Tensor) -> Tensor:
        return cast(Tensor, self.table)[ids]


@part_of("track_vectors")
class TrackVectors(FitsIn):
    """One of `count` vectors for each token, by the track `name`, [B, T] -> [B, T, E].

    Rows without the track (those of a task, say) are looked up in the `lexicon`, token by token;
    without one every token has tag 0. In a trained model the vectors begin at 0, so that it
    computes what it did. (Ke et al., 2020, arXiv:1911.02493, sec. 3.2, fig. 2: embeddings of parts
    of speech, of polarities and of the sentence's polarity; Sun et al., 2020, arXiv:1907.12412,
    sec. 4.1, ERNIE 2.0: of tasks.)
    """

    def __init__(
        self,
        *,
        width: int,
        vocab_size: int,
        name: Literal["pos", "polarity", "rating", "task"],
        count: Count,
        lexicon: Sentiment | None = None,
        vocab: Vocab | None = None,
    ) -> None:
        super().__init__()
        self.name, self.uses = name, frozenset({f"tracks.{name}"})
        self.vectors = nn.Embedding(count, width)
        column = _COLUMNS.index(name) if name in _COLUMNS else None
        self.tags = (
            None
            if lexicon is None or column is None
            else TokenTags(vocab_size=vocab_size, column=column, lexicon=lexicon, vocab=vocab)
        )

    def fit_in(self) -> None:
        nn.init.zeros_(self.vectors.weight)

    def forward(self, seq: Seq) -> Tensor:
        track = seq.tracks.get(self.name)
        if track is None:
            track = torch.zeros_like(seq.ids) if self.tags is None else self.tags(seq.ids)
        return self.vectors(track.long())
