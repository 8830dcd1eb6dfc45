"""A chain's steps one after the other, each an ordinary command in a folder of its own; what is
finished stays finished.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plmctl.chain import page
from plmctl.chain.figure import describe_result
from plmctl.chain.plan import RecipeChain
from plmctl.core.progress import clock
from plmctl.core.terminal import print_table, remark, tell
from plmctl.jobs.job import REFERENCE, Job, locate_runs, remark_next
from plmctl.jobs.journal import JobJournal, hold_folder
from plmctl.jobs.runners import run_here
from plmctl.jobs.work import RECORD
from plmctl.report.job_events import Event
from plmctl.run.compose import Flags
from plmctl.run.resume import leaves


def run_chain(chain: RecipeChain, out: Path, *, quiet: bool = False) -> tuple[int, JobJournal]:
    """Run what is not done yet.

    Args:
        chain: its steps.
        out: its folder.
        quiet: whether what the steps print goes to the standard error.

    Returns:
        The exit code of the step that ended it, else 0; and how all steps stand.
    """
    runs = locate_runs(chain.jobs, out)
    settings = {"recipe": chain.recipe, "words": list(chain.words)}
    heads = {
        name: f"[{number}/{len(chain.jobs)}] {job.label}"
        for number, (name, job) in enumerate(chain.jobs.items(), 1)
    }

    def tell(event: Event, job: Job, why: str) -> None:
        head = heads[job.name]
        if event in ("started", "resumed"):
            for note in _describe_changes(job, out):
                remark(f"{head}: {note}")
            verb = "goes on" if event == "resumed" else "starts"
            remark(f"{head}: {verb}\n$ {job.line(runs)}")
        elif event == "finished":
            result = describe_result(job, Path(runs[job.name]))
            remark(f"{head}: done, {clock(journal.events.of(job.name).seconds)}; {result}")

    with hold_folder(out, settings, kind="chain", command="plmctl recipes run"):
        journal = JobJournal(chain.jobs, out, tell=tell)
        for job in journal.done:
            time = clock(journal.events.of(job.name).seconds)
            remark(f"{heads[job.name]}: finished before, {time}; {runs[job.name]}")
        with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
            return run_here(journal), journal


def run_and_show(chain: RecipeChain, out: Path, typed: Sequence[str], flags: Flags) -> int:
    """Run a chain; then print its table and write its page; returns the exit code.

    Args:
        chain: its steps.
        out: its folder.
        typed: the words behind `plmctl recipes run`, with which one goes on.
        flags: of the command line.
    """
    code, journal = run_chain(chain, out, quiet=flags.json)
    steps = page.records(journal, out)
    written = page.write(chain, steps, out)
    if flags.json:
        tell(json.dumps({"recipe": chain.recipe, "code": code, "steps": steps}))
    else:
        print_table(page.HEAD, page.rows(steps))
    remark(f"page: {written}")
    if code:
        ended = next(job for job in chain.jobs.values() if job not in journal.done)
        what = f"{ended.label} {'was stopped' if code > 128 else 'failed'}"
        remark_next(what, "recipes", "run", *typed, given=flags)
    return code


def _describe_changes(job: Job, out: Path) -> Iterator[str]:
    """What differs from the newest folder of a step of this name, which stays as it is."""
    others = [
        file.parent
        for file in out.glob(f"{job.label}-*/{RECORD}")
        if file.parent.name.rpartition("-")[0] == job.label and file.parent.name != job.name
    ]
    if others and not (out / job.name).exists():
        newest = max(others, key=lambda folder: folder.stat().st_mtime)
        before = dict(leaves(json.loads((newest / RECORD).read_text(encoding="utf-8"))["plan"]))
        now = dict(leaves(json.loads(json.dumps(job.config))))
        changes = [
            f"{path}: {_shown(before.get(path))} -> {_shown(now.get(path))}"
            for path in dict.fromkeys([*before, *now])
            if before.get(path) != now.get(path) and not path.startswith(("run.", "recipe"))
        ]
        more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
        yield (
            f"differs from {newest}, which stays"
            f" ({', '.join(changes[:4]) or 'a file has changed'}{more}); starts anew"
        )


def _shown(value: Any) -> str:
    return str(value).removeprefix(REFERENCE)
