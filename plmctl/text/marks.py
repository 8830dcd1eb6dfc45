"""Marks: spans of a text with an id (entities, senses), from character offsets in the input to
positions of tokens.

On the way from the input to the tokens only white space is added or removed (stripped lines, joined
paragraphs). So the offsets of a mark count only characters that are not white space:

    text         "He saw  Ada"           mark 8..11 in characters of the file
    visible      "HesawAda"              mark 5..8 in visible characters
    sentence     "He saw Ada"            mark 5..8 still; tokens He | saw | Ada: token 2, length 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plmctl.core.errors import DataError, nearest
from plmctl.text.tokenizer import Tokenizer

# name -> [m, 3] int64: visible characters before it and up to its end, id; in the order of the text
Marks = dict[str, np.ndarray]
KEYS = ("start", "end", "id")
_LARGEST = {True: np.iinfo(np.int32).max, False: np.iinfo(np.int64).max}
_WHITE = np.array([chr(code).isspace() for code in range(0x3001)])  # there is no white space beyond
_SHOWN = '{"start": 3, "end": 9, "id": 17}'


def count_characters(text: str) -> np.ndarray:
    """[len + 1]: how many characters before each offset are not white space."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.append(
        0, np.cumsum((codes >= len(_WHITE)) | ~_WHITE[np.minimum(codes, len(_WHITE) - 1)])
    )


def read(
    row: Mapping[str, Any],
    text: str,
    names: Mapping[str, bool],
    *,
    file: object,
    line: int,
    known: Mapping[str, int] | None = None,
) -> Marks:
    """Read the marks of a row of the input.

    Args:
        row: the fields of the row.
        text: its text; offsets count its characters (code points) from 0, the end excluded.
        names: The fields, and for each whether it holds tags (ids from 1) or spans (ids from 0).
        known: The number of entities, for fields whose ids mean entities outside of the text.

    Raises:
        DataError: naming the first mark that is wrong.
    """
    visible, marks = count_characters(text), {}
    for name, tag in names.items():
        given = row.get(name)
        if not isinstance(given, list):
            raise DataError(
                _explain_no_list(row, name),
                file=file,
                line=line,
                fix=f'"{name}": [{_SHOWN}, ...], or [] without any',
            )
        try:
            checked = [_check_mark(n, mark, len(text), tag) for n, mark in enumerate(given)]
            if known and name in known:
                _refuse_unknown(given, known[name])
            table = np.array(checked, np.int64).reshape(-1, 3)
            order = np.argsort(table[:, 0], kind="stable")
            _refuse_overlap(table, order)
        except _Wrong as wrong:
            number, message, fix = wrong.args
            raise DataError(
                f"'{name}'[{number}]: {message}", file=file, line=line, fix=fix
            ) from None
        table[:, :2] = visible[table[:, :2]]
        marks[name] = table[order]
    return marks


def select_marks(marks: Marks, begin: int, end: int) -> Marks:
    """The marks that begin in visible characters begin..end - 1, counted from `begin`."""
    kept = {
        name: table[(table[:, 0] >= begin) & (table[:, 0] < end)] for name, table in marks.items()
    }
    return {name: table - np.array([begin, begin, 0]) for name, table in kept.items()}


class Placer:
    """Maps the marks of documents to the tokens of their sentences.

    A mark covers the tokens that overlap it. A mark is left out and counted if it covers no token
    (white space) or crosses the end of a sentence. The same holds if it shares a token with the
    mark before it.
    """

    def __init__(self, tokenizer: Tokenizer, names: Sequence[str]) -> None:
        self._tokenizer, self._names = tokenizer, names

    def __call__(
        self, marks: Sequence[Marks], texts: Sequence[Sequence[str]], lengths: np.ndarray
    ) -> tuple[dict[str, np.ndarray], Counter[str]]:
        """Map the marks of several documents.

        Returns:
            {name: [m, 3] int64 start, length, id}, counted in the tokens of all texts; and how many
                marks were left out, by reason.
        """
        spans: dict[str, list[np.ndarray]] = {
            name: [np.zeros((0, 3), np.int64)] for name in self._names
        }
        left: Counter[str] = Counter()
        ends = np.append(0, np.cumsum(lengths))
        number = 0
        for table, sentences in zip(marks, texts, strict=True):
            if any(map(len, table.values())):
                for name, sentence, inside in _by_sentence(table, sentences, left):
                    placed = self._place(sentences[sentence], inside, name, left)
                    spans[name].append(placed + np.array([ends[number + sentence], 0, 0]))
            number += len(sentences)
        return {name: np.concatenate(parts) for name, parts in spans.items()}, left

    def _place(self, text: str, table: np.ndarray, name: str, left: Counter[str]) -> np.ndarray:
        """The marks of one sentence as (first token, number of tokens, id)."""
        visible = count_characters(text)
        spans = visible[np.array(self._tokenizer.encode_offsets(text)[1], np.int64).reshape(-1, 2)]
        overlap = (spans[:, 0] < table[:, 1:2]) & (spans[:, 1] > table[:, :1])  # [m, tokens]
        some = overlap.any(1)
        first, last = overlap.argmax(1), overlap.shape[1] - 1 - overlap[:, ::-1].argmax(1)
        kept, last_taken = [], -1
        for number in np.flatnonzero(some).tolist():
            if first[number] > last_taken:
                last_taken = int(last[number])
                kept.append((first[number], last_taken + 1 - first[number], table[number, 2]))
        left[f"'{name}' without a token"] += int((~some).sum())
        left[f"'{name}' that share a token with the one before"] += int(some.sum()) - len(kept)
        return np.array(kept, np.int64).reshape(-1, 3)


