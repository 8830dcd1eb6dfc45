"""A small encoder with dropout, in float64, and batches for the objectives that compare rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.attention.patterns.base import Full
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.models.encoder import Encoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack
from tests.noise.plain_rows import make_rows, make_vocab

V, W = 40, 8
VOCAB = make_vocab(V, specials=5, eos=None)


def encoder(dropout: float, layers: int = 1) -> Model:
    torch.manual_seed(0)
    norm = partial(layer_norm, width=W, eps=1e-12)
    cells = {
        "a": partial(Attention, width=W, num_heads=2, dropout=dropout),
        "f": partial(FeedForward, width=W, inner_width=16, activation="gelu"),
    }
    return Model(
        backbone=Encoder(
            embedding=Embedding(vocab_size=V, width=W, dropout=dropout, norm=norm),
            position=Learned(width=W, max_length=16),
            pattern=Full(),
            stack=Stack(
                layout=f"af*{layers}", cells=cells, residual=PostNorm(norm=norm, dropout=dropout)
            ),
        ),
        heads={},
    ).double()


class States(Backbone):
    """The k-th call gives the k-th tensor of states, each a parameter: their gradients show
    which places a loss reads.
    """

    def __init__(self, *states: Tensor) -> None:
        super().__init__()
        self.states = nn.ParameterList([nn.Parameter(each) for each in states])
        self.seen: list[Batch] = []

    def forward(
        self, batch: Batch, state: object = None, record: frozenset[str] = frozenset()
    ) -> Hidden:
        self.seen.append(batch)
        return Hidden(self.states[len(self.seen) - 1])


def cells_of(lengths: list[int], width: int = 10, seed: int = 0) -> Rows:
    """cls ... sep, padded."""
    return make_rows(len(lengths), width, lengths=lengths, seed=seed, low=5, high=V)


def holed(rows: Rows, spans: list[tuple[int, int, int]]) -> Rows:
    """The rows with these spans hidden by the mask token and asked for."""
    ids, asked = (
        rows.seqs["text"].ids.copy(),
        np.full(rows.seqs["text"].ids.shape, IGNORE, np.int32),
    )
    for row, start, length in spans:
        asked[row, start : start + length] = ids[row, start : start + length]
        ids[row, start : start + length] = 4
    seq = Seq(ids, rows.seqs["text"].length)
    return Rows(
        rows.key,
        {"text": seq},
        {"mlm": asked},
        spans={"chosen": np.array(spans, np.int64).reshape(-1, 3)},
    )


def batch_of(rows: Rows) -> Batch:
    return collate(rows, {"mlm": rows.seqs["text"].ids.shape[1] // 2})
