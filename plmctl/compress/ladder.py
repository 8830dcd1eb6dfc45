"""The shapes that are trained: the largest ones that reach a target, by measured predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from plmctl.compress.shape import UNITS, Shape


def find_rungs(
    depths: Sequence[int],
    widths: Sequence[Fraction],
    reaches: Callable[[Shape], bool],
    units: tuple[str, ...] = tuple(UNITS),
) -> list[Shape]:
    """For each number of layers the widest shape that reaches the target, the largest shape first.

    Fewer layers than those of a shape of full width that reaches it are not tried. A narrower or a
    lower shape reaches whatever a wider or a higher one does.

    Args:
        depths: Numbers of layers, the first of them all layers of the run.
        widths: Shares of heads and neurons, ascending, the last of them 1.
        reaches: Whether a shape is predicted to reach the target.
        units: The units whose shares these are.
    """
    found = list(_list_widest(depths, widths, reaches, units))
    return sorted(found, key=lambda shape: -shape.share)


def _list_widest(
    depths: Sequence[int],
    widths: Sequence[Fraction],
    reaches: Callable[[Shape], bool],
    units: tuple[str, ...],
) -> Iterator[Shape]:
    for layers in depths:
        shapes = [Shape(layers, depths[0], width, units) for width in widths]
        shapes = [shape for shape in shapes if not shape.whole]
        low, high = 0, len(shapes)  # shapes below `low` reach it, those from `high` on do not
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if reaches(shapes[middle]) else (low, middle)
        if low:
            yield shapes[low - 1]
            if shapes[low - 1].width == 1:
                return
