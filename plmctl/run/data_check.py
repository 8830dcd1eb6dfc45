"""What a careful person looks for in text, tokens or labelled files before a long run."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import UsageError
from plmctl.core.progress import Say
from plmctl.data import tokenizing
from plmctl.data.check import text, tokens
from plmctl.data.check.finding import Finding, Report
from plmctl.data.check.tokens import check_fit
from plmctl.data.shards import Shards, is_tokens
from plmctl.data.survey import TextSource, survey_text
from plmctl.data.tokenizing import TokenizingJob
from plmctl.run.build import build, plain
from plmctl.run.tokenize import sources
from plmctl.text import segment
from plmctl.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from plmctl.run.schema import Check

# characters of raw text that are tokenized to see how a tokenizer and a format fit
SAMPLE = 1 << 24


def check_files(spec: Check, say: Say) -> Report:
    """What stands out in the files that `task` or `data.path` names."""
    if spec.task is None:
        return _corpus(spec, say)
    # they bring torch, which texts and tokens do not need
    from plmctl.tasks.base import Task
    from plmctl.tasks.check import check_task

    task = build(spec.task, {"pooling": "first"}, spec.plugins, path="task")
    if not isinstance(task, Task):
        raise UsageError(
            f"task={spec.task.get('name') or spec.task['_target_']} has no labelled files to check"
        )
    path = spec.tokenizer.get("path")
    return check_task(task, Tokenizer.load(path) if path else None)


def _chose_tokenizer(spec: Check) -> bool:
    """Whether the command line names one; none is trained unasked."""
    return any(word.startswith("tokenizer") for word in spec.provenance.overrides)


def _corpus(spec: Check, say: Say) -> Report:
    path: Any = plain(spec.data.path)
    if is_tokens(path):
        train, valid = (Shards.open(path, split) for split in ("train", "valid"))
        tokenizer = Tokenizer.load(path)
        return tokens.check(train, valid, tokenizer, _format(spec, tokenizer), say=say)
    source, held = sources(plain(spec.data), path)
    report = text.check(source, held, say=say)
    if _chose_tokenizer(spec):
        report.findings.extend(_tokenized(spec, source, say))
    else:
        report.findings.append(
            Finding(
                "tokens", "ok", "not looked at: tokenizer.path=<folder> shows how a tokenizer fits"
            )
        )
    return report


def _tokenized(spec: Check, source: TextSource, say: Say) -> list[Finding]:
    """How the tokenizer and the format fit a sample of the text."""
    with TemporaryDirectory(prefix="plmctl-check-") as folder:
        sample = survey_text(source, valid_share=0, sample_bytes=SAMPLE, say=say).sample
        file = Path(folder, "sample.jsonl")
        with file.open("w", encoding="utf-8") as stream:
            stream.writelines(
                json.dumps({"text": "\n".join(document.paragraphs)}) + "\n" for document in sample
            )
        lines = "sentence" if all(document.whole for document in sample) else "paragraph"
        recipe = build(spec.tokenizer, plugins=spec.plugins, path="tokenizer")
        if spec.data.segment is not None:
            segment.find(spec.data.segment, spec.plugins)
        job = TokenizingJob(
            TextSource(str(file), lines=lines),
            recipe,
            valid_share=0,
            segment=spec.data.segment,
            say=say,
        )
        place = Path(folder, "tokens")
        tokenizing.tokenize(job, place)
        train, valid = (Shards.open(place, split) for split in ("train", "valid"))
        tokenizer = Tokenizer.load(place)
        counts = tokens.count(train, tokenizer)
        return [
            *check_fit(train, valid, counts, tokenizer),
            tokens.cut(train, _format(spec, tokenizer)),
        ]


def _format(spec: Check, tokenizer: Tokenizer) -> Any:
    return build(spec.format, {"vocab": tokenizer.vocab}, spec.plugins, path="format")
