"""WMT's files: `srcset`, `refset` and `tstset` with `<seg id="1">a sentence</seg>` in documents."""

from __future__ import annotations

import html
import re
from bisect import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plmctl.core.errors import DataError
from plmctl.tasks.readers import files
from plmctl.text.inputs import need_lines

SUFFIX = ".sgm"
SETS = ("srcset", "refset", "tstset")
_SET = re.compile(r"<(srcset|refset|tstset)\b([^>]*)>", re.IGNORECASE)
_PART = re.compile(r"<doc\b([^>]*)>|<seg\b([^>]*)>(.*?)</seg\s*>|<seg\b", re.IGNORECASE | re.DOTALL)
_ATTRIBUTE = re.compile(r"""([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")

Place = tuple[str, str]  # ids of the document, and of the segment in it


@dataclass(frozen=True)
class SegmentSet:
    """The texts of one set, of each system apart.

    Args:
        kind: `srcset`, `refset` or `tstset`.
        name: `setid`.
        texts: {system: {id: (text, line)}}; a refset may have several.
    """

    file: Path
    kind: str
    name: str
    texts: dict[str, dict[Place, tuple[str, int]]] = field(default_factory=dict)


def read_set(file: Path) -> tuple[str, str]:
    """(kind, setid) of a file, from its first tags; DataError where it has none of `SETS`."""
    for _, line in need_lines(file):
        if found := _SET.search(line):
            return found[1].lower(), _attributes(found[2]).get("setid", "")
    raise DataError(f"none of <{'>, <'.join(SETS)}> is in it", file=file, fix="a .sgm file of WMT")


def read_segments(file: Path) -> SegmentSet:
    """All segments of a file, white space made even and entities (&amp;) written out."""
    kind, name = read_set(file)
    content = files.read_text(file)
    ends = [match.start() for match in re.finditer("\n", content)]
    found = SegmentSet(file, kind, name)
    document, own = "", found.texts.setdefault("", {})
    for match in _PART.finditer(content):
        line = bisect(ends, match.start()) + 1
        if match[1] is not None:
            known = _attributes(match[1])
            document = _need(known, "docid", "<doc>", file, line)
            own = found.texts.setdefault(known.get("sysid", "").lower(), {})
            continue
        if match[2] is None or re.search(r"<(seg|doc)\b", match[3], re.IGNORECASE):
            raise DataError("a segment without its </seg>", file=file, line=line)
        place = (document, _need(_attributes(match[2]), "id", "<seg>", file, line))
        text = " ".join(html.unescape(match[3]).split())
        if not text:
            raise DataError(f"segment {_spell(place)} is empty", file=file, line=line)
        if place in own:
            raise DataError(
                f"segment {_spell(place)} stands here a second time; first in line {own[place][1]}",
                file=file,
                line=line,
            )
        own[place] = (text, line)
    if not any(found.texts.values()):
        raise DataError("no <seg> is in it", file=file)
    return found


def align(
    source: SegmentSet, references: list[SegmentSet]
) -> Iterator[tuple[Place, int, str, tuple[str, ...]]]:
    """(id, line, text, its references) of every segment of the source, aligned by ids; DataError
    for one that a side lacks.
    """
    (texts,) = [own for own in source.texts.values() if own][:1]
    several = [(each.file, own) for each in references for own in each.texts.values() if own]
    for file, own in several:
        _check_same(source.file, texts, file, own)
        _check_same(file, own, source.file, texts)
    for place, (text, line) in texts.items():
        yield place, line, text, tuple(own[place][0] for _, own in several)


def _check_same(
    file: Path,
    texts: Mapping[Place, tuple[str, int]],
    other: Path,
    others: Mapping[Place, tuple[str, int]],
) -> None:
    for place, (_, line) in texts.items():
        if place not in others:
            problem = f"segment {_spell(place)} is not in {other}"
            raise DataError(problem, file=file, line=line, fix="files of one test set")


def _need(known: Mapping[str, str], name: str, tag: str, file: Path, line: int) -> str:
    if name not in known:
        raise DataError(f"{tag} has no {name}", file=file, line=line)
    return known[name]


def _attributes(text: str) -> dict[str, str]:
    return {
        name.lower(): double or single or bare
        for name, double, single, bare in _ATTRIBUTE.findall(text)
    }


def _spell(place: Place) -> str:
    return f"{place[1]} of document {place[0]}" if place[0] else place[1]