def make_track(spans: np.ndarray, count: int) -> np.ndarray:
    """[count] int32: the id of the mark that covers each token, 0 for tokens without one."""
    track = np.zeros(count, np.int32)
    start, length, ids = spans.T
    begins = np.cumsum(length) - length
    track[np.repeat(start - begins, length) + np.arange(length.sum())] = np.repeat(ids, length)
    return track


def _by_sentence(
    marks: Marks, sentences: Sequence[str], left: Counter[str]
) -> Iterator[tuple[str, int, np.ndarray]]:
    """(name, sentence, its marks counted from its own first character), in order; without marks
    that cross its end.
    """
    ends = np.cumsum([count_characters(text)[-1] for text in sentences])
    for name, table in marks.items():
        white = table[:, 0] == table[:, 1]
        home = np.searchsorted(ends, table[:, 0], "right")
        across = ~white & (table[:, 1] > ends[np.minimum(home, len(ends) - 1)])
        left[f"'{name}' without a token"] += int(white.sum())
        left[f"'{name}' across the end of a sentence"] += int(across.sum())
        fine = ~white & ~across
        for sentence in np.unique(home[fine]).tolist():
            begin = ends[sentence - 1] if sentence else 0
            yield name, sentence, table[fine & (home == sentence)] - np.array([begin, begin, 0])


def _explain_no_list(row: Mapping[str, Any], name: str) -> str:
    if name in row:
        kinds = {dict: "an object", str: "a text", type(None): "null"}
        return f"'{name}' is {kinds.get(type(row[name]), 'a number')}, where a list is expected"
    fields = ", ".join(f"'{key}'" for key in row)
    return f"no list in a field '{name}' (this line has {fields}){nearest(name, row)}"


class _Wrong(Exception):
    """Number of a mark, what is wrong with it, and the fix."""


def _check_mark(number: int, mark: Any, size: int, tag: bool) -> tuple[int, int, int]:
    if not isinstance(mark, dict):
        raise _Wrong(number, f"is {mark!r}, not an object with start and end", _SHOWN)
    for key in mark:
        if key not in KEYS:
            raise _Wrong(
                number,
                f"has an unknown key '{key}'{nearest(key, KEYS)}; it takes {', '.join(KEYS)}",
                _SHOWN,
            )
    for key in KEYS[: 3 if tag else 2]:
        if key not in mark:
            raise _Wrong(number, f"has no '{key}'", _SHOWN)
    for key, value in mark.items():
        if type(value) is not int:
            raise _Wrong(number, f"'{key}' is {value!r}, not a whole number", _SHOWN)
    start, end, identity = mark["start"], mark["end"], mark.get("id", 0)
    if end <= start:
        raise _Wrong(
            number,
            f"ends at {end}, not after its start {start}",
            "the end is the offset behind the last character",
        )
    if start < 0 or end > size:
        fix = (
            "count characters (Unicode code points,"
            " not bytes) of the text as it stands in the file, from 0"
        )
        raise _Wrong(
            number, f"{start}..{end} lies outside the text, which has {size} characters", fix
        )
    if not tag <= identity <= _LARGEST[tag]:
        raise _Wrong(
            number,
            f"its id {identity} is not in {int(tag)}..{_LARGEST[tag]}",
            "number them from 1 (0: no tag)"
            if tag
            else "number them from 0, as the lines of entities.jsonl",
        )
    return start, end, identity


def _refuse_unknown(given: Sequence[Mapping[str, int]], known: int) -> None:
    """Refuse marks whose entity is missing in a list of entities outside of the text."""
    for number, mark in enumerate(given):
        if "id" not in mark:
            raise _Wrong(number, "has no 'id', which entity it means", _SHOWN)
        if mark["id"] >= known:
            what = f"its id {mark['id']} is none of the {known:,} entities of the text, from 0"
            raise _Wrong(number, what, "the number of a line of entities.jsonl, from 0")


def _refuse_overlap(table: np.ndarray, order: np.ndarray) -> None:
    ordered = table[order]
    for number in np.flatnonzero(ordered[1:, 0] < ordered[:-1, 1])[:1].tolist():
        first, second = (
            f"{start}..{end}" for start, end, _ in ordered[number : number + 2].tolist()
        )
        message = f"{second} overlaps {first} (number {order[number]})"
        raise _Wrong(
            int(order[number + 1]),
            message,
            "keep one of them, or put them in two fields: data.spans=[outer,inner]",
        )
