"""A report page as a list of blocks, rendered to Markdown (charts in files beside it) or to one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_STYLE = (
    "body{font-family:sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;line-height:1.45}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left}"
    "pre{background:#f4f4f4;padding:.6rem;overflow-x:auto}"
)


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    name: str  # the file name without `.svg`
    svg: str


@dataclass(frozen=True)
class Code:
    text: str


Block = Heading | Text | Table | Chart | Code


def write_page(blocks: Sequence[Block], out: Path) -> list[Path]:
    """`out` (a `.md` file), its charts as `<out>_files/*.svg`, and the same page as `.html`; returns the files."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(out.stem + "_files")
    written = [out, out.with_suffix(".html")]
    for block in blocks:
        if isinstance(block, Chart):
            folder.mkdir(exist_ok=True)
            written.append(folder / f"{block.name}.svg")
            written[-1].write_text(block.svg + "\n", encoding="utf-8")
    out.write_text(markdown(blocks, charts=folder.name), encoding="utf-8")
    title = next((block.text for block in blocks if isinstance(block, Heading)), out.stem)
    written[1].write_text(html(blocks, title=title), encoding="utf-8")
    return written


def markdown(blocks: Sequence[Block], *, charts: str) -> str:
    """The page in Markdown; `charts` is the folder, beside the page, that holds the SVG files."""
    return "\n\n".join(_markdown(block, charts) for block in blocks) + "\n"


def html(blocks: Sequence[Block], *, title: str) -> str:
    """The page in one HTML file that needs nothing beside it."""
    body = "\n".join(_html(block) for block in blocks)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _markdown(block: Block, charts: str) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Code(text):
            return f"```\n{text}\n```"
        case Chart(name, _):
            # a folder name may hold spaces, which end a Markdown address
            return f"![{name}](<{charts}/{name}.svg>)"
        case Table(head, rows):
            lines = [list(head), ["---"] * len(head), *rows]
            return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
        case Chart(_, svg):
            return f"<figure>{svg}</figure>"
        case Table(head, rows):
            top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
            body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            return f"<table><tr>{top}</tr>{body}</table>"
