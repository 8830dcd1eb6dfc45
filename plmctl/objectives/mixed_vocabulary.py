"""Masked language modelling of a teacher that reads words of two vocabularies (Zhao et al., 2021):
so the vectors of a student's smaller vocabulary are learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.nn.small_vectors import SmallTable
from plmctl.noise.mixed_vocabulary import read_small
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Output
from plmctl.objectives.mlm import MLM


@part_of("objective")
class MixedMLM(MLM):
    """`- sum over masked positions of log p(token | noised row)`, where a token is one of the
    vocabulary by which its word was cut, and p is a softmax over this vocabulary alone.

    A token of the smaller one is read as `A e_v + b`, with a narrow vector e_v, and predicted by
    `softmax_v(t . (A e_v + b) + c_v)`. The head `mlm` compares the same state t with the table of
    the model. (Zhao et al., 2021, arXiv:1909.11687, stage I.) e, A, b and c belong to the
    objective: the model stays what it is. In rows without tokens of the smaller vocabulary it is
    `mlm`. Differs: the first vectors and their map are ours (`nn.small_vectors.SmallTable`).

    Args:
        model: the teacher, an encoder.
        table_width: E, of its table.
        path: the folder of the tokenizer of the smaller vocabulary, that of the noise.
        small_width: d, of the narrow vectors: the width of the student.
    """

    facts = replace(MLM.facts, uses=frozenset({"tracks.small", "targets.small_mlm"}))

    def __init__(
        self, *, model: Model, table_width: int, path: str | None, small_width: Count
    ) -> None:
        super().__init__()
        if not isinstance(model.backbone, Encoder):
            kind = type(model.backbone).__name__
            raise ConfigError("model", kind, "an Encoder: BERT, RoBERTa", fix="model=encoder")
        # where nothing has values, no file is read
        pieces = ("",) if torch.empty(0).is_meta else read_small(path).vocab.tokens
        self.small = SmallTable(pieces, narrow=small_width, width=table_width)
        self.head = LMHead(
            width=table_width,
            vocab_size=len(pieces),
            token_embedding=self.small,
            tied=True,
            transform=False,
            bias=True,
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        if self.training and "small_mlm" not in batch.targets:
            allowed = "words of two vocabularies: objective.mixed_vocabulary learns from no others"
            raise ConfigError("noise", ..., allowed, fix="noise=[mixed_vocabulary]")
        return {"mlm": batch.counts["mlm"] + batch.counts.get("small_mlm", 0)}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        if "small" not in batch.text.tracks:
            return super().forward(model, batch, state)
        backbone, head = cast(Encoder, model.backbone), cast(LMHead, model.heads["mlm"])
        small = batch.text.tracks["small"]
        vectors = torch.where(
            (small >= 0)[..., None],
            self.small(small.clamp(min=0)),
            backbone.embedding.token(batch.text.ids),
        )
        hidden = backbone.encode(backbone.embed_tokens(batch.text, vectors=vectors), batch)
        large, own = batch.targets["mlm"], batch.require("targets.small_mlm")
        loss, right = head.loss(hidden.gather_words(large.index), large.ids)
        states = head.transform_states(hidden.gather_words(own.index))
        small_loss, small_right = self.head.loss(states, own.ids)
        return make_output("mlm", loss + small_loss, right + small_right, self.counts(batch)["mlm"])
