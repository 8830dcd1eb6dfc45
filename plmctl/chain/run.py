"""A chain's steps one after the other, each an ordinary command in a folder of its own; what is
finished stays finished.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plmctl.chain.plan import Chain
from plmctl.core.progress import clock
from plmctl.core.terminal import remark
from plmctl.data.shards import MANIFEST
from plmctl.jobs.job import REFERENCE, RUN, Job, run_folders
from plmctl.jobs.journal import Event, Journal, opened
from plmctl.jobs.runners import run_here
from plmctl.jobs.work import RECORD, seconds
from plmctl.report.runs import RunLog
from plmctl.run.resume import leaves


def run_chain(chain: Chain, out: Path, *, quiet: bool = False) -> tuple[int, list[Job]]:
    """Run what is not done yet.

    Args:
        chain: its steps.
        out: its folder.
        quiet: whether what the steps print goes to the standard error.

    Returns:
        The exit code of the step that ended it, else 0; the steps that are finished.
    """
    runs = run_folders(chain.jobs, out)
    settings = {"recipe": chain.recipe, "words": list(chain.words)}
    heads = {
        name: f"[{number}/{len(chain.jobs)}] {job.label}"
        for number, (name, job) in enumerate(chain.jobs.items(), 1)
    }

    def tell(event: Event, job: Job, why: str) -> None:
        head, place = heads[job.name], out / job.name
        if event in ("started", "resumed"):
            for note in _changes(job, out):
                remark(f"{head}: {note}")
            goes = "goes on" if event == "resumed" else "starts"
            remark(f"{head}: {goes}\n$ {job.line(runs)}")
        elif event == "finished":
            remark(f"{head}: done, {clock(seconds(place))}; {figure(job, place / RUN)}")

    with opened(out, settings, kind="chain", command="plmctl recipes run"):
        journal = Journal(chain.jobs, out, tell=tell)
        for name, state in journal.states.items():
            if state.kind == "done":
                time = clock(seconds(out / name))
                remark(f"{heads[name]}: finished before, {time}; {out / name / RUN}")
        with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
            code = run_here(journal)
    done = [chain.jobs[name] for name, state in journal.states.items() if state.kind == "done"]
    return code, done


def _changes(job: Job, out: Path) -> Iterator[str]:
    """What is another than in the newest folder of a step of this name, which stays as it is."""
    others = [
        file.parent
        for file in out.glob(f"{job.label}-*/{RECORD}")
        if file.parent.name.rpartition("-")[0] == job.label and file.parent.name != job.name
    ]
    if others and not (out / job.name).exists():
        newest = max(others, key=lambda place: place.stat().st_mtime)
        before = dict(leaves(json.loads((newest / RECORD).read_text(encoding="utf-8"))["plan"]))
        now = dict(leaves(json.loads(json.dumps(job.config))))
        told = [
            f"{path}: {_shown(before.get(path))} -> {_shown(now.get(path))}"
            for path in dict.fromkeys([*before, *now])
            if before.get(path) != now.get(path) and not path.startswith(("run.", "recipe"))
        ]
        more = f" and {len(told) - 4} more" if len(told) > 4 else ""
        yield (
            f"another than in {newest}, which stays"
            f" ({', '.join(told[:4]) or 'a file has changed'}{more}); begins anew"
        )


def _shown(value: Any) -> str:
    return str(value).removeprefix(REFERENCE)


def figure(job: Job, run: Path) -> str:
    """The number that one would ask a finished step for."""
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
