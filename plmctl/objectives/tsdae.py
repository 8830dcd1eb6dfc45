"""TSDAE (Wang et al., 2021): a decoder writes a text from one vector of the text with words
deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.lm import LMHead
from plmctl.heads.sentences import pool_text
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.nn.env import SourceStates
from plmctl.nn.positions import NoPosition
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output
from plmctl.objectives.generator import initialize, tie


@part_of("objective")
class TSDAE(Objective):
    """`- sum_t log p(x_(t+1) | x_1 .. x_t, v)`, v the vector of the text with words deleted, pooled
    from the states of the model, and x the whole text. The decoder sees nothing else of the text:
    its cross-attention reads v alone (Wang et al., 2021, arXiv:2104.06979, sec. 3, eq. 1).

    Args:
        decoder: The decoder. It belongs to the objective, so that the model stays an encoder.
        model: The model; its head `mlm` predicts the tokens that the decoder writes.
        pooling: The vector of a text: "first", "mean" or "max".
        tied: Whether the decoder shares embeddings and layers with the model; only its
            cross-attention is its own.
    """

    embeds = True  # its model is one of texts, by the vectors of `pooling`
    holds_cells = True  # cells of the model run in the decoder, too
    facts = Facts(
        needs=frozenset({"text", "target", "targets.tsdae"}),
        heads=frozenset({"mlm"}),
        terms=frozenset({"tsdae"}),
        asks_row=True,
        asked_at={"mlm": frozenset({"tsdae"})},
    )

    def __init__(
        self, *, decoder: Encoder, model: Model, pooling: str = "first", tied: bool = True
    ) -> None:
        super().__init__()
        if decoder.looks_ahead("text"):
            allowed = "a causal pattern: the decoder predicts the next token"
            fix = "objective.tsdae.decoder.pattern._target_=plmctl.attention.patterns.causal.Causal"
            raise ConfigError("objective.tsdae.decoder.pattern", ..., allowed, fix=fix)
        self.decoder, self.pooling = decoder, pooling
        initialize(decoder, decoder)
        if tied:
            tie_layers(decoder, model)
        self.facts = replace(self.facts, needs=self.facts.needs | decoder.needs)

    def labels(self, rows: Rows) -> dict[str, np.ndarray]:
        """The next token of each token of the target."""
        target = rows.seqs["target"]
        after = np.where(target.real, target.ids, IGNORE)[:, 1:]
        return {"tsdae": np.pad(after, ((0, 0), (0, 1)), constant_values=IGNORE)}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"tsdae": batch.counts["tsdae"]}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        vectors, target = pool_text(model, batch, self.pooling), batch.seqs["target"]
        x, targets = self.decoder.embed_tokens(target), batch.require("targets.tsdae")
        hidden = self.decoder.read(target, x, source=_as_source(vectors.to(x.dtype)))
        features = hidden.gather_words(targets.index)
        loss, right = cast(LMHead, model.heads["mlm"]).loss(features, targets.ids)
        return make_output("tsdae", loss, right, batch.counts["tsdae"])


def _as_source(vectors: Tensor) -> SourceStates:
    """The source of cross-attention: one state [B, 1, W] for each row."""
    places = torch.zeros(1, 1, dtype=torch.long, device=vectors.device)
    return SourceStates(vectors[:, None], BoundOp(Mask(None), NoPosition(), places))


def tie_layers(decoder: Encoder, model: Model) -> None:
    """Replace embeddings, layers and the last norm of a decoder by those of a model; cells that the
    model lacks stay.

    Raises:
        ConfigError: The layers of both have other sizes.
    """
    own: Mapping[str, Any] = decoder.stack.blocks  # type: ignore[assignment]
    stack: Any = getattr(model.backbone, "stack", None)
    if stack is None or any(
        letter not in own or _shapes(own[letter]) != _shapes(blocks)
        for letter, blocks in stack.blocks.items()
    ):
        allowed = "false, or a model of one stack whose cells the decoder has, too"
        raise ConfigError("objective.tsdae.tied", True, allowed, fix="objective.tsdae.tied=false")
    tie(decoder, model, "all")
    for letter, blocks in stack.blocks.items():
        decoder.stack.blocks[letter] = blocks
    decoder.stack.final_norm = stack.final_norm


def _shapes(part: nn.Module) -> dict[str, list[int]]:
    return {name: list(weights.shape) for name, weights in part.named_parameters()}
