"""The results of a finished chain: a table of its steps, on the terminal, as JSON and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import RunLog
from plmctl.chain.plan import RecipeChain
from plmctl.core.progress import clock
from plmctl.data.shards import MANIFEST
from plmctl.jobs.job import RUN, Job, locate_runs
from plmctl.jobs.journal import JobJournal
from plmctl.report.page import Block, Code, Heading, Paragraph, TableBlock, write_page
from plmctl.report.panel import number_charts
from plmctl.report.panels import curves, results
from plmctl.report.subject import ReportedRun, Subject
from plmctl.storage.reading import parse_json

HEAD = ("step", "folder", "time", "figure")


def describe_steps(journal: JobJournal) -> list[dict[str, Any]]:
    """The result of each finished step."""
    runs = locate_runs(journal.jobs, journal.folder)
    return [
        {
            "step": job.label,
            "folder": str(journal.folder / job.name),
            "seconds": round(journal.events.of(job.name).seconds, 3),
            "figure": describe_result(job, Path(runs[job.name])),
            "command": job.line(runs),
        }
        for job in journal.done
    ]


def describe_result(job: Job, run: Path) -> str:
    """The main figure of a finished step: the size of the tokens, the validation of a pretraining,
    the score of a task.
    """
    if job.verb == "tokenize":
        manifest = parse_json((run / MANIFEST).read_text(encoding="utf-8"))
        tokens, size = manifest["splits"]["train"]["tokens"], manifest["tokenizer"]["size"]
        return f"{tokens:,} tokens, vocabulary {size:,}"
    if job.verb == "pretrain":
        log = RunLog.read(run)
        held = [name for name in log.series if name.startswith(("valid/loss", "valid/acc/"))]
        names = held or ["loss"]
        return ", ".join(f"{name.removeprefix('valid/')} {log.last(name):.4g}" for name in names)
    percent = _read_result(run).get("percent") or ()
    figures = (
        f"{name} {score:.4g}{'%' if name in percent else ''}"
        for name, score in read_scores(run).items()
    )
    return next(figures, "")


def read_scores(run: Path) -> dict[str, float]:
    """The scores of a fine-tuning on dev, else on the first split that it was scored on."""
    splits: dict[str, dict[str, float]] = _read_result(run)["metrics"]
    return splits.get("dev") or next(iter(splits.values()), {})


def list_lower(run: Path) -> list[str]:
    """The scores of a fine-tuning of which a lower value is better."""
    found: list[str] = _read_result(run).get("lower") or []
    return found


def _read_result(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = parse_json((run / "result.json").read_text(encoding="utf-8"))
    return result


def list_rows(steps: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The steps as lines of a table under `HEAD`."""
    return [
        [step["step"], step["folder"], clock(step["seconds"]), step["figure"]] for step in steps
    ]


def _show(run: ReportedRun, number: int) -> list[Block]:
    """The result and the curves of a step."""
    own = Subject([run])
    blocks = [*results.panel.draw(own), *curves.panel.draw(own)]
    return [Heading(run.name), *(number_charts(block, number) for block in blocks)]


def write(chain: RecipeChain, steps: Sequence[dict[str, Any]], out: Path) -> Path:
    """Write `chain.md` and `chain.html` into the folder of the chain; returns the former."""
    whole = ["all", str(out), clock(sum(step["seconds"] for step in steps)), ""]
    inside = [{**step, "folder": Path(step["folder"]).name} for step in steps]
    logs = [(s["step"], RunLog.read_started(Path(s["folder"]) / RUN)) for s in steps]
    runs = [ReportedRun(name, log) for name, log in logs if log.series]
    blocks: list[Block] = [
        Heading(f"The chain of {chain.recipe}", 1),
        Paragraph(chain.header.about),
        TableBlock(HEAD, [*list_rows(inside), whole]),
        *(block for number, run in enumerate(runs) for block in _show(run, number)),
        Heading("The commands"),
        *(Code(step["command"]) for step in steps),
    ]
    write_page(blocks, out / "chain.md")
    return out / "chain.md"
