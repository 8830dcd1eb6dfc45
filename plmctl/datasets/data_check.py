"""What a careful person looks for in text, tokens or labelled files before a long run."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from plmctl.config.asked import is_asked
from plmctl.config.build import build, plain
from plmctl.core.errors import DataError, UsageError
from plmctl.core.progress import Say
from plmctl.core.terminal import remark
from plmctl.data import tokenizing
from plmctl.data.check import text, tokens
from plmctl.data.check.finding import Finding, Report
from plmctl.data.check.tokens import check_fit
from plmctl.data.shards import Shards, is_tokens
from plmctl.data.survey import TextSource, survey_text
from plmctl.data.tokenizing import TokenizingJob
from plmctl.inputs.labelled_files import describe_labels
from plmctl.inputs.tokenize import find_sources
from plmctl.storage.gate import open_file
from plmctl.text import segment
from plmctl.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from plmctl.config.schema import Check
    from plmctl.data.formats.base import Format

# characters of raw text that are tokenized to see how a tokenizer and a format fit
SAMPLE = 1 << 24


def check_files(spec: Check, say: Say) -> Report:
    """What stands out in the files that `task` or `data.path` names."""
    if spec.task is None:
        return _check_text(spec, say)
    # they bring torch, which texts and tokens do not need
    from plmctl.tasks.check import check_task
    from plmctl.tasks.task import as_task

    task = as_task(build(spec.task, {"pooling": "first"}, spec.plugins, path="task"))
    if task is None:
        name = spec.task.get("name") or spec.task["_target_"]
        raise UsageError(f"task={name} has no labelled files to check")
    path = spec.tokenizer.get("path")
    return check_task(task, Tokenizer.load(path) if path else None)


def _check_text(spec: Check, say: Say) -> Report:
    path: Any = plain(spec.data.path)
    if is_tokens(path):
        train, valid, tokenizer, layout = _open_tokens(spec, path)
        return tokens.check(train, valid, tokenizer, layout, say=say)
    source, held = find_sources(plain(spec.data), path)
    labels = describe_labels(path, spec.provenance.config_dirs)
    words = spec.data.segment
    segmenter = segment.find(words, spec.plugins) if words is not None else None
    try:
        report = text.check(source, held, segmenter=segmenter, say=say)
    except DataError as error:
        if not labels:
            raise
        raise DataError(f"{error}\n  labels: {labels}") from None
    if labels:
        report.findings.append(Finding("labels", "ok", f"not looked at: {labels}"))
    # no tokenizer is trained unasked
    if any(key.startswith("tokenizer") for key in spec.provenance.keys):
        report.findings.extend(_check_sample(spec, source, say))
    else:
        hint = "not looked at: tokenizer.path=<folder> shows how a tokenizer fits"
        report.findings.append(Finding("tokens", "ok", hint))
    return report


def _check_sample(spec: Check, source: TextSource, say: Say) -> list[Finding]:
    """How the tokenizer and the format fit a sample of the text."""
    with TemporaryDirectory(prefix="plmctl-check-") as folder:
        sample = survey_text(source, valid_share=0, sample_bytes=SAMPLE, say=say).sample
        file, place = Path(folder, "sample.jsonl"), Path(folder, "tokens")
        with open_file(file, "w") as stream:
            for document in sample:
                stream.write(json.dumps({"text": "\n".join(document.paragraphs)}) + "\n")
        lines = "sentence" if all(document.whole for document in sample) else "paragraph"
        recipe = build(spec.tokenizer, plugins=spec.plugins, path="tokenizer")
        if spec.data.segment is not None:
            segment.find(spec.data.segment, spec.plugins)
        drawn, kind = TextSource(str(file), lines=lines), spec.data.segment
        at_most = not is_asked(spec.provenance, "tokenizer.vocab_size")
        job = TokenizingJob(
            drawn, recipe, valid_share=0, segment=kind, at_most=at_most, say=say, tell=remark
        )
        tokenizing.tokenize(job, place)
        train, valid, tokenizer, layout = _open_tokens(spec, place)
        counts = tokens.count(train, tokenizer)
        return [*check_fit(train, valid, counts, tokenizer), tokens.cut(train, layout)]


def _open_tokens(spec: Check, folder: Any) -> tuple[Shards, Shards, Tokenizer, Format]:
    """Both splits of a token directory, its tokenizer, and the format that is asked for."""
    train, valid = (Shards.open(folder, split) for split in ("train", "valid"))
    tokenizer = Tokenizer.load(folder)
    layout = build(spec.format, {"vocab": tokenizer.vocab}, spec.plugins, path="format")
    return train, valid, tokenizer, layout
