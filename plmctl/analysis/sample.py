"""Rows on which a model is measured: some that its own run held out, or sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from plmctl.analysis.stacks import find_length
from plmctl.artifacts.loading import Loaded
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError, PlmctlError
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_held_out
from plmctl.training.processes.world import World

ROWS, TOKENS = 32, 8192  # at most, in all rows together

HELD_OUT = "held-out rows of the run, as its evaluation reads them"
PLAIN = "the English sentences that come with plmctl (the run's own text is missing)"
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


def batch_held_out(loaded: Loaded) -> tuple[Batch, str]:
    """(a few rows that the pretraining of a model held out, what they are); where their tokens are
    no longer there, or the model is fine-tuned, sentences.
    """
    try:
        return _read(loaded), HELD_OUT
    except (PlmctlError, OSError):
        return batch_sentences(loaded, SENTENCES)[0], PLAIN


def _read(loaded: Loaded) -> Batch:
    """The first held-out rows; nothing is tokenized for them."""
    own = loaded.config
    if loaded.source.published or not own.get("objective"):
        raise DataError("plmctl pretrain has not made it", file=loaded.source.folder)
    rows = max(1, min(ROWS, TOKENS // find_length(loaded, loaded.model.backbone)))
    few = {**(own.get("eval") or {}), "rows": rows, "batch_size": rows}
    settings = {**own, "init": None, "eval": few}
    provenance = Provenance("pretrain", plugins=tuple(loaded.source.plugins))
    spec = spec_of("pretrain", settings, provenance)
    corpus = open_corpus(Texts.of(spec), write=False)
    if corpus.tokenizer.fingerprint != loaded.tokenizer.fingerprint:
        raise DataError("these tokens are of another tokenizer", file=loaded.source.folder)
    batches = open_held_out(Feed.of(spec), corpus, World(), BatchFields.by(loaded.model))
    batch = next((batch for rows in batches.values() for batch in rows), None)
    if batch is None:
        raise DataError("nothing was held out", file=loaded.source.folder)
    return replace(batch, counts={})
