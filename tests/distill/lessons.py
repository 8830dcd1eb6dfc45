"""Small models in float64, and batches of padded rows with targets, for what students learn."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from plmctl.attention.patterns.base import Full, Pattern
from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.collate import collate
from plmctl.distill.base import LOGITS, Measures, Predictions, record_model
from plmctl.distill.questions import OfTokens
from plmctl.distill.teachers import Frozen
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.feedforward import FeedForward
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import layer_norm
from plmctl.nn.positions import Learned
from plmctl.nn.residual import PostNorm
from plmctl.nn.stack import Stack

V = 30
LENGTHS = (7, 5, 3)
ALL = frozenset({LOGITS, "hidden", "scores", "queries", "keys", "values"})


def model(
    *,
    layers: int = 2,
    width: int = 8,
    heads: int = 2,
    seed: int = 0,
    pattern: Pattern | None = None,
    dropout: float = 0.0,
) -> Model:
    torch.manual_seed(seed)
    norm = partial(layer_norm, width=width, eps=1e-12)
    cells = {
        "a": partial(Attention, width=width, num_heads=heads, dropout=dropout),
        "f": partial(FeedForward, width=width, inner_width=16, activation="gelu"),
    }
    backbone = Encoder(
        embedding=Embedding(vocab_size=V, width=width, dropout=dropout, norm=norm),
        position=Learned(width=width, max_length=16),
        pattern=pattern or Full(),
        stack=Stack(
            layout=f"af*{layers}", cells=cells, residual=PostNorm(norm=norm, dropout=dropout)
        ),
    )
    table = backbone.token_embedding
    head = LMHead(
        width=width, vocab_size=V, token_embedding=table, tied=True, transform=True, bias=True
    )
    made = Model(backbone=backbone, heads={"mlm": head}).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


def batch(seed: int = 0) -> Batch:
    """Three rows, the shorter ones padded; every third real token is asked, in more slots than
    there are.
    """
    draw = np.random.default_rng(seed)
    length = np.array(LENGTHS)
    ids = draw.integers(5, V, (len(length), max(LENGTHS)))
    real = np.arange(max(LENGTHS)) < length[:, None]
    asked = real & (np.arange(max(LENGTHS)) % 3 == 1)
    anchors = np.stack([np.arange(len(length)), np.array([0, 1, 2])], 1)
    rows = Rows(
        np.arange(len(length)),
        {"text": Seq(np.where(real, ids, 0), length)},
        targets={"mlm": np.where(asked, ids, IGNORE)},
        anchors=anchors,
        labels={"pair": np.zeros(3, np.int64)},
    )
    return collate(rows, {"mlm": 4})


def answers(made: Model, given: Batch, places: str = "predicted") -> Predictions:
    return record_model(made, given, OfTokens({"mlm": V}, writes="text", positions=places), ALL)


def pair(
    *, teacher: dict[str, int] | None = None, **student: int
) -> tuple[Model, Measures, Frozen]:
    """(student, its measures, the teacher: twice as deep)."""
    small = model(**student)  # type: ignore[arg-type]
    large = model(**{"layers": 4, "seed": 1, **(teacher or {})})  # type: ignore[arg-type]
    return (
        small,
        Measures.of(small, "the student"),
        Frozen(model=large, name="the teacher runs/large"),
    )
