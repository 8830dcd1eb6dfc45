"""Rows for a model that is looked at: some that its own run held out, or sentences."""

from __future__ import annotations

from dataclasses import replace

from plmctl.artifacts.loading import Loaded
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch
from plmctl.core.errors import DataError, PlmctlError
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_held_out
from plmctl.report.readers import find_length
from plmctl.report.sentences import SENTENCES, batch_sentences
from plmctl.training.processes.world import World

ROWS, TOKENS = 32, 8192  # at most, in all rows together

HELD_OUT = "held-out rows of the run, as its evaluation reads them"
PLAIN = "the English sentences that come with plmctl (the run's own text is not there)"


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
