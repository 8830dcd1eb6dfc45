"""Rows on which a model is measured: some that its own run held out, texts of its task, or
sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch

from plmctl.analysis.stacks import find_length
from plmctl.artifacts.assemble import build_objective
from plmctl.artifacts.loading import Loaded
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.config.make_spec import spec_of
from plmctl.config.spec import Provenance
from plmctl.config.texts import Feed, Texts
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import DataError, PlmctlError, list_some
from plmctl.inputs.corpus import open_corpus
from plmctl.inputs.loaders import BatchFields, open_held_out
from plmctl.objectives.base import Objective
from plmctl.objectives.mix import Mix
from plmctl.tasks.task import as_task
from plmctl.text.unknown import describe_unknown, unknown_share
from plmctl.training.checkpoint import load_exactly, read
from plmctl.training.processes.world import World

ROWS, TOKENS = 32, 8192  # at most, in all rows together
LINES = 512  # lines of a text that are read

HELD_OUT = "held-out rows of the run, as its evaluation reads them"
OF_DEV = "texts of dev, in the run's own data"
OF_ROWS = "texts of held-out rows of the run"
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
    """(a few rows that the pretraining of a model held out, what they are). A fine-tuned model has
    texts of dev; where its data are no longer there, both have sentences.

    Args:
        objective: The objective whose fields the rows have, too.
    """
    try:
        batch, about = _read(loaded, objective), HELD_OUT
    except (PlmctlError, OSError):
        sentences, about = choose_sentences(loaded)  # of dev, or plain ones
        batch = batch_sentences(loaded, sentences)[0]
    ids = torch.cat([seq.ids[seq.real] for seq in batch.seqs.values()])
    return batch, about + describe_unread(loaded, ids.tolist())


def choose_sentences(loaded: Loaded) -> tuple[Sequence[str], str]:
    """(texts of the run's own data, what they are): the first ones of dev of a fine-tuned model,
    held-out rows of others. Where these data are no longer there, the English sentences.
    """
    for find, about in ((_read_dev, OF_DEV), (_read_rows, OF_ROWS)):
        try:
            texts = [text for text in find(loaded) if text.strip()][:ROWS]
        except (PlmctlError, OSError):
            continue
        if texts:
            return texts, about
    return SENTENCES, PLAIN


def batch_text(opened: Loaded, sentences: Sequence[str] = ()) -> tuple[Batch, str]:
    """(one text in each row, its source): of at most 512 sentences; without any, of the run's own
    data.
    """
    if not sentences:
        batch, about = batch_held_out(opened)
        if set(batch.seqs) == {"text"}:
            return restore_text(batch), about
        sentences, about = choose_sentences(opened)  # rows of several texts: one text in each
        return batch_sentences(opened, sentences)[0], about
    given = sentences[:LINES]
    batch, rows = batch_sentences(opened, given)
    cut = f"the first {LINES} of {len(sentences):,}" if len(sentences) > LINES else "the"
    return batch, f"{cut} lines of your text{describe_unread(opened, [*chain(*rows)], given)}"


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


def _read_dev(loaded: Loaded) -> Sequence[str]:
    """The texts of the first examples of dev, in the files of the task; none without a task."""
    node, plugins = loaded.own_task(), tuple(loaded.source.plugins)
    facts = reading(loaded.config, plugins) if node else {}
    task = as_task(build(node, facts, plugins, path="task")) if node else None
    return [text for each in task.read("dev")[:ROWS] for text in each.texts] if task else []


def _read_rows(loaded: Loaded) -> Sequence[str]:
    """The texts of held-out rows."""
    batch = restore_text(_read(loaded, None))
    seq = batch.seqs[batch.input]
    return [
        loaded.tokenizer.decode(ids[real].tolist())
        for ids, real in zip(seq.ids, seq.real, strict=True)
    ]


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
