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
from plmctl.data.survey import Source, look
from plmctl.run.build import build, plain
from plmctl.run.tokenize import sources
from plmctl.text import segment
from plmctl.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from plmctl.run.compose import Flags

# characters of raw text that are tokenized to see how a tokenizer and a format fit
SAMPLE = 1 << 24


def check_files(cfg: DictConfig, flags: Flags, say: Say) -> Report:
    """What stands out in the files that `task` or `data.path` names."""
    if cfg.task is None:
        return _corpus(cfg, flags, say)
    # they bring torch, which texts and tokens do not need
    from plmctl.tasks.base import Task
    from plmctl.tasks.check import check_task

    task = build(cfg.task, {"pooling": "first"}, flags.plugins, path="task")
    if not isinstance(task, Task):
        raise UsageError(
            f"task={cfg.task.get('name') or cfg.task['_target_']} has no labelled files to check"
        )
    path = cfg.tokenizer.get("path")
    return check_task(task, Tokenizer.load(path) if path else None)


def _chose_tokenizer(flags: Flags) -> bool:
    """Whether the command line names one; none is trained unasked."""
    return any(word.startswith("tokenizer") for word in flags.overrides)


def _corpus(cfg: DictConfig, flags: Flags, say: Say) -> Report:
    path: Any = plain(cfg.data.path)
    if is_tokens(path):
        train, valid = (Shards.open(path, split) for split in ("train", "valid"))
        tokenizer = Tokenizer.load(path)
        return tokens.check(train, valid, tokenizer, _format(cfg, flags, tokenizer), say=say)
    source, held = sources(plain(cfg.data), path)
    report = text.check(source, held, say=say)
    if _chose_tokenizer(flags):
        report.findings.extend(_tokenized(cfg, flags, source, say))
    else:
        report.findings.append(
            Finding(
                "tokens", "ok", "not looked at: tokenizer.path=<folder> shows how a tokenizer fits"
            )
        )
    return report


def _tokenized(cfg: DictConfig, flags: Flags, source: Source, say: Say) -> list[Finding]:
    """How the tokenizer and the format fit a sample of the text."""
    with TemporaryDirectory(prefix="plmctl-check-") as folder:
        sample = look(source, valid_share=0, sample_bytes=SAMPLE, say=say).sample
        file = Path(folder, "sample.jsonl")
        with file.open("w", encoding="utf-8") as stream:
            stream.writelines(
                json.dumps({"text": "\n".join(document.paragraphs)}) + "\n" for document in sample
            )
        lines = "sentence" if all(document.whole for document in sample) else "paragraph"
        recipe = build(cfg.tokenizer, plugins=flags.plugins, path="tokenizer")
        if cfg.data.segment is not None:
            segment.find(cfg.data.segment, flags.plugins)
        job = tokenizing.Job(
            Source(str(file), lines=lines), recipe, valid_share=0, segment=cfg.data.segment, say=say
        )
        place = Path(folder, "tokens")
        tokenizing.tokenize(job, place)
        train, valid = (Shards.open(place, split) for split in ("train", "valid"))
        tokenizer = Tokenizer.load(place)
        counts = tokens.count(train, tokenizer)
        return [
            *check_fit(train, valid, counts, tokenizer),
            tokens.cut(train, _format(cfg, flags, tokenizer)),
        ]


def _format(cfg: DictConfig, flags: Flags, tokenizer: Tokenizer) -> Any:
    return build(cfg.format, {"vocab": tokenizer.vocab}, flags.plugins, path="format")
