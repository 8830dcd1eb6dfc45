"""What a finished chain shows: a table of its steps, on the terminal, as JSON and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.chain.figure import describe_result
from plmctl.chain.plan import RecipeChain
from plmctl.core.progress import clock
from plmctl.jobs.job import locate_runs
from plmctl.jobs.journal import JobJournal
from plmctl.report.page import Block, Code, Heading, Paragraph, TableBlock, write_page

HEAD = ("step", "folder", "time", "figure")


def records(journal: JobJournal, out: Path) -> list[dict[str, Any]]:
    """What each finished step has to show."""
    runs = locate_runs(journal.jobs, out)
    return [
        {
            "step": job.label,
            "folder": str(out / job.name),
            "seconds": round(journal.events.of(job.name).seconds, 1),
            "figure": describe_result(job, Path(runs[job.name])),
            "command": job.line(runs),
        }
        for job in journal.done
    ]


def rows(steps: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The same as lines of a table under `HEAD`."""
    return [
        [each["step"], each["folder"], clock(each["seconds"]), each["figure"]] for each in steps
    ]


def write(chain: RecipeChain, steps: Sequence[dict[str, Any]], out: Path) -> Path:
    """Write `chain.md` and `chain.html` into the folder of the chain; returns the former."""
    whole = ["all", str(out), clock(sum(each["seconds"] for each in steps)), ""]
    blocks: list[Block] = [
        Heading(f"The chain of {chain.recipe}", 1),
        Paragraph(chain.header.about),
        TableBlock(HEAD, [*rows(steps), whole]),
        Heading("The commands"),
        Code("\n".join(each["command"] for each in steps)),
    ]
    write_page(blocks, out / "chain.md")
    return out / "chain.md"
