"""Every picture and table of a page as files of their own, for a paper or slides."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plmctl.core.errors import UsageError
from plmctl.core.extras import require_library
from plmctl.core.spelling import spell_word
from plmctl.core.terminal import WARN, counted, remark
from plmctl.report.latex import LATIN, escape, format_table, join_cells, list_needs
from plmctl.report.page import Block, Chart, Folded, Heading, TableBlock, find_numbers
from plmctl.report.text import spell_file
from plmctl.storage.atomic import write_bytes
from plmctl.storage.gate import admit, own
from plmctl.text.sentences import CJK

_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">'
    '<text x="4" y="30" font-family="sans-serif" font-size="24">{}</text></svg>'
)
# letters in a line of LaTeX's article, in usual type, and in small ones by their commands
LINE, SIZES = 64, {"footnotesize": 78, "scriptsize": 86}
SCALE = 3.0  # pixels of a PNG for one of the picture
# Chinese, Japanese, Korean
_EASTERN = re.compile(f"[\u3040-\u30ff\uac00-\ud7a3{CJK}]")
_PLAIN = str.maketrans({"−": "-", ",": None})
_SUFFIXES = (".svg", ".png", ".pdf", ".csv", ".tex")
_OURS = re.compile(rf"(figure|table)-.*({'|'.join(map(re.escape, _SUFFIXES))})")


def check_figures(folder: Path) -> None:
    """Raise UsageError without the library that writes PNG and PDF, for the name of a file, or for
    a folder in which lie other files.
    """
    if folder.suffix in _SUFFIXES and not folder.exists():
        fix = f"--figures {spell_word(str(folder.with_suffix('')))}"
        raise UsageError(f"--figures {folder}: a folder, for several files\n  fix: {fix}")
    require_library("vl_convert", "figures", "report --figures")
    there = [file.name for file in folder.iterdir()] if folder.is_dir() else [""] * folder.exists()
    if other := next((name for name in there if not _OURS.fullmatch(name)), None):
        raise UsageError(f"--figures {folder}: {other} is in it\n  fix: --figures <a new folder>")
    if there == [""]:
        raise UsageError(f"--figures {folder}: is a file\n  fix: --figures <a new folder>")


def find_missing(text: str, convert: Any) -> str:
    """The letters of a text that no font of this machine has: each looks like one that nobody
    defines.
    """
    unknown = convert.svg_to_png(_LETTER.format("\U0010fffd"))
    letters = dict.fromkeys(
        letter for letter in text if ord(letter) > LATIN and not letter.isspace()
    )
    return "".join(
        letter for letter in letters if convert.svg_to_png(_LETTER.format(letter)) == unknown
    )


def write_figures(blocks: Sequence[Block], folder: Path) -> list[Path]:
    """Each picture as SVG, PNG and PDF, each table as CSV and LaTeX; returns the files.

    A name says what is shown, so it stays where a page gets more pictures or tables.

    Raises:
        UsageError: The folder has those of another page.
    """
    convert = require_library("vl_convert", "figures", "report --figures")
    made, names = dict[Path, bytes](), Counter[str]()
    for title, place, block in _find_all(blocks):
        name = _name(place, block)
        names[name] += 1
        file = folder / (f"{name}-{names[name]}" if names[name] > 1 else name)
        if isinstance(block, Chart):
            texts = {".svg": block.svg.encode() + b"\n"}
            texts[".png"] = convert.svg_to_png(block.svg, scale=SCALE)
            texts[".pdf"] = convert.svg_to_pdf(block.svg)
        else:
            texts = {".csv": _format_csv(block).encode()}
            texts[".tex"] = _format_latex(title, block).encode()
        made |= {file.with_name(file.name + suffix): text for suffix, text in texts.items()}
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    if other := next((file for file in there if file not in made), None):
        what = f"--figures {folder}: {other.name} is of another page, and would lie among these"
        raise UsageError(f"{what}\n  fix: --figures <a new folder>")
    admit(own(folder)).mkdir(parents=True, exist_ok=True)
    for file, content in made.items():
        write_bytes(file, content)
    return [*made]


def warn_of_letters(folder: Path) -> None:
    """A warning of letters in the pictures of a folder that no font of this machine has."""
    convert = require_library("vl_convert", "figures", "report --figures")
    text = "".join(file.read_text("utf-8") for file in sorted(folder.glob("*.svg")))
    if missing := find_missing(text, convert):
        what = f"{counted(len(missing), 'letter')} such as {missing[0]} are empty in PNG and PDF"
        # each needs its own package, of which Chinese, Japanese and Korean ones have one together
        package = "fonts-noto-cjk" if _EASTERN.search(missing) else "fonts-noto"
        remark(f"{folder}: {what}, for no font has them\n  fix: apt install {package}", WARN)


def _find_all(
    blocks: Sequence[Block], part: str = "", place: str = ""
) -> Iterator[tuple[str, str, Chart | TableBlock]]:
    """The pictures and tables, also those in folded blocks, each with its title and the headings
    above it; the name of a folded block, which may count what is in it, is in the title alone.
    """
    title = part
    for block in blocks:
        match block:
            case Heading(text, level):
                part = part if level > 2 else text
                title = place = f"{part}: {text}" if level > 2 and part else text
            case Folded(name, inner):
                yield from _find_all(inner, name, place)
            case Chart() | TableBlock():
                yield title, place, block


def _name(place: str, block: Chart | TableBlock) -> str:
    """`figure-loss`, `table-jobs-not-done`: a table by the headings above it and its first head."""
    if isinstance(block, Chart):
        return f"figure-{spell_file(block.name)}"
    first = block.head[0] if block.head[0].lower() not in place.lower() else ""
    return f"table-{spell_file(f'{place} {first}')[:60]}"


def _format_csv(table: TableBlock) -> str:
    """Cells of a column of numbers are plain ones, and a deviation has a column of its own."""
    columns = list[tuple[str, ...]]()
    for number, head, *cells in zip(find_numbers(table), table.head, *table.rows, strict=True):
        columns += _split(head, cells) if number else [(head, *cells)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue()


def _split(head: str, cells: list[str]) -> Iterator[tuple[str, ...]]:
    """`1,024 ± 3.5` as 1024 and 3.5, of the columns `<head>` and `<head>, sd`."""
    unit = " (%)" if all("%" in cell for cell in cells if cell) and any(cells) else ""
    plain = [cell.translate(_PLAIN).replace("%" * bool(unit), "").partition("±") for cell in cells]
    mean, _, deviation = head.partition(" ± ")
    yield f"{mean}{unit}", *(number.strip() for number, _, _ in plain)
    if any(sign for _, sign, _ in plain):
        yield f"{deviation or f'{mean}, sd'}{unit}", *(spread.strip() for _, _, spread in plain)


def find_columns(table: TableBlock) -> tuple[str, list[str]]:
    """(the columns of a `tabular`, such as "lr", the commands before it).

    Columns of a table wrap if a page of text is narrower. Each has room for its longest word, and
    a part of the rest.
    """
    cells = [*zip(table.head, *table.rows, strict=True)]
    natural = [max(map(len, own)) for own in cells]
    kinds = ["r" if number else "l" for number in find_numbers(table)]
    if sum(natural) + 3 * len(cells) <= LINE:
        return "".join(kinds), []
    words = [max(len(word) for cell in own for word in re.split(r"[\s-]+", cell)) for own in cells]
    least = sum(words) + 2 * len(cells)
    size, line = next((each for each in SIZES.items() if least <= each[1]), [*SIZES.items()][-1])
    room = line - least
    wish = [whole - word for whole, word in zip(natural, words, strict=True)]
    share = min(1.0, max(0, room) / max(1, sum(wish)))
    sides = {"r": r"\raggedleft", "l": r"\raggedright"}
    columns = "".join(
        rf">{{{sides[kind]}\arraybackslash}}p{{{0.5 * (word + share * more):.2f}em}}"
        for kind, word, more in zip(kinds, words, wish, strict=True)
    )
    return columns, [rf"\{size}\setlength{{\tabcolsep}}{{2pt}}"]


def _format_latex(title: str, table: TableBlock) -> str:
    columns, before = find_columns(table)
    head, *body = [join_cells([*map(escape, row)]) for row in (table.head, *table.rows)]
    caption = escape(f"{title}. {table.note}" if table.note else title)
    text = format_table(caption, columns, head, [r"\midrule", *body], before=before)
    return "\n".join([*list_needs(text, "plmctl report"), text])
