"""Files of mentions with their types as examples: the layouts of ERNIE's Open Entity and FIGER, of
the Ultra-Fine set, and of the released FIGER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.split_files import SplitFiles, read_json
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines

LAYOUTS = (
    'a list, or lines, of {"sent", "start", "end", "labels"} (ERNIE), {"left_context_token",'
    ' "mention_span", "right_context_token", "y_str"} (Ultra-Fine) or {"tokens", "mentions":'
    ' [{"start", "end", "labels"}]} (FIGER)'
)
Record = dict[str, Any]
Mention = tuple[str, int, int, list[str] | None]  # text, its characters [start, end), types


@part_of("reader")
class TypingFiles(SplitFiles):
    """Mentions of entities with their types, of which there may be several, in the layout that a
    file has.

    `fields` of an example: `text`; `entities`: the mention, the characters `start` to `end`
    (excluded). Its label is the list of its types.
    """

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The mentions of one file, in its order; DataError for another layout."""
        examples: list[Example] = []
        for number, record in enumerate(_records(file)):
            place = f"{file} record {number}"
            try:
                for text, start, end, types in _mentions(record):
                    if not 0 <= start < end <= len(text):
                        raise ValueError(f"{start}..{end} is outside of {len(text)} characters")
                    if labelled and types is None:
                        raise ValueError("no types")
                    entity = {"start": start, "end": end, "id": "", "type": ""}
                    fields = {"text": text, "entities": [entity]}
                    examples.append(Example(str(len(examples)), fields, types, place))
            except (KeyError, TypeError, ValueError) as error:
                problem = f"no field {error}" if isinstance(error, KeyError) else str(error)
                raise DataError(problem, file=place, fix=LAYOUTS) from error
        if not examples:
            raise DataError("no mentions", file=file, fix=LAYOUTS)
        return examples


def _records(file: Path) -> list[Any]:
    if not files.read_start(file).startswith("["):  # lines, whatever the file's name
        return [
            parse_json_at(text, file=file, line=number)
            for number, text in need_lines(file)
            if text.strip()
        ]
    return list(read_json(file))


def _mentions(record: Any) -> Iterator[Mention]:
    if not isinstance(record, dict):
        raise ValueError("not in a layout of mentions")
    read = next((make for key, make in _LAYOUTS.items() if key in record), None)
    if read is None:
        raise ValueError(f"no known layout has the fields {', '.join(map(str, record))}")
    yield from read(record)


def _from_ernie(record: Record) -> Iterator[Mention]:
    yield record["sent"], int(record["start"]), int(record["end"]), _types(record.get("labels"))


def _from_ultra_fine(record: Record) -> Iterator[Mention]:
    left = " ".join(record["left_context_token"])
    start = len(left) + bool(left)
    mention = str(record["mention_span"])
    parts = [part for part in (left, mention, " ".join(record["right_context_token"])) if part]
    yield " ".join(parts), start, start + len(mention), _types(record.get("y_str"))


def _from_figer(record: Record) -> Iterator[Mention]:
    tokens = record["tokens"]
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token) + 1)  # a space between two
    for mention in record["mentions"]:
        first, end = int(mention["start"]), int(mention["end"])
        if not 0 <= first < end <= len(tokens):
            raise ValueError(f"the mention {first}..{end} is outside of {len(tokens)} tokens")
        yield " ".join(tokens), starts[first], starts[end] - 1, _types(mention.get("labels"))


_LAYOUTS: dict[str, Callable[[Record], Iterator[Mention]]] = {
    "sent": _from_ernie,
    "mention_span": _from_ultra_fine,
    "mentions": _from_figer,
}


def _types(values: Any) -> list[str] | None:
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("the types are no list of texts")
    return list(dict.fromkeys(values))
