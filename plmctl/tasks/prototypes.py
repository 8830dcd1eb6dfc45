"""Few-shot classes of texts: each class is the mean of the vectors of a few texts (prototypical
networks).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.parts import part_of
from plmctl.heads.sentences import SENTENCE, embed_text
from plmctl.models.base import Model
from plmctl.tasks.episodes import EpisodeSettings, EpisodicTask
from plmctl.tasks.layouts.apart import check_pooling
from plmctl.tasks.layouts.texts import TextRows
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example


@dataclass(frozen=True, kw_only=True)
class PrototypesSettings(EpisodeSettings):
    """Settings of few-shot classes.

    Args:
        new_classes: Whether dev, held out of a single file, has classes that training has not seen;
            False: texts.
        pooling: The vector of a text (heads/sentences.py).
        causal: no token of the model sees a later one.
    """

    new_classes: bool = True
    pooling: str = "mean"
    causal: bool = False


@part_of("task")
class Prototypes(EpisodicTask):
    """Which of N classes has a text or a pair, given K texts of each (Snell et al., 2017,
    arXiv:1703.05175)?

    An example is an episode, as `Episodes` says; the vector of a text is what `plmctl embed
    pooling=trained` writes. `accuracy` is the mean over episodes, and `interval` half the width of
    its 95% interval, 1.96 standard errors. Differs: as many classes are compared in training as in
    evaluation (sec. 3.1 trains with more ways).
    """

    embeds = True
    facts = replace(
        EpisodicTask.facts, head=SENTENCE, pipeline="sentence-similarity", own_label="vector"
    )

    Settings = PrototypesSettings

    def __init__(self, **settings: Any) -> None:
        own = PrototypesSettings(**settings)
        super().__init__(own, "classes", TextRows())
        check_pooling(own.pooling, causal=own.causal)
        self.own = own

    def unit(self, example: Example) -> str:
        """All texts of a class, or the texts of the example."""
        return str(example.label) if self.own.new_classes else super().unit(example)

    def texts(self, example: Example) -> list[str]:
        return [
            each[role] for each in example.fields["sentences"] for role in TEXTS if role in each
        ]

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        return {"vector": self.episodes.compare(embed_text(model, batch, self.pooling), batch)}
