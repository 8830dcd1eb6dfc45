"""Sentences as one batch for a model that is looked at."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Batch, Seq

SENTENCES = (  # the same for every run, so that runs compare
    "The river rose in the night, and by morning the lower fields were under water.",
    "She had read the letter twice before she understood who had written it.",
    "In 1905 the town counted four schools, two mills and a railway station.",
    "Most birds of this kind build their nests close to the ground.",
    "The committee will meet again next week to vote on the new budget.",
    "He asked for a cup of tea, sat down by the window and said nothing.",
    "Iron becomes soft at high temperatures and can then be bent into any shape.",
    "Nobody knows how the old bridge survived the storm.",
)


def batch_sentences(
    loaded: Loaded, sentences: Sequence[str], most: int | None = None
) -> tuple[Batch, list[list[int]]]:
    """(one row a sentence, with the special tokens of the model's template; the ids of each), at
    most `most` tokens long.
    """
    vocab = loaded.vocab
    limits = [bound for bound in (loaded.model.backbone.max_length, most) if bound is not None]
    template = vocab.single if vocab.cls is not None else ("A",)
    rows = [
        [
            i
            for r in template
            for i in (loaded.tokenizer.encode(text) if r == "A" else [vocab.id(r)])
        ]
        for text in sentences
    ]
    rows = [row[: min(limits)] if limits else row for row in rows]
    length = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(length.max())), vocab.pad)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return Batch(torch.arange(len(rows)), {"text": Seq(ids, length)}), rows
