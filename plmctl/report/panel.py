"""A panel: a part of the page that draws all results of one type that a subject has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from plmctl.report.page import Block, Chart, Folded, Heading
from plmctl.report.subject import Subject

T = TypeVar("T")
NAMED = 5  # runs with equal blocks, in a heading


@dataclass(frozen=True)
class Panel(Generic[T]):
    """A panel, made by `panel_of`.

    Calling it with a subject gives its blocks; none if the subject has no such result.
    """

    of: type[T]
    order: float
    title: str
    draw: Callable[[T], list[Block]]
    brief: bool = False

    def __call__(self, subject: Subject) -> list[Block]:
        """The heading and the blocks of all results; equal ones are shown once."""
        shown: list[tuple[list[str], list[Block], int]] = []
        for number, name, result in subject.find_results(self.of):
            if blocks := self.draw(result):
                same = next((names for names, other, _ in shown if other == blocks), None)
                if same is None:
                    shown.append(([name], blocks, number))
                else:
                    same.append(name)
        found: list[Block] = [Heading(self.title)] if self.title and shown else []
        for names, blocks, number in shown:
            title = ", ".join(names) if len(names) <= NAMED else f"{len(names)} runs"
            found += [Heading(title, 3)] if title else []
            found += [number_charts(block, number) for block in blocks]
        return found


def panel_of(
    result: type[T], *, order: float, title: str = "", brief: bool = False
) -> Callable[[Callable[[T], list[Block]]], Panel[T]]:
    """Decorate the function that draws the results of one type.

    Args:
        result: A measure; `SplitPredictions` of a run; the whole `Subject`, to compare runs; or
            `StudyFolder`.
        order: The position on the page.
        title: The heading; "": the function gives it.
        brief: Whether a page of one sheet has it, too.
    """
    return lambda draw: Panel(result, order, title, draw, brief)


def number_charts(block: Block, number: int) -> Block:
    """A block whose charts have the number of the run in their names, where it is not below 0."""
    if isinstance(block, Chart) and number >= 0:
        return replace(block, name=f"{block.name}-{number}")
    if isinstance(block, Folded):
        return replace(block, blocks=[number_charts(inner, number) for inner in block.blocks])
    return block
