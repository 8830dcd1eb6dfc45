"""Checks of text and tokens before a long run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from plmctl.core.errors import DataError
from plmctl.core.progress import Say
from plmctl.core.terminal import remark
from plmctl.data import tokenizing
from plmctl.data.check import text, tokens
from plmctl.data.check.finding import Finding, Report
from plmctl.data.check.tokens import check_fit
from plmctl.data.formats.base import Format
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource, survey_text
from plmctl.data.tokenizing import TokenizingJob
from plmctl.storage.gate import open_file
from plmctl.text.inputs import describe_skipped
from plmctl.text.recipe import Recipe
from plmctl.text.segment import Segmenter
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import count_unknown_characters
from plmctl.text.vocab import Vocab

# characters of raw text that are tokenized to see how a tokenizer and a format fit
SAMPLE = 1 << 24
MakeFormat = Callable[[Vocab], Format]


def check_tokens(folder: str | Path, make_format: MakeFormat, *, say: Say) -> Report:
    """The findings about a token directory."""
    train, valid, tokenizer = _open_tokens(folder)
    return tokens.check(train, valid, tokenizer, make_format(tokenizer.vocab), say=say)


def check_text(
    source: TextSource,
    held: TextSource | None,
    *,
    segmenter: Segmenter | None,
    labels: str,
    say: Say,
) -> Report:
    """The findings about raw text.

    Args:
        held: The text of validation.
        segmenter: Finds Chinese words.
        labels: A line on labelled files in the same folder, which are not checked.
    """
    try:
        report = text.check(source, held, segmenter=segmenter, say=say)
    except DataError as error:
        if not labels:
            raise
        raise DataError(f"{error}\n  labels: {labels}") from None
    paths = [source.path] if isinstance(source.path, str) else source.path or []
    number, found, fix = describe_skipped(paths)
    if number:
        report.findings.insert(0, Finding("files", "look", found, fix, {"skipped": number}))
    if labels:
        report.findings.append(Finding("labels", "ok", f"not looked at: {labels}"))
    return report


def check_sample(
    source: TextSource,
    recipe: Recipe,
    make_format: MakeFormat,
    *,
    segment: str | None,
    at_most: bool,
    say: Say,
) -> list[Finding]:
    """How a tokenizer and a format fit a sample of the text.

    Args:
        make_format: Makes the format for a vocabulary.
        segment: The name of a segmenter of Chinese words.
        at_most: The tokenizer may have fewer tokens than its recipe names.
    """
    with TemporaryDirectory(prefix="plmctl-check-") as folder:
        sample = survey_text(source, valid_share=0, sample_bytes=SAMPLE, say=say).sample
        file, place = Path(folder, "sample.jsonl"), Path(folder, "tokens")
        with open_file(file, "w") as stream:
            for document in sample:
                stream.write(json.dumps({"text": "\n".join(document.paragraphs)}) + "\n")
        lines = "sentence" if all(document.whole for document in sample) else "paragraph"
        drawn = TextSource(str(file), lines=lines)
        job = TokenizingJob(
            drawn, recipe, valid_share=0, segment=segment, at_most=at_most, say=say, tell=remark
        )
        tokenizing.tokenize(job, place)
        train, valid, tokenizer = _open_tokens(place)
        counts, rows = tokens.count(train, tokenizer), make_format(tokenizer.vocab)
        texts = (paragraph for document in sample for paragraph in document.paragraphs)
        unknown = count_unknown_characters(tokenizer, texts)
        return [*check_fit(train, valid, counts, tokenizer, unknown), tokens.cut(train, rows)]


def _open_tokens(folder: str | Path) -> tuple[Shards, Shards, Tokenizer]:
    """Both splits of a token directory, and its tokenizer."""
    train, valid = (Shards.open(folder, split) for split in ("train", "valid"))
    return train, valid, Tokenizer.load(folder)
