"""Rows on which a model is measured: some that its own run held out, or sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from plmctl.analysis.stacks import find_length
from plmctl.artifacts.assemble import build_objective
from plmctl.artifacts.loading import Loaded
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError, PlmctlError, list_some
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_held_out
from plmctl.objectives.base import Objective
from plmctl.objectives.mix import Mix
from plmctl.text.unknown import describe_unknown, unknown_share
from plmctl.training.checkpoint import load_exactly, read
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


def batch_sentences(loaded: Loaded, sentences: Sequence[str]) -> tuple[Batch, list[list[int]]]:
    """(one row a sentence, with the special tokens of the model's template; the ids of each). A
    row that is too long for the model loses the end of its sentence.
    """
    vocab, (template, room) = loaded.vocab, _find_room(loaded)
    texts = [loaded.tokenizer.encode(text)[:room] for text in sentences]
    rows = [
        [i for role in template for i in (text if role == "A" else [vocab.id(role)])]
        for text in texts
    ]
    length = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(length.max())), vocab.pad)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return Batch(torch.arange(len(rows)), {"text": Seq(ids, length)}), rows


def batch_held_out(loaded: Loaded, objective: Objective | None = None) -> tuple[Batch, str]:
    """(a few rows that the pretraining of a model held out, what they are); where their tokens are
    no longer there, or the model is fine-tuned, sentences.

    Args:
        loaded: The model.
        objective: The objective whose fields the rows have, too.
    """
    try:
        batch, about = _read(loaded, objective), HELD_OUT
    except (PlmctlError, OSError):
        batch, about = batch_sentences(loaded, SENTENCES)[0], PLAIN
    ids = torch.cat([seq.ids[seq.real] for seq in batch.seqs.values()])
    return batch, about + describe_unread(loaded, ids.tolist())


def open_objective(opened: Loaded) -> Mix | None:
    """The objective of a pretrained checkpoint with weights of its own, such as a generator; None
    for other models.
    """
    if opened.source.published or not opened.config.get("objective"):
        return None
    folder, model = opened.source.folder, opened.model
    plugins = tuple(opened.source.plugins)
    objective = build_objective(
        opened.config["objective"], model, opened.vocab, plugins=plugins, seed=0
    )
    file = folder / "objective.safetensors"
    load_exactly(objective, read(folder).objective, file=file, without=model)
    return objective.to(next(model.parameters()).device).eval()


def restore_text(batch: Batch) -> Batch:
    """The rows with the tokens of the text, also where masks hid them."""
    hidden = batch.targets.get("mlm")
    if hidden is None:
        return batch
    ids = hidden.write_into(batch.text.ids, hidden.ids)
    return replace(batch, seqs={**batch.seqs, "text": replace(batch.text, ids=ids)})


def describe_unread(loaded: Loaded, ids: Sequence[int], sentences: Sequence[str] = ()) -> str:
    """Remarks on unknown tokens among `ids`, and on `sentences` that are longer than a row of the
    model, or "".
    """
    (_, room), texts = _find_room(loaded), loaded.tokenizer.encode_batch(sentences)
    cut = [f"{room:,} of {len(text):,}" for text in texts if room is not None and len(text) > room]
    unread = f"only the first {list_some(cut, 3)} tokens are read" if cut else ""
    remarks = (describe_unknown(unknown_share(ids, loaded.vocab)), unread)
    return "".join(f"; {each}" for each in remarks if each)


def _find_room(loaded: Loaded) -> tuple[Sequence[str], int | None]:
    """(the roles of a row, "A" for its text; the tokens of the text that fit, None for all)."""
    template = loaded.vocab.single if loaded.vocab.cls is not None else ("A",)
    limit = loaded.model.backbone.max_length
    return template, None if limit is None else max(0, limit - len(template) + 1)


def _read(loaded: Loaded, objective: Objective | None) -> Batch:
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
    batches = open_held_out(Feed.of(spec), corpus, World(), BatchFields.by(loaded.model, objective))
    batch = next((batch for rows in batches.values() for batch in rows), None)
    if batch is None:
        raise DataError("nothing was held out", file=loaded.source.folder)
    return replace(batch, counts={})
