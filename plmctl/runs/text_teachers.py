"""Teachers that read texts by their own tokenizers, and give the vector of each, for tasks that
learn vectors (`tasks/capabilities.py`, `Embedded`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import ConfigError
from plmctl.distill.base import Measures
from plmctl.distill.teachers import TextVectors
from plmctl.heads.sentences import SENTENCE
from plmctl.models.base import Model
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.predict import BATCH
from plmctl.use.sentence_vectors import choose_pooling, embed_texts
from plmctl.use.vectors import make_batch


@dataclass(frozen=True)
class Lessons:
    """The texts that teachers embed, in the order of the training examples."""

    texts: Sequence[str]
    precision: Precision

    def embed(self, loaded: Loaded, name: str, say: Callable[[str], None]) -> TextVectors:
        """A teacher with the vectors of a model, by the pooling it was trained with, else the
        means of its tokens.
        """
        pooling = choose_pooling(loaded, None, path="teacher")
        say(f"{name} embeds {len(self.texts):,} texts, pooling {pooling.words}")
        loaded.model.to(self.precision.device)
        each = list(dict.fromkeys(self.texts))
        vectors = embed_texts(loaded, each, pooling, batch_size=BATCH, precision=self.precision)
        row = {text: number for number, text in enumerate(each)}
        own = torch.from_numpy(vectors[[row[text] for text in self.texts]])
        return TextVectors(vectors=own, measures=Measures.of(loaded.model, name))


def outline_vectors(loaded: Loaded, name: str, model: Model) -> TextVectors:
    """A teacher without vectors, of models without weights.

    Raises:
        ConfigError: The student's vectors have another width.
    """
    word = make_batch([EmbeddingLine([0])], loaded.source.spelling).to("meta")
    with torch.no_grad():
        width = choose_pooling(loaded, None, path="teacher")(loaded.model, word).shape[-1]
        state = torch.empty(1, model.backbone.width, device="meta")
        own = model.heads[SENTENCE](state).shape[-1] if SENTENCE in model.heads else len(state[0])
    if own != width:
        allowed = f"a model whose vectors have {own} columns, as the student's; it has {width}"
        fix = f"heads.sentence.columns={width}, a linear layer behind the student"
        raise ConfigError("teacher", str(loaded.source.folder), allowed, fix=fix)
    vectors = torch.empty(0, width, device="meta")
    return TextVectors(vectors=vectors, measures=Measures.of(loaded.model, name))
