"""The number that one would ask a finished step for."""

from __future__ import annotations

import json
from pathlib import Path

from plmctl.data.shards import MANIFEST
from plmctl.jobs.job import Job
from plmctl.report.runs import RunLog


def describe_result(job: Job, run: Path) -> str:
    """The size of what was tokenized, the validation of a pretraining, the score of a task."""
    if job.verb == "tokenize":
        manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
        tokens, size = manifest["splits"]["train"]["tokens"], manifest["tokenizer"]["size"]
        return f"{tokens:,} tokens, vocabulary {size:,}"
    if job.verb == "pretrain":
        log = RunLog.read(run)
        held = [name for name in log.series if name.startswith(("valid/loss", "valid/acc/"))]
        each = (f"{name.removeprefix('valid/')} {log.last(name):.4g}" for name in held or ["loss"])
        return ", ".join(each)
    splits = json.loads((run / "result.json").read_text(encoding="utf-8"))["metrics"]
    scores: dict[str, float] = splits.get("dev") or next(iter(splits.values()), {})
    return next((f"{name} {score:.4g}" for name, score in scores.items()), "")
