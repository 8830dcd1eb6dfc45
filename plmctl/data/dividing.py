"""The part of a text that one of several processes reads, by a rule that depends on nothing but the
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from plmctl.data.survey import TextSource
from plmctl.text.inputs import Input, find_all
from plmctl.text.layout import RUNNING
from plmctl.text.pieces import Stretch, is_divisible
from plmctl.text.reader import BUILTIN, find_document_at
from plmctl.text.tabular import has_rows


def divide(sources: Sequence[TextSource], part: int, parts: int) -> list[TextSource]:
    """The part of texts that are read one behind the other. All parts have as many bytes, up to
    the first document that begins behind their share.

    A file that cannot be opened in its midst, such as a packed one, is read by the part in whose
    share it begins.

    Args:
        part: The number of the part, from 0 on.
    """
    sizes = [[_size(unit) for unit in _list_units(source)] for source in sources]
    total, at = sum(map(sum, sizes)), 0
    share = total * part // parts, total * (part + 1) // parts
    cut: list[TextSource] = []
    for source, own in zip(sources, sizes, strict=True):
        pieces: list[Stretch] = []
        for unit, size in zip(_list_units(source), own, strict=True):
            if _is_divisible(source, unit):
                pieces += _cut(source, unit[0], size, (share[0] - at, share[1] - at))
            elif share[0] <= min(at, total - 1) < share[1] if total else part == 0:
                pieces += map(Stretch, unit)
            at += size
        whole = source.path in BUILTIN and part == 0
        cut.append(source if whole else replace(source, pieces=tuple(pieces)))
    return cut


def list_whole(source: TextSource) -> list[Input]:
    """The files that one part reads whole."""
    units = (unit for unit in _list_units(source) if not _is_divisible(source, unit))
    return [file for unit in units for file in unit]


def _cut(source: TextSource, file: Input, size: int, share: tuple[int, int]) -> list[Stretch]:
    """The piece of a file in these bytes; none where no document begins in them."""
    assert isinstance(file, Path)
    begin, end = (min(max(edge, 0), size) for edge in share)
    if begin == end:
        return []
    begin, end = (
        edge if edge in (0, size) else find_document_at(file, edge, lines=source.lines)
        for edge in (begin, end)
    )
    return [Stretch(file, begin, end)] if begin < end else []


def _list_units(source: TextSource) -> list[list[Input]]:
    """The files, one by one; those of parallel text in two files together."""
    if source.target is not None:
        return [find_all(source.path, empty=True)]
    return [[file] for file in source.files()]


def _is_divisible(source: TextSource, unit: Sequence[Input]) -> bool:
    running = source.lines == RUNNING and not has_rows(unit[0])
    return source.target is None and not running and is_divisible(unit[0])


def _size(unit: Sequence[Input]) -> int:
    return sum(file.stat().st_size for file in unit if isinstance(file, Path))
