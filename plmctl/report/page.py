"""A report page as a list of blocks, written as Markdown (charts in files next to it) or as one
self-contained HTML file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path

from plmctl.core.errors import DataError, UsageError
from plmctl.report.style import STYLE
from plmctl.storage.atomic import is_stream, write_text
from plmctl.storage.earlier import keep_earlier
from plmctl.storage.gate import admit, own
from plmctl.storage.paths import inside


@dataclass(frozen=True)
class Heading:
    """A heading of the page; level 1 is its title, level 2 a part."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class TableBlock:
    """A table; numbers in its cells are aligned to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    # a shade for each cell, 0 to 1; a hint for the eye, Markdown has none
    shade: Sequence[Sequence[float]] | None = None
    note: str = ""  # an explanation for a table that stands without its page

    @classmethod
    def of_filled(cls, head: Sequence[str], rows: Sequence[Sequence[str]]) -> TableBlock:
        """A table without the columns that are empty in all rows."""
        kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
        return cls([head[n] for n in kept], [[row[n] for n in kept] for row in rows])


@dataclass(frozen=True)
class Chart:
    """A picture, as SVG text."""

    name: str  # the file name without `.svg`
    svg: str


@dataclass(frozen=True)
class Code:
    """Text that is shown as it is, in a fixed-width font."""

    text: str


@dataclass(frozen=True)
class Folded:
    """Blocks that are hidden in HTML until a reader opens them; Markdown shows them."""

    title: str
    blocks: Sequence[Block]


MARK = "<!-- written by plmctl -->"  # in every page and card; HTML and Markdown hide it
KEPT = {"held": "another page: it is", "but": "; --out <name>.html leaves it where it is"}
Block = Heading | Paragraph | TableBlock | Chart | Code | Folded
_TITLE = re.compile("<title>(.*?)</title>")
_ABOUT = re.compile('<meta name="about" content="(.*?)">')
_NUMBER = re.compile(r"(< )?[-+−]?[\d.,]+( ?%)?( ± [\d.,e-]+)?")
# characters that Markdown would take for markup; a_b is none
_MARK = re.compile(r"[*<`]|(?<![^\W_])_|_(?![^\W_])")


def refuse_foreign(files: Sequence[Path], option: str) -> None:
    """Raise UsageError for a file with something in it that plmctl did not write.

    Args:
        files: The files that would be written; an older page of ours is renewed.
    """
    for file in files:
        if not file.is_file() or is_stream(file):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if text.strip() and MARK not in text:
            problem = f"{option}: {file} is there already, and plmctl did not write it"
            raise UsageError(f"{problem}\n  fix: another {option}, or remove that file")


def list_pages(out: Path, *, markdown: bool = False) -> list[Path]:
    """The pages that `out` stands for: a `.md` file goes with the same page as `.html`."""
    both = markdown or out.suffix == ".md"
    return [out.with_suffix(suffix) for suffix in (".html", ".md")] if both else [out]


def write_page(blocks: Sequence[Block], out: Path, *, about: str = "") -> list[Path]:
    """`out` (a `.md` file), its charts as `<out>_files/*.svg`, and the same page as `.html`;
    returns the files.

    Args:
        about: The subject, as for `write_html`.
    """
    folder, page = out.with_name(out.stem + "_files"), out.with_suffix(".html")
    same = _has_subject(page, _render(blocks, page, about))
    written = [out, write_html(blocks, page, about=about)]
    for chart in find_charts(blocks):
        admit(own(folder, ours=True)).mkdir(exist_ok=True)
        written.append(inside(folder, f"{chart.name}.svg", partial(DataError, file=folder)))
        write_text(written[-1], chart.svg + "\n")
    with keep_earlier(out, overwrite=same, **KEPT):
        write_text(out, f"{render_markdown(blocks, charts=folder.name)}\n{MARK}\n")
    return written


def write_html(blocks: Sequence[Block], out: Path, *, about: str = "") -> Path:
    """The page as one `.html` file; an earlier page on other runs, or another choice of panels, is
    kept.

    Args:
        about: The name of the subject of the page, in addition to its title, which folders of equal
            names share.
    """
    admit(out.parent).mkdir(parents=True, exist_ok=True)
    text = _render(blocks, out, about)
    with keep_earlier(out, overwrite=_has_subject(out, text), **KEPT):
        write_text(out, text)
    return out


def _render(blocks: Sequence[Block], out: Path, about: str) -> str:
    title = next((block.text for block in blocks if isinstance(block, Heading)), out.stem)
    return render_html(blocks, title=title, about=about)


def _has_subject(file: Path, text: str) -> bool:
    """Whether an earlier page is about the same as `text`; true without such a page. One of an
    earlier version of plmctl has its title alone.
    """
    if not file.is_file() or is_stream(file):
        return True
    before = file.read_text(encoding="utf-8", errors="replace")
    for pattern in (_TITLE, _ABOUT):
        old, new = (pattern.search(page) for page in (before, text))
        if old and new and old[1] != new[1]:
            return False
    return True


def find_charts(blocks: Sequence[Block]) -> Iterator[Chart]:
    """All charts, also those in folded blocks."""
    for block in blocks:
        if isinstance(block, Chart):
            yield block
        elif isinstance(block, Folded):
            yield from find_charts(block.blocks)


def render_markdown(blocks: Sequence[Block], *, charts: str) -> str:
    """The page in Markdown; `charts` is the folder, next to the page, that holds the SVG files."""
    return "\n\n".join(_markdown(block, charts) for block in blocks) + "\n"


def render_html(blocks: Sequence[Block], *, title: str, about: str = "") -> str:
    """The page in one HTML file that needs no other file, with a table of contents where it has
    three parts or more.
    """
    names = _Names()
    first = next(
        (
            index
            for index, block in enumerate(blocks)
            if isinstance(block, Heading) and block.level == 2
        ),
        len(blocks),
    )
    before, after = _join(blocks[:first], names), _join(blocks[first:], names)
    parts = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in names.parts)
    contents = f'<nav aria-label="Contents"><ul>{parts}</ul></nav>' if len(names.parts) > 2 else ""
    body = "\n".join(part for part in (before, contents, after) if part)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    head += f'<meta name="about" content="{escape(about)}">' if about else ""
    main = f"<main>\n{body}\n</main><script>{_read_script()}</script>"
    page = f'<html lang="en"><head>{head}</head><body>{main}</body></html>'
    return f"<!doctype html>\n{MARK}\n{page}\n"


@cache
def _read_script() -> str:
    return (files(__package__) / "page.js").read_text(encoding="utf-8")


def _join(blocks: Sequence[Block], names: _Names) -> str:
    """The blocks; pictures that follow each other lie side by side."""
    parts = []
    for pictures, same in groupby(blocks, key=lambda block: isinstance(block, Chart)):
        drawn = "\n".join(_html(block, names) for block in same)
        parts.append(f'<div class="charts">{drawn}</div>' if pictures else drawn)
    return "\n".join(parts)


class _Names:
    """The id of every heading and the label of every table and picture, each once; `parts` are the
    headings of the second level.
    """

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.parts: list[tuple[str, str]] = []
        self.title = ""  # the title of the next blocks
        self.boxes: Counter[tuple[str, str]] = Counter()

    def of(self, heading: Heading) -> str:
        stem = re.sub(r"\W+", "-", heading.text.lower()).strip("-") or "part"
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem}-{number}"
        self.taken.add(name)
        if heading.level == 2:
            self.parts.append((name, heading.text))
        self.title = heading.text
        return name

    def box(self, kind: str) -> str:
        """The attributes of a table or a picture: a keyboard reaches it, and a screen reader says
        what it is.
        """
        self.boxes[self.title, kind] += 1
        label = f"{kind} {self.boxes[self.title, kind]}: {self.title}"
        return f'tabindex="0" role="region" aria-label="{escape(label)}"'


def _markdown(block: Block, charts: str) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_literal(text)}"
        case Paragraph(text):
            return _literal(text)
        case Code(text):
            return f"```\n{text}\n```"
        case Chart(name, _):
            # a folder name may hold spaces, which end a Markdown address
            return f"![{name}](<{charts}/{name}.svg>)"
        case TableBlock(head, rows):
            lines = [list(head), ["---"] * len(head), *rows]
            return "\n".join(
                "| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines
            )
        case Folded(title, blocks):
            return "\n\n".join(
                [f"**{_literal(title)}**", *(_markdown(inner, charts) for inner in blocks)]
            )


def _cell(text: str) -> str:
    """The text of a cell, with the characters escaped that end a cell or a line in Markdown."""
    return " ".join(_literal(text).replace("|", "\\|").splitlines())


def _literal(text: str) -> str:
    return _MARK.sub(r"\\\g<0>", text)


def _html(block: Block, names: _Names) -> str:
    match block:
        case Heading(text, level):
            return f'<h{level} id="{names.of(block)}">{escape(text)}</h{level}>'
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
        case Chart(_, svg):
            return f"<figure {names.box('Picture')}>{svg}</figure>"
        case TableBlock(head, rows, shade):
            columns, inner = find_numbers(block), "<span>{}</span>" if shade else "{}"
            top = "".join(
                f'<th scope="col"{_aligned(number)}>{inner.format(escape(cell))}</th>'
                for cell, number in zip(head, columns, strict=True)
            )
            lines = [
                _row(row, columns, shade[index] if shade else ()) for index, row in enumerate(rows)
            ]
            body = f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
            kind = "wide shaded" if shade else "wide"
            return f'<div class="{kind}" {names.box("Table")}><table>{body}</table></div>'
        case Folded(title, blocks):
            outer, names.title = names.title, title
            inner = _join(blocks, names)
            names.title = outer
            return f"<details><summary>{escape(title)}</summary>\n{inner}\n</details>"


def find_numbers(table: TableBlock) -> list[bool]:
    """For each column whether it has numbers alone."""
    return [
        all(_NUMBER.fullmatch(row[index]) for row in table.rows if row[index])
        for index in range(len(table.head))
    ]


def _row(row: Sequence[str], numbers: Sequence[bool], shade: Sequence[float]) -> str:
    cells = []
    for index, cell in enumerate(row):
        dark = shade[index] if index < len(shade) else 0.0
        tint = f' style="background:rgba(0,114,178,{0.4 * dark:.2f})"' if dark > 0.01 else ""
        cells.append(f"<td{_aligned(numbers[index])}{tint}>{escape(cell)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _aligned(number: bool) -> str:
    return ' class="n"' if number else ""
