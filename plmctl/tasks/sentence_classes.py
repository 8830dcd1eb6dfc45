"""The class of two texts from the vector of each: SBERT's objective on inference data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.sentences import embed_text
from plmctl.models.base import Model
from plmctl.tasks.classification import Classification, ClassificationSettings
from plmctl.tasks.facts import ModelNeeds
from plmctl.tasks.layouts.apart import PLACE, check_pooling, encode_apart, put_first, split_pairs
from plmctl.tasks.record import Examples
from plmctl.tasks.task import need


@dataclass(frozen=True, kw_only=True)
class SentenceClassesSettings(ClassificationSettings):
    """Settings of classes of two texts that are read apart.

    Args:
        pooling: The vector of a text (heads/sentences.py).
        causal: no token of the model sees a later one.
    """

    pooling: str = "mean"
    causal: bool = False


@part_of("task")
class SentenceClasses(Classification):
    """`softmax(W [u; v; |u - v|])`, u and v the vectors of the two texts, each read by itself
    (Reimers and Gurevych, 2019, arXiv:1908.10084, sec. 3, "classification objective function").

    The vectors are what the model is trained for: `plmctl embed pooling=trained`.
    """

    fields: Mapping[str, Field] = {"values.place": PLACE}
    embeds = True
    facts = replace(
        Classification.facts,
        needs=frozenset({"text", "labels.class", "values.group", "values.place"}),
        pipeline="sentence-similarity",
    )
    requires = ModelNeeds(vectors=3)

    Settings: ClassVar[type[SentenceClassesSettings]] = SentenceClassesSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = self.Settings(**settings)
        check_pooling(own.pooling, causal=own.causal)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        texts = [[str(e.fields["text"]), str(e.fields["text2"])] for e in examples]
        rows = encode_apart(self, texts, tokenizer)
        return need(self.answer).label(rows, examples, self.label_names)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        place = batch.require("values.place")
        u, v = split_pairs(embed_text(model, batch, self.pooling), place)  # [E, W] each
        scores = model.heads["class"](torch.cat([u, v, (u - v).abs()], -1))  # [E, K]
        return {"class": put_first(scores, place)}
