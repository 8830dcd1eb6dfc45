"""A chain's steps one after the other, each an ordinary command in a folder of its own; what is
finished stays finished.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plmctl.chain import page
from plmctl.chain.figure import describe_result
from plmctl.chain.plan import RecipeChain
from plmctl.chain.show import print_table
from plmctl.core.progress import clock
from plmctl.core.terminal import remark, tell
from plmctl.jobs.job import REFERENCE, RUN, Job, locate_runs
from plmctl.jobs.journal import Event, JobJournal, hold_folder
from plmctl.jobs.runners import run_here
from plmctl.jobs.work import RECORD, read_seconds
from plmctl.run.compose import Flags
from plmctl.run.plugins import as_words
from plmctl.run.resume import leaves


def run_chain(chain: RecipeChain, out: Path, *, quiet: bool = False) -> tuple[int, list[Job]]:
    """Run what is not done yet.

    Args:
        chain: its steps.
        out: its folder.
        quiet: whether what the steps print goes to the standard error.

    Returns:
        The exit code of the step that ended it, else 0; the steps that are finished.
    """
    runs = locate_runs(chain.jobs, out)
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
            remark(
                f"{head}: done, {clock(read_seconds(place))}; {describe_result(job, place / RUN)}"
            )

    with hold_folder(out, settings, kind="chain", command="plmctl recipes run"):
        journal = JobJournal(chain.jobs, out, tell=tell)
        for name, state in journal.states.items():
            if state.kind == "done":
                time = clock(read_seconds(out / name))
                remark(f"{heads[name]}: finished before, {time}; {out / name / RUN}")
        with contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext():
            code = run_here(journal)
    done = [chain.jobs[name] for name, state in journal.states.items() if state.kind == "done"]
    return code, done


def run_and_show(chain: RecipeChain, out: Path, typed: Sequence[str], flags: Flags) -> int:
    """Run a chain; then print its table and write its page; returns the exit code.

    Args:
        chain: its steps.
        out: its folder.
        typed: the words behind `plmctl recipes run`, with which one goes on.
        flags: of the command line.
    """
    code, done = run_chain(chain, out, quiet=flags.json)
    steps = page.records(chain, done, out)
    written = page.write(chain, steps, out)
    if flags.json:
        tell(json.dumps({"recipe": chain.recipe, "code": code, "steps": steps}))
    else:
        print_table(page.HEAD, page.rows(steps))
    remark(f"page: {written}")
    if code:
        options = [word for each in flags.config_dirs for word in ("--config-dir", each)]
        line = shlex.join([*typed, *options, *as_words(flags.plugins)])
        names = {job.name for job in done}
        ended = next(job.label for name, job in chain.jobs.items() if name not in names)
        what = f"{ended} {'was stopped' if code > 128 else 'failed'}"
        remark(f"{what}; what is finished stays so. To go on:\n  plmctl recipes run {line}")
    return code


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
