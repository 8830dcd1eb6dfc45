"""One tokenizer for several texts."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.data.survey import survey_text
from plmctl.data.tokenizing import TokenizingJob, choose_training_texts
from plmctl.storage.journal import open_journal
from plmctl.storage.paths import find_cache_folder
from plmctl.text.tokenizer import META, Tokenizer

# bytes of raw text that are hashed on each start; for more text, size and time of change count
_EXACT = 1 << 28


def share_tokenizer(
    jobs: Sequence[TokenizingJob],
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    write: bool = True,
) -> Path:
    """The folder of a tokenizer that is trained on equally much of each job's text, cached by their
    content; DataError where there is none yet and nothing may be written.

    The sample has `tokenizer.sample_bytes` in all; a text that is shorter than its part gives all
    it has, so that small languages get their pieces. Differs: XLM samples texts with its
    temperature for this too (arXiv:1901.07291, sec. 3.1).
    """
    recipe = replace(jobs[0].recipe, sample_bytes=max(1, jobs[0].recipe.sample_bytes // len(jobs)))
    identity = {
        "texts": [job.source.content(_EXACT) for job in jobs],
        "settings": [job.settings() for job in jobs],
    }
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
    folder = find_cache_folder(cache_dir) / f"tokenizer-{key}"
    if (folder / META).is_file():
        return folder
    if not write:
        raise DataError("these texts have no tokenizer yet", file=jobs[0].source.path)
    with open_journal(folder, identity, wait=True, tell=jobs[0].tell) as journal:
        if not (folder / META).is_file():  # no other process has made it meanwhile
            surveys = [
                survey_text(
                    job.source,
                    valid_share=job.valid_share,
                    sample_bytes=recipe.sample_bytes,
                    say=job.say,
                )
                for job in jobs
            ]
            jobs[0].say("training the tokenizer", 0, 0)
            samples = (choose_training_texts(survey.sample, recipe) for survey in surveys)
            texts = itertools.chain.from_iterable(samples)
            Tokenizer.learn(texts, recipe).save(journal.folder)
            journal.finish(folder)
    return folder
