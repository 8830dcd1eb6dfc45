"""Files of relations between two marked entities as examples: the layouts of FewRel, TACRED,
OpenNRE, ERNIE and SemEval-2010 task 8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.readers import files
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.readers.entity_tags import read_tags
from plmctl.tasks.readers.split_files import SplitFiles, read_json
from plmctl.tasks.record import Example
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of

LAYOUTS = (
    'JSON {relation: [{"tokens", "h", "t"}]} (FewRel), a list or lines of {"token", "subj_start",'
    ' ...} (TACRED), {"token" or "text", "h": {"pos"}, "t", "relation"} (OpenNRE) or {"text",'
    ' "ents", "label"} (ERNIE); or text: 1<tab>"... <e1>..</e1> .. <e2>..</e2> ..." (SemEval)'
)
_SENTENCE = re.compile(r"\d+\t")
Record = dict[str, Any]
Characters = tuple[int, int]


@part_of("reader")
class RelationFiles(SplitFiles):
    """Texts with a head and a tail entity and their relation, in the layout that a file has.

    `fields` of an example: `text`; `entities`: the head, then the tail, each with the characters
    `start` to `end` (excluded), and with `id` and `type`, "" where these are unknown.
    """

    def read_file(self, file: Path, columns: Columns, *, labelled: bool = True) -> list[Example]:
        """The examples of one file, in its order; DataError for another layout."""
        start = files.read_start(file)
        made = _read_sentences(file) if _SENTENCE.match(start) else _read_records(file)
        examples = list(made)
        if not examples:
            raise DataError("no examples", file=file, fix=LAYOUTS)
        absent = next((e for e in examples if labelled and e.label is None), None)
        if absent:
            raise DataError("the relation is missing", file=absent.place)
        return examples


def _read_sentences(file: Path) -> Iterator[Example]:
    """`number <tab> "sentence"`, then a line with the relation, in training a comment."""
    number, sentence, at, label = "", "", 0, None
    for line, text in [*need_lines(file), (0, "0\t")]:
        begins = _SENTENCE.match(text)
        if begins:
            if number:
                yield _tagged(number, sentence, label, f"{file}:{at}")
            number, _, sentence = text.partition("\t")
            at, label = line, None
        elif text.strip() and not text.startswith("Comment") and number and label is None:
            label = text.strip()


def _tagged(number: str, sentence: str, label: str | None, place: str) -> Example:
    quoted = sentence.strip()
    inside = quoted[1:-1] if quoted[:1] == quoted[-1:] == '"' and len(quoted) > 1 else quoted
    try:
        text, *spans = read_tags(inside, 2)
    except ValueError as error:
        raise DataError(str(error), file=place, fix="mark both: <e1>..</e1>, <e2>..</e2>") from None
    return make_example(number, text, spans, label=label, place=place)


def _read_records(file: Path) -> Iterator[Example]:
    for number, (place, label, record) in enumerate(_locate(file)):
        if not isinstance(record, dict):
            raise DataError("not in a layout of relations", file=place, fix=LAYOUTS)
        convert = next((make for key, make in _LAYOUTS if key in record), None)
        if convert is None:
            shown = ", ".join(map(str, record))
            raise DataError(f"no known layout has the fields {shown}", file=place, fix=LAYOUTS)
        try:
            yield convert(record, label, str(number), place)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            problem = f"no field {error}" if isinstance(error, KeyError) else str(error)
            if isinstance(error, (IndexError, TypeError)):
                problem = f"a field is not as its layout has it ({error})"
            raise DataError(problem, file=place, fix=LAYOUTS) from error


def _locate(file: Path) -> Iterator[tuple[str, str | None, Any]]:
    """(file:line, relation, record) of each example: a line, or one of a JSON value."""
    if kind_of(file) == ".jsonl":
        for line, text in need_lines(file):
            if text.strip():
                yield f"{file}:{line}", None, parse_json_at(text, file=file, line=line)
        return
    for number, (label, record) in enumerate(_flatten(read_json(file), file)):
        yield f"{file} example {number}", label, record


def _flatten(content: Any, file: Path) -> Iterator[tuple[str | None, Any]]:
    if isinstance(content, dict):
        for label, records in content.items():
            if not isinstance(records, list):
                raise DataError(f"'{label}' has no list of sentences", file=file, fix=LAYOUTS)
            yield from ((label, record) for record in records)
    elif isinstance(content, list):
        yield from ((None, record) for record in content)
    else:
        raise DataError("not in a layout of relations", file=file, fix=LAYOUTS)


def _from_fewrel(record: Record, label: str | None, number: str, place: str) -> Example:
    """`h` and `t` are [name, id, the positions of each of its mentions]; the first one counts."""
    tokens = record["tokens"]
    entities = [record["h"], record["t"]]
    runs = [_find_run(record[who], who) for who in ("h", "t")]
    label = record.get("relation", label)
    return _of_tokens(number, tokens, runs, [e[1] for e in entities], ["", ""], label, place)


def _find_run(entity: Sequence[Any], field: str) -> tuple[int, int]:
    """[first, end) of the tokens of the first mention of an entity."""
    positions = entity[2][0] if entity[2] else []
    if not positions:
        raise ValueError(f"'{field}' has no positions of tokens: {str(entity)[:60]}")
    return min(positions), max(positions) + 1


def _from_tacred(record: Record, label: str | None, number: str, place: str) -> Example:
    runs = [(int(record[f"{who}_start"]), int(record[f"{who}_end"]) + 1) for who in ("subj", "obj")]
    types = [str(record.get(f"{who}_type", "")) for who in ("subj", "obj")]
    identity = str(record.get("id", number))
    relation = record.get("relation")
    return _of_tokens(identity, record["token"], runs, ["", ""], types, relation, place)


def _from_opennre(record: Record, label: str | None, number: str, place: str) -> Example:
    entities = [record["h"], record["t"]]
    spans = [(int(each["pos"][0]), int(each["pos"][1])) for each in entities]
    ids = [str(each.get("id", "")) for each in entities]
    types = [str(each.get("type", "")) for each in entities]
    relation = record.get("relation", label)
    if "text" in record:
        return make_example(
            number, record["text"], spans, ids=ids, types=types, label=relation, place=place
        )
    return _of_tokens(number, record["token"], spans, ids, types, relation, place)


def _from_ernie(record: Record, label: str | None, number: str, place: str) -> Example:
    head, tail = record["ents"][:2]
    spans = [(int(each[1]), int(each[2])) for each in (head, tail)]
    ids = [str(head[0]), str(tail[0])]
    relation = record.get("label", label)
    return make_example(number, record["text"], spans, ids=ids, label=relation, place=place)


# a field that only this layout has -> what reads it
_LAYOUTS: tuple[tuple[str, Callable[[Record, str | None, str, str], Example]], ...] = (
    ("tokens", _from_fewrel),
    ("subj_start", _from_tacred),
    ("ents", _from_ernie),
    ("h", _from_opennre),
)


def _of_tokens(
    number: str,
    tokens: Sequence[str],
    runs: Sequence[tuple[int, int]],
    ids: Sequence[str],
    types: Sequence[str],
    label: str | None,
    place: str,
) -> Example:
    """An example whose entities are runs [first, end) of its tokens."""
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token) + 1)  # a space between two
    for first, end in runs:
        if not 0 <= first < end <= len(tokens):
            raise ValueError(f"the entity {first}..{end} lies outside of {len(tokens)} tokens")
    spans = [(starts[first], starts[end] - 1) for first, end in runs]
    return make_example(
        number, " ".join(tokens), spans, ids=ids, types=types, label=label, place=place
    )


def make_example(
    number: str,
    text: str,
    spans: Sequence[Characters],
    *,
    ids: Sequence[str] = ("", ""),
    types: Sequence[str] = ("", ""),
    label: str | None,
    place: str,
) -> Example:
    """An example of head and tail, the two `spans` of `text`; ValueError where they lie outside."""
    for start, end in spans:
        if not 0 <= start < end <= len(text):
            raise ValueError(f"the entity {start}..{end} lies outside of {len(text)} characters")
    entities = [
        {"start": start, "end": end, "id": str(known), "type": kind}
        for (start, end), known, kind in zip(spans, ids, types, strict=True)
    ]
    fields = {"text": text, "entities": entities}
    return Example(number, fields, None if label is None else str(label), place)
