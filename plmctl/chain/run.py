"""`plmctl recipes run` and `show`: a chain's steps one after the other, each an ordinary command in
a folder of its own; what is finished stays finished.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.chain import page
from plmctl.chain.plan import RecipeChain, plan
from plmctl.chain.show import find_header, show_recipe
from plmctl.config.spec import Provenance
from plmctl.config.walks import leaves
from plmctl.core.errors import DataError, UsageError
from plmctl.core.progress import clock
from plmctl.core.terminal import print_table, remark, tell
from plmctl.jobs.job import REFERENCE, Job, locate_runs, remark_next
from plmctl.jobs.journal import JobJournal, hold_folder
from plmctl.jobs.runners import run_here
from plmctl.jobs.work import RECORD
from plmctl.storage.job_events import Event
from plmctl.storage.reading import parse_json

OUT = "chains"  # where chains are, without out=


def show(name: str, words: Sequence[str], given: Provenance) -> None:
    """Print what a recipe is, and the commands of its chain: none where words are missing that name
    its text.
    """
    lines: Sequence[str] = ()
    try:
        chain, out = _plan(name, words, given)
        lines = chain.lines(out)
    except DataError as error:
        if words:
            raise
        remark(str(error))
    show_recipe(shlex.join([name, *words]), find_header(name, given), name, lines, given)


def run(name: str, words: Sequence[str], given: Provenance) -> int:
    """Run what is not done yet of a recipe's chain, print its table and write its page; with
    `dry_run` print its commands. Returns the exit code of the step that ended it, else 0.
    """
    chain, out = _plan(name, words, given)
    for stage, decision in chain.decisions.items():
        remark(f"{stage}: {decision}")
    if given.dry_run:
        tell("\n".join(chain.lines(out)))
        return 0
    settings = {"recipe": name, "words": list(chain.words)}
    with hold_folder(out, settings, kind="chain", command="plmctl recipes run"):
        journal = _open_journal(chain, out)
        # the standard output of --json is one record
        with contextlib.redirect_stdout(sys.stderr) if given.json else contextlib.nullcontext():
            code = run_here(journal)
    steps = page.describe_steps(journal)
    written = page.write(chain, steps, out)
    if given.json:
        tell(json.dumps({"recipe": name, "code": code, "steps": steps}))
    else:
        print_table(page.HEAD, page.list_rows(steps))
    remark(f"page: {written}")
    if code:
        ended = next(job for job in chain.jobs.values() if job not in journal.done)
        what = f"{ended.label} {'was stopped' if code > 128 else 'failed'}"
        remark_next(what, "recipes", "run", name, *words, given=given)
    return code


def _plan(recipe: str, words: Sequence[str], given: Provenance) -> tuple[RecipeChain, Path]:
    """The chain that a command line asks for, and its folder."""
    kept: list[str] = []
    tasks: dict[str, str] | None = None
    out = Path(OUT, Path(recipe).stem)
    header = find_header(recipe, given)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and not word.startswith("~"):
            raise UsageError(f"'{word}': settings are key=value, and only one recipe may be named")
        if key == "out":
            out = Path(value).expanduser()
        elif key == "tasks" and value == "none":
            tasks = {}
        elif key == "tasks":
            allowed = "tasks.<name>=<folder>, as often as you like, or tasks=none"
            raise UsageError(f"{word}: {allowed}")
        elif key.startswith("tasks."):
            tasks = {**(tasks or {}), key.removeprefix("tasks."): value}
        else:
            kept.append(word)
    return plan(recipe, header, kept, tasks, given), out


def _open_journal(chain: RecipeChain, out: Path) -> JobJournal:
    """The journal of a chain; it prints a line for each step that is done, and for others when they
    end.
    """
    runs = locate_runs(chain.jobs, out)
    heads = {
        name: f"[{number}/{len(chain.jobs)}] {job.label}"
        for number, (name, job) in enumerate(chain.jobs.items(), 1)
    }

    def tell_event(event: Event, job: Job, why: str) -> None:
        head = heads[job.name]
        if event in ("started", "resumed"):
            if changes := _describe_changes(job, out):
                remark(f"{head}: {changes}")
            verb = "goes on" if event == "resumed" else "starts"
            remark(f"{head}: {verb}\n$ {job.line(runs)}")
        elif event == "finished":
            result = page.describe_result(job, Path(runs[job.name]))
            remark(f"{head}: done, {clock(journal.events.of(job.name).seconds)}; {result}")

    journal = JobJournal(chain.jobs, out, tell=tell_event)
    for job in journal.done:
        time = clock(journal.events.of(job.name).seconds)
        remark(f"{heads[job.name]}: finished before, {time}; {runs[job.name]}")
    return journal


def _describe_changes(job: Job, out: Path) -> str:
    """The differences to the newest folder of a step of this name, which stays as it is; empty
    without such a folder.
    """
    others = [
        file.parent
        for file in out.glob(f"{job.label}-*/{RECORD}")
        if file.parent.name.rpartition("-")[0] == job.label and file.parent.name != job.name
    ]
    if not others or (out / job.name).exists():
        return ""
    newest = max(others, key=lambda folder: folder.stat().st_mtime)
    plans = parse_json((newest / RECORD).read_text(encoding="utf-8"))["plan"], job.config
    before, now = (dict(leaves(json.loads(json.dumps(plan)))) for plan in plans)
    changes = [
        f"{path}: {_show_value(before.get(path))} -> {_show_value(now.get(path))}"
        for path in before | now
        if before.get(path) != now.get(path) and not path.startswith(("run.", "recipe"))
    ]
    more = f" and {len(changes) - 4} more" if len(changes) > 4 else ""
    listed = ", ".join(changes[:4]) or "a file has changed"
    return f"differs from {newest}, which stays ({listed}{more}); starts anew"


def _show_value(value: Any) -> str:
    return str(value).removeprefix(REFERENCE)
