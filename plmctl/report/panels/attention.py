"""Attention maps of chosen heads on chosen sentences; only with `--attention`."""

from __future__ import annotations

from plmctl.core.errors import PlmctlError, UsageError
from plmctl.report.page import Block, Chart, Heading, Paragraph
from plmctl.report.subject import ReportedRun, Subject

ORDER = 60
READING = (
    "Each token on the left attends to those on the right, the darker the line the more; layers and"
    " heads count from 0. With a pointer, one token at a time."
)


def panel(subject: Subject) -> list[Block]:
    """Pictures of the chosen heads; UsageError for heads that none of the runs has."""
    if not subject.wishes.heads:
        return []
    blocks: list[Block] = [Heading("Attention"), Paragraph(READING)]
    absent = []
    for number, run in enumerate(subject.detailed):
        try:
            blocks += [Heading(run.name, 3), *_maps(subject, run, number)]
        except PlmctlError as error:
            blocks.append(Paragraph(f"Not drawn: {str(error).splitlines()[0]}."))
            absent += [error] if isinstance(error, UsageError) else []
    if absent and len(absent) == len(subject.detailed):
        raise absent[0]
    return blocks


def _maps(subject: Subject, run: ReportedRun, number: int) -> list[Block]:
    loaded = run.loaded
    from plmctl.report import maps
    from plmctl.report.maps import (
        draw_attention,  # brings torch
        measure_attention,
    )
    from plmctl.report.sentences import SENTENCES

    blocks: list[Block] = []
    for place, (tokens, layers) in enumerate(
        measure_attention(loaded, subject.wishes.sentences or SENTENCES[:2])
    ):
        maps.check(subject.wishes.heads, layers)
        for layer, head in subject.wishes.heads:
            svg = draw_attention(
                tokens, layers[layer][head].tolist(), title=f"Layer {layer}, head {head}"
            )
            blocks.append(Chart(f"attention-{number}-{place}-{layer}.{head}", svg))
    return blocks
