"""A preview of rows in aligned columns: what the noise did to each token, and below it what the
model predicts there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.fields import COMMON, Fields

Pieces = Callable[[list[int]], Sequence[str]]  # a tokenizer's `pieces`
Meanings = Mapping[str, Sequence[str]]  # label -> what its numbers mean

MARKS = {  # before a piece: (style, meaning)
    "*": ("bold yellow", "hidden"),
    "~": ("bold red", "another token"),
    "=": ("bold cyan", "predicted but unchanged"),
    "-": ("red", "deleted"),
    "+": ("green", "inserted"),
    "<": ("blue", "moved away"),
    ">": ("blue", "moved here"),
}


@dataclass
class Line:
    """One line of a block: its name, and a cell for each of some columns."""

    name: str
    cells: dict[int, str]
    style: str = ""
    styles: dict[int, str] = field(
        default_factory=dict
    )  # styles of cells that differ from their line


def preview(
    before: Rows,
    after: Rows,
    pieces: Pieces,
    *,
    mask: int | None = None,
    width: int = 80,
    meanings: Meanings | None = None,
    fields: Fields = COMMON,
) -> Text:
    """Show rows, one paragraph each.

    Args:
        before: the rows as the format laid them out.
        after: the same rows with noise and targets.
        pieces: a tokenizer's `pieces`.
        mask: the id of the mask token.
        meanings: the meaning of labels, in words.
        fields: The facts about the fields in the rows.

    Without colours, the marks of `MARKS` replace them; the marks that occur are explained at the
    end. Tokens are compared position by position if the noise changed a sequence itself. They are
    compared as a diff if it wrote another one (`source` in addition to `target`).
    """
    view = _Shown(before, after, pieces, mask, width, meanings or {}, fields)
    paragraphs = [view.row(row) for row in range(len(before.key))]
    if view.used:
        legend = "  ".join(
            f"{mark} {meaning}" for mark, (_, meaning) in MARKS.items() if mark in view.used
        )
        paragraphs.append(Text(f"marks: {legend}", "dim"))
    return Text("\n\n").join(paragraphs)


@dataclass
class _Shown:
    before: Rows
    after: Rows
    pieces: Pieces
    mask: int | None
    width: int
    meanings: Meanings
    fields: Fields
    used: set[str] = field(default_factory=set)

    def row(self, row: int) -> Text:
        """The paragraph of one row."""
        after = self.after
        name = after.input
        seq, positions = after.seqs[name], _positions(after.seqs[name], row)
        title = (
            f"row {int(self.before.key[row])} of {after.source}: {len(positions)} of"
            f" {seq.ids.shape[1]} tokens"
        )
        old = _ids(self.before.seqs[self.before.input], row)
        columns = (
            _align_in_place(len(positions))
            if name == self.before.input and len(old) == len(positions)
            else _align(old, _ids(seq, row))
        )
        lines = self._compare(row, old, columns)
        if (hidden := self._hidden(row)) is not None:
            title += _summary(seq.ids[row, positions], hidden, self.mask)
        columns_of = {
            position: column
            for column, (_, j) in enumerate(columns)
            if j is not None
            for position in [int(positions[j])]
        }
        lines += (
            self._targets(row, seq, columns_of)
            + self._tracks(seq, row, columns_of)
            + _spans(after, row, columns_of)
        )
        blocks = [Text(title, "bold"), *_block(lines, len(columns), self.width)]
        for other in [other for other in after.seqs if other != name and other != lines[0].name]:
            blocks += self._other(other, row)
        return Text("\n").join([*blocks, *self._labels(row)])

    def _compare(
        self, row: int, old: list[int], columns: list[tuple[int | None, int | None]]
    ) -> list[Line]:
        """The original tokens, unless they are unchanged, and the tokens after the noise, each with
        its mark.
        """
        after, name = self.after, self.after.input
        new = _ids(after.seqs[name], row)
        marks = _marks(old, new, columns, self.mask, self._hidden(row))
        self.used |= {mark for pair in marks for mark in pair if mark}
        target = after.seqs.get("target")
        plain = target is not None and "previous" not in target.tracks and _ids(target, row) == old
        clean = "target" if plain else "before"
        lines = [Line(clean, {}, "dim"), Line(name, {})]
        for side, (line, ids) in enumerate(zip(lines, (old, new), strict=True)):
            words = self._words(ids)
            for column, pair in enumerate(columns):
                if (index := pair[side]) is not None:
                    mark = marks[column][side]
                    line.cells[column] = mark + words[index]
                    line.styles |= {column: MARKS[mark][0]} if mark else {}
        same = lines[0].cells == {
            column: cell.lstrip("=") for column, cell in lines[1].cells.items()
        }
        return lines[1:] if same and clean == "before" else lines

    def _hidden(self, row: int) -> np.ndarray | None:
        """[length] the tokens that noise has hidden in the input, IGNORE elsewhere."""
        seq = self.after.seqs[self.after.input]
        for name, labels in self.after.targets.items():
            if (field := self.fields.get(f"targets.{name}")) is not None and field.hidden:
                return labels[row, _positions(seq, row)]
        return None

    def _targets(self, row: int, seq: Seq, columns_of: Mapping[int, int]) -> list[Line]:
        """The labels, below their tokens; for the target sequence, only if they are not just its
        tokens.
        """
        lines = []
        written = self.after.seqs.get("target")
        width = self.after.seqs[self.after.input].ids.shape[1]
        for name, labels in self.after.targets.items():
            labelled = [
                position
                for position in np.flatnonzero(labels[row] != IGNORE).tolist()
                if position in columns_of
            ]
            values = labels[row, labelled].tolist()
            known = self.fields.get(f"targets.{name}")
            of_target = known is not None and known.of == "target"
            if written is not None and (of_target or labels.shape[1] != width) != (seq is written):
                continue
            if labels.shape[1] == seq.ids.shape[1] and not (
                seq is written and values == _ids(seq, row)
            ):
                of_tokens = known is not None and known.tokens
                shown = self._words(values) if of_tokens else [str(value) for value in values]
                lines.append(
                    Line(
                        name,
                        {
                            columns_of[position]: word
                            for position, word in zip(labelled, shown, strict=True)
                        },
                        "cyan",
                    )
                )
        return lines

    def _other(self, name: str, row: int) -> list[Text]:
        """A further sequence, such as the target, with its labels."""
        seq = self.after.seqs[name]
        if seq.ids.ndim > 2:
            return [
                Text(f"  {name}: {int(seq.length[row])} words of {seq.ids.shape[2]} characters")
            ]
        positions = _positions(seq, row)
        columns_of = {int(position): column for column, position in enumerate(positions)}
        lines = [Line(name, dict(enumerate(self._words(_ids(seq, row)))))]
        if "previous" in seq.tracks:
            read = self._words(seq.tracks["previous"][row, positions].tolist())
            lines.append(Line("reads", dict(enumerate(read)), "magenta"))
        lines += self._targets(row, seq, columns_of)
        return _block(lines + self._tracks(seq, row, columns_of), len(positions), self.width)

    def _labels(self, row: int) -> list[Text]:
        """Labels of the row's anchors, in words where the format has some, and values of the
        row.
        """
        lines = []
        if self.after.anchors is not None:
            mine = self.after.anchors[:, 0] == row
            for name, labels in self.after.labels.items():
                words = self.meanings.get(name, ())
                numbers = [
                    f"{x} ({words[x]})" if x in range(len(words)) else str(x)
                    for x in labels[mine].tolist()
                ]
                lines.append(f"  {name}: {', '.join(numbers)}")
        lines += [
            f"  {name}: {values[row]}"
            for name, values in self.after.values.items()
            if (known := self.fields.get(f"values.{name}")) is None or known.lines != "none"
        ]
        return [Text(line, "cyan") for line in lines]

    def _tracks(self, seq: Seq, row: int, columns_of: Mapping[int, int]) -> list[Line]:
        """Numbers next to the tokens, as often as their field says."""
        lines = []
        for name, track in seq.tracks.items():
            known = self.fields.get(f"tracks.{name}")
            often = "changes" if known is None else known.lines
            values = {position: int(track[row, position]) for position in columns_of}
            if often == "changes":
                values = {
                    position: value
                    for position, value in values.items()
                    if values.get(position - 1) != value
                }
            if often != "none":
                cells = {columns_of[position]: str(value) for position, value in values.items()}
                lines.append(Line(name, cells, "magenta"))
        return lines

    def _words(self, ids: list[int]) -> list[str]:
        """The pieces without line breaks and other control characters."""
        return [
            "".join(c if c.isprintable() else repr(c)[1:-1] for c in piece) or "''"
            for piece in self.pieces(ids)
        ]


def _positions(seq: Seq, row: int) -> np.ndarray:
    return np.flatnonzero(seq.real[row])


def _ids(seq: Seq, row: int) -> list[int]:
    return seq.ids[row, _positions(seq, row)].tolist()


def _align_in_place(length: int) -> list[tuple[int | None, int | None]]:
    return [(i, i) for i in range(length)]


def _align(old: list[int], new: list[int]) -> list[tuple[int | None, int | None]]:
    """Columns (index in `old`, index in `new`) of the longest common stretches and what is between
    them.
    """
    columns: list[tuple[int | None, int | None]] = []
    for _, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for step in range(max(i_end - i, j_end - j)):
            columns.append(
                (i + step if i + step < i_end else None, j + step if j + step < j_end else None)
            )
    return columns


def _marks(
    old: list[int],
    new: list[int],
    columns: Sequence[tuple[int | None, int | None]],
    mask: int | None,
    hidden: np.ndarray | None,
) -> list[tuple[str, str]]:
    """(mark before the old token, before the new one) of each column."""
    predicted = [
        hidden is not None and j is not None and int(hidden[j]) != IGNORE for _, j in columns
    ]
    changed = [
        (i, j)
        for (i, j), yes in zip(columns, predicted, strict=True)
        if not yes and (i is None or j is None or old[i] != new[j])
    ]
    moved = Counter(old[i] for i, _ in changed if i is not None) & Counter(
        new[j] for _, j in changed if j is not None
    )
    left, arrived = moved.copy(), moved.copy()
    marks = []
    for (i, j), yes in zip(columns, predicted, strict=True):
        if i is not None and j is not None and old[i] == new[j]:
            marks.append(("", "=" if yes else ""))
            continue
        away = i is not None and not yes and left[old[i]] > 0
        here = j is not None and not yes and arrived[new[j]] > 0
        left.subtract([old[i]] if away and i is not None else [])
        arrived.subtract([new[j]] if here and j is not None else [])
        before = "<" if away else "-" if j is None else ""
        after = (
            ">" if here else "+" if i is None else "*" if j is not None and new[j] == mask else "~"
        )
        marks.append((before if i is not None else "", after if j is not None else ""))
    return marks


def _summary(ids: np.ndarray, labels: np.ndarray, mask: int | None) -> str:
    """How many tokens are predicted, and how many of these are masked, replaced, kept."""
    predicted = labels != IGNORE
    total = int(predicted.sum())
    masked = int((predicted & (ids == mask)).sum())
    kept = int((predicted & (ids == labels)).sum())
    return f"; {total} predicted: {masked} masked, {total - masked - kept} replaced, {kept} kept"


def _spans(rows: Rows, row: int, columns_of: Mapping[int, int]) -> list[Line]:
    """`|` and the id below the first token of a span, `-` below the others."""
    lines = []
    for name, table in rows.spans.items():
        cells: dict[int, str] = {}
        for _, start, length, *identity in table[table[:, 0] == row].tolist():
            inside = [
                columns_of[position]
                for position in range(start, start + length)
                if position in columns_of
            ]
            cells |= dict.fromkeys(inside, "-")
            cells |= {inside[0]: "|" + "".join(map(str, identity))} if inside else {}
        lines.append(Line(name, cells, "magenta"))
    return lines


def _block(lines: Sequence[Line], columns: int, width: int) -> list[Text]:
    """Lines in aligned columns, wrapped to `width`; lines without a cell are left out."""
    margin = max(len(line.name) for line in lines) + 4
    wide = [
        max(cell_len(line.cells.get(column, "")) for line in lines) for column in range(columns)
    ]
    blocks: list[Text] = []
    start = 0
    while start < columns:
        end, room = start + 1, width - margin - wide[start]
        while end < columns and wide[end] < room:
            room -= wide[end] + 1
            end += 1
        taken = range(start, end)
        blocks += [Text()] if start and len(lines) > 1 else []
        blocks += [
            _text(line, taken, wide, margin)
            for line in lines
            if any(column in line.cells for column in taken)
        ]
        start = end
    return blocks


def _text(line: Line, columns: range, wide: Sequence[int], margin: int) -> Text:
    text = Text().append(f"  {line.name}".ljust(margin), "dim")
    for column in columns:
        cell = line.cells.get(column, "")
        text.append(cell, line.styles.get(column, line.style) or "default")
        text.append(" " * (wide[column] - cell_len(cell) + 1))
    text.rstrip()
    return text
