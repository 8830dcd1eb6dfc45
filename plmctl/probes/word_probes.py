"""`plmctl eval task=wnlampro`: what a masked model says of rare words."""

from __future__ import annotations

import torch

from plmctl.artifacts.loading import Loaded
from plmctl.config.uses import Evaluate
from plmctl.core.errors import UsageError
from plmctl.generation.fill import fill
from plmctl.generation.prompts import batch_by_length
from plmctl.tasks.wnlampro import WNLaMPro
from plmctl.training.device.precision import Precision
from plmctl.use.predict import ScoreTable
from plmctl.use.prompting import make_prompt_reader


def probe_words(spec: Evaluate, loaded: Loaded, task: WNLaMPro, precision: Precision) -> ScoreTable:
    """The scores of a checkpoint on a split."""
    split = "dev" if spec.split == "valid" else spec.split
    entries = task.read(split)
    reader = make_prompt_reader(loaded, str(task.path))
    if reader.kind != "fill":
        fix = "a checkpoint of BERT, RoBERTa or the like, with its head"
        raise UsageError(f"task=wnlampro asks a model that fills masks\n  fix: {fix}")
    texts = [(n, text) for n, entry in enumerate(entries) for text in task.patterns(entry)]
    prompts = [reader(text, number) for number, (_, text) in enumerate(texts)]
    words: list[list[str]] = [[] for _ in prompts]
    vocab = loaded.vocab
    spelled = [
        text if start else "" for text, start in zip(vocab.texts, vocab.word_start, strict=True)
    ]
    top = min(task.top, vocab.size)
    for index in batch_by_length(prompts, spec.batch_size):
        batch = reader.batch([prompts[i] for i in index]).to(precision.device)
        with torch.no_grad(), precision.autocast():
            filled = fill(loaded.model, batch, mask=vocab.id("mask"), top=top, size=vocab.size)
        for i, masks in zip(index, filled, strict=True):
            words[i] = [spelled[token].lower() for token, _ in masks[0]]
    predicted: list[list[list[str]]] = [[] for _ in entries]
    for (n, _), found in zip(texts, words, strict=True):
        predicted[n].append(found)
    extra = {"checkpoint": str(loaded.source.folder), "entries": len(entries)}
    scores = {split: task.score(entries, predicted)}
    return ScoreTable("wnlampro", scores, extra)
