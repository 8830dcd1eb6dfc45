"""Single words and units: one word in several contexts (`--word`), and the texts that feed-forward
units react to (`--keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from plmctl.analysis.contexts import Occurrences, SelfSimilarity, find_occurrences
from plmctl.analysis.keys import KeyTexts, Trigger
from plmctl.analysis.runs import Curve
from plmctl.core.errors import PlmctlError, UsageError, list_problems
from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Folded, Heading, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, Subject
from plmctl.report.text import clip, format_percent

CONTEXTS = (
    "The mean cosine of the vectors of the word in two sentences, by layer (0: the embeddings), and"
    " of any two words of these sentences (dashed). The farther a line is above its dashed one, the"
    " less the context changes the word."
)
NEAREST = "For each sentence the one with the most similar vector of the word in the last layer."
FIRST = 10  # sentences of a table that is not folded
KEYS = (
    "The tokens with the largest values of a unit, between « and », at most one in a row; an"
    " ordinary token counts as active where its value is above 0. Layers and units count from 0."
)
T = TypeVar("T")


@panel_of(Subject, order=61.8, title="One word in several contexts")
def contexts(subject: Subject) -> list[Block]:
    """For each word a chart by layer, and tables of the nearest occurrences."""
    blocks: list[Block] = [Paragraph(CONTEXTS)] if subject.wishes.words else []
    for word, file in subject.wishes.words.items():
        given = find_occurrences(word, file)  # a file without the word is the fault of no run
        blocks.append(Heading(f"{word}, {len(given.found)} sentences", 3))
        found, notes = _measure(subject, partial(_compare, given))
        blocks += notes
        if found:
            own = {name: _number(each.likeness) for name, each in found.items()}
            floors = {f"{name}: any two words": _number(r.floor) for name, r in found.items()}
            svg = draw_lines(own, title=f"Vectors of {word}", x="layer", y="cosine", guides=floors)
            blocks += [Chart(f"contexts-{word}", svg), Paragraph(NEAREST)]
        for name, each in found.items():
            blocks += _tabulate(f"{name}: " if len(found) > 1 else "", given, each)
    return blocks


def _compare(given: Occurrences, run: ReportedRun) -> SelfSimilarity:
    return SelfSimilarity.of(run.loaded, given)


def _tabulate(name: str, given: Occurrences, found: SelfSimilarity) -> list[Block]:
    head = ["sentence", "nearest", "cosine"]
    rows = [
        [clip(given.sentences[n]), clip(given.sentences[other]), f"{cosine:.3f}"]
        for n, (other, cosine) in enumerate(zip(found.nearest, found.cosines, strict=True))
    ]
    if len(rows) <= FIRST and not name:
        return [TableBlock(head, rows)]
    return [Folded(f"{name}{len(rows)} sentences", [TableBlock(head, rows)])]


def _number(values: Iterable[float]) -> Curve:
    return [(float(layer), value) for layer, value in enumerate(values)]


@panel_of(Subject, order=61.9, title="Texts of feed-forward units")
def keys(subject: Subject) -> list[Block]:
    """A table of triggers for each run; UsageError for units that none of the runs has."""
    if not (units := subject.wishes.units):
        return []
    found, notes = _measure(
        subject, lambda run: KeyTexts.of(run.loaded, units, subject.wishes.sentences)
    )
    blocks: list[Block] = [Paragraph(KEYS), *notes]
    for name, each in found.items():
        title = f"{name}, {each.tokens} tokens: {each.about}"
        rows = [
            [
                f"{unit.layer}.{unit.unit}" if number == 0 else "",
                format_percent(unit.active) if number == 0 else "",
                f"{trigger.value:.3f}",
                _spell(trigger),
            ]
            for unit in each.units
            for number, trigger in enumerate(unit.triggers)
        ]
        blocks += [Heading(title, 3), TableBlock(["unit", "active", "value", "text"], rows)]
    return blocks


def _spell(trigger: Trigger) -> str:
    return " ".join([*trigger.before, f"«{trigger.token}»", *trigger.after])


def _measure(
    subject: Subject, measure: Callable[[ReportedRun], T]
) -> tuple[dict[str, T], list[Block]]:
    """({run: result}, a remark for each run without one); the UsageError of all runs, if each has
    one.
    """
    found: dict[str, T] = {}
    wrong, notes = [], []
    for run in subject.detailed:
        try:
            found[run.name] = measure(run)
        except PlmctlError as error:
            notes.append(Paragraph(f"{run.name}: not measured, {list_problems(error)}."))
            wrong += [error] if isinstance(error, UsageError) else []
    if wrong and len(wrong) == len(subject.detailed):
        raise wrong[0]
    return found, list[Block](notes)
