"""What only some models have, run by run."""

from __future__ import annotations

from collections.abc import Callable

from plmctl.core.errors import PlmctlError
from plmctl.report.page import Block, Heading
from plmctl.report.subject import ReportedRun, Subject


def collect_by_run(
    subject: Subject, title: str, of: Callable[[ReportedRun, int], list[Block]]
) -> list[Block]:
    """The blocks of `of` for every run and its number, with a heading where there are several runs;
    all under `title` if there are any.
    """
    blocks: list[Block] = []
    for number, run in enumerate(subject.detailed):
        try:
            own = of(run, number)
        except PlmctlError:  # of a run without a model the panel of layers tells
            continue
        blocks += [Heading(run.name, 3), *own] if own and len(subject.runs) > 1 else own
    return [Heading(title), *blocks] if blocks else []
