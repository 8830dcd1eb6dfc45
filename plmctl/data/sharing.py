"""One tokenizer for several texts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.data.survey import Survey, survey_text
from plmctl.data.tokenizing import TokenizingJob, choose_training_texts
from plmctl.storage.journal import open_journal
from plmctl.storage.paths import find_cache_folder
from plmctl.text.recipe import Recipe
from plmctl.text.tokenizer import META, Tokenizer

# bytes of raw text that are hashed on each start; for more text, size and time of change count
_EXACT = 1 << 28


def share_tokenizer(
    jobs: Sequence[TokenizingJob],
    *,
    temperature: float | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    write: bool = True,
) -> Path:
    """The folder of a tokenizer that is trained on a part of each job's text, cached by their
    content. DataError if it does not exist yet and nothing may be written.

    The sample has `tokenizer.sample_bytes` in all; a text that is shorter than its part gives all
    it has.

    Args:
        temperature: parts are as large as `bytes ** (1 / temperature)`; XLM's 0.5 (Conneau and
            Lample, 2019, arXiv:1901.07291, sec. 3.1) is temperature 2. None: equally large.
    """
    contents = [job.source.content(_EXACT) for job in jobs]
    parts = share_sample(contents, jobs[0].recipe.sample_bytes, temperature=temperature)
    identity = {
        "texts": contents,
        "settings": [job.settings() for job in jobs],
        **({} if temperature is None else {"temperature": temperature}),
    }
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    folder = find_cache_folder(cache_dir) / f"tokenizer-{key}"
    recipe, at_most = jobs[0].recipe, jobs[0].at_most
    if (folder / META).is_file():
        if not at_most:
            recipe.check_size(Tokenizer.load(folder).vocab.size)
        return folder
    if not write:
        raise DataError("these texts have no tokenizer yet", file=jobs[0].source.path)
    with open_journal(folder, identity, wait=True, tell=jobs[0].tell) as journal:
        if not (folder / META).is_file():  # no other process has made it meanwhile
            surveys = [
                survey_text(job.source, valid_share=job.valid_share, sample_bytes=part, say=job.say)
                for job, part in zip(jobs, parts, strict=True)
            ]
            jobs[0].say("training the tokenizer", 0, 0)
            read_texts = partial(_read_samples, surveys, parts, recipe)
            tell = jobs[0].tell if at_most else None
            Tokenizer.learn_most(read_texts, recipe, tell).save(journal.folder)
            journal.finish(folder)
    return folder


def _read_samples(surveys: Sequence[Survey], parts: Sequence[int], recipe: Recipe) -> Iterator[str]:
    """The texts that a tokenizer is trained on, `parts` bytes of each survey's sample."""
    for survey, part in zip(surveys, parts, strict=True):
        yield from choose_training_texts(survey.sample, replace(recipe, sample_bytes=part))


def share_sample(
    contents: Sequence[Sequence[Mapping[str, Any]]], total: int, *, temperature: float | None
) -> list[int]:
    """How much of each text, bytes, makes a sample of `total`.

    Args:
        contents: The contents of each text, its files and their sizes, as `TextSource.content`
            gives them.
        temperature: The temperature, as for `share_tokenizer`. With None, or if the size of a text
            is not known, all texts give equally much.
    """
    sizes = [sum(entry.get("bytes", 0) for entry in content) for content in contents]
    power = 0.0 if temperature is None or 0 in sizes else 1 / temperature
    weights = [float(size) ** power for size in sizes]
    return [max(1, int(total * weight / sum(weights))) for weight in weights]
