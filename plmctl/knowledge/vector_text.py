"""Word vectors as text: a word and its numbers in each line (GloVe's .txt). In word2vec's text and
fastText's .vec a first line has the numbers of words and columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from plmctl.core.errors import DataError
from plmctl.text.inputs import read_lines


def read_text_table(
    file: Path, limit: int, among: Collection[str] | None
) -> tuple[list[str], np.ndarray]:
    """Words and their vectors [N, D].

    A line ends with as many numbers as the header says, or the first line has; all before them is
    the word, in which there may be spaces, as in glove.840B.

    Args:
        file: plain or packed.
        limit: words that are read at most.
        among: the words that are kept; None: all.

    Raises:
        DataError: naming the first line that is of another form.
    """
    firsts = None if among is None else {word.partition(" ")[0] for word in among}
    words, rows, seen = list[str](), list[np.ndarray](), 0
    stated, width = None, 0
    for number, line in read_lines(file, cut=False):
        line = line.rstrip(" \t")
        if number == 1 and (stated := _read_header(line)):
            width = stated[1]
            continue
        if len(words) == limit:
            break
        seen += 1
        width = width or line.count(" ")
        short = line.count(" ") < width  # a ragged file, also if the word is not wanted
        if firsts is not None and line.partition(" ")[0] not in firsts and not short:
            continue
        word, row = _split(line, width, file, number)
        if among is None or word in among:
            words.append(word)
            rows.append(row)
    if stated and seen < stated[0] and len(words) < limit:
        what = f"{stated[0]:,} words are announced in its first line, and {seen:,} are there"
        raise DataError(what, file=file, fix="copy it again")
    return words, np.stack(rows) if rows else np.zeros((0, max(width, 1)), np.float32)


def write_text_table(words: Sequence[str], table: np.ndarray, *, header: bool) -> Iterator[bytes]:
    """The lines of a file that `read_text_table` reads, each number with the seven digits that
    float32 has.
    """
    if header:
        yield f"{table.shape[0]} {table.shape[1]}\n".encode()
    for word, row in zip(words, table, strict=True):
        yield f"{word} {' '.join(f'{x:.7g}' for x in row.tolist())}\n".encode()


def _read_header(line: str) -> tuple[int, int] | None:
    """(words, numbers of each) of a line of two whole numbers."""
    cells = line.split(" ")
    if len(cells) == 2 and all(cell.isascii() and cell.isdigit() for cell in cells):
        return int(cells[0]), int(cells[1])
    return None


def _split(line: str, width: int, file: Path, number: int) -> tuple[str, np.ndarray]:
    """The word of a line and its numbers."""
    word, *cells = line.rsplit(" ", width) if width else [line]
    row = _to_row(cells)
    extra = _to_row([word.rpartition(" ")[2]]) if " " in word else None  # one number too many
    if not width or row is None or len(row) != width or extra is not None:
        raise DataError(
            f"a word and {width or 'its'} numbers are needed, separated by spaces; this line has"
            f" {line[:40]!r} ...",
            file=file,
            line=number,
        )
    return word, row


def _to_row(cells: Sequence[str]) -> np.ndarray | None:
    """float32 numbers; None where one is none, or is not finite."""
    try:
        row = np.fromiter(map(float, cells), np.float32, len(cells))
    except ValueError:
        return None
    return row if np.isfinite(row).all() else None
