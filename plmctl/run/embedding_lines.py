"""What `plmctl embed` reads: lines of text, a column of a table, or JSON that says token by
token what the model gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError, nearest
from plmctl.core.terminal import remark
from plmctl.run.loading import Loaded
from plmctl.storage.reading import parse_json
from plmctl.text import inputs
from plmctl.text.inputs import read_lines, read_rows, take_text
from plmctl.text.unknown import describe_unknown, refuse_unknown, unknown_share

SETTING = "field"  # that says where the text of a row is
TABLES = (".csv", ".tsv", ".parquet")
KEYS = ("text", "input_ids", "segment_ids", "padding", "attention_mask")


@dataclass(frozen=True)
class EmbeddingLine:
    """What one line of input gives to the model; all empty for an empty line."""

    ids: Sequence[int] = ()
    segment: Sequence[int] = ()  # beside ids, or empty: all of segment 0
    real: Sequence[bool] = ()  # beside ids, or empty: all are tokens
    # beside ids, of a vocabulary of words: numbers of a `Spelling`; empty: as the vocabulary does
    spelled: Sequence[int] = ()


def read(file: Path, loaded: Loaded, *, field: str = "text") -> list[EmbeddingLine]:
    """Every line of `file`, or every row of a table, in order; DataError with file and line for
    what the model cannot take.

    `field`: the column of a table (.csv, .tsv, .parquet) or the key of a JSON line that has the
    text.
    """
    file = file.expanduser()
    table = _is_table(file)
    texts = _column(file, field) if table else list(read_lines(file, cut=False))
    first = next((text for _, text in texts if text.strip()), "")
    looks_so = first.lstrip().startswith("{") and any(
        f'"{key}"' in first for key in (field, "input_ids")
    )
    is_json = not table and (inputs.has_rows(file) or looks_so)
    limits = _Limits.of(loaded)
    lines, cut = [], 0
    for number, text in texts:
        if is_json and text.strip():
            line, lost = _from_json(
                text, loaded, limits, partial(take_text, field=field, given=file, number=number)
            )
        else:
            line, lost = _from_text(text, loaded, limits) if text.strip() else (EmbeddingLine(), 0)
        problem = line if isinstance(line, str) else limits.problem(line)
        if problem:
            raise DataError(problem, file=file, line=number)
        lines.append(line)
        cut += lost > 0
    odd = next(
        (i for i, line in enumerate(lines, 1) if line.real and line.real[-1] and not line.real[0]),
        None,
    )
    if odd is not None:
        remark(
            f"line {odd}: `padding` says that the first token is padding and the last is not; where"
            " 1 means a token, the name is `attention_mask`"
        )
    ids = (
        [i for line in lines if not line.spelled for i in line.ids]
        if loaded.source.has_tokenizer
        else []
    )
    share = unknown_share(ids, loaded.vocab) if ids else 0.0
    refuse_unknown(share, file=file, fix="a checkpoint whose tokenizer knows this text")
    if share:
        remark(f"{file}: {describe_unknown(share)}")
    if cut:
        remark(f"{cut} of {len(lines)} lines are longer than {limits.length} tokens and were cut")
    return lines


@dataclass(frozen=True)
class _Limits:
    """How many tokens, ids and segments the model has."""

    length: int | None
    vocab: int
    segments: int

    @classmethod
    def of(cls, loaded: Loaded) -> _Limits:
        shapes = {name: tensor.shape for name, tensor in loaded.model.named_parameters()}
        segments = shapes.get("backbone.embedding.segment.weight", [1])[0]
        return cls(loaded.model.backbone.max_length, loaded.source.vocab_size, segments)

    def problem(self, line: EmbeddingLine) -> str:
        if self.length is not None and len(line.ids) > self.length:
            return f"{len(line.ids)} tokens, but the model has places for {self.length}"
        for name, values, size in (
            ("input_ids", line.ids, self.vocab),
            ("segment_ids", line.segment, self.segments),
        ):
            wrong = [value for value in values if not 0 <= value < size]
            if wrong:
                return f"{name} has {wrong[0]}, but the model knows 0..{size - 1}"
        if line.ids and line.real and not any(line.real):
            return "every place is padding"
        return ""


def _is_table(file: Path) -> bool:
    return any(suffix in TABLES for suffix in file.suffixes[-2:])


def _column(file: Path, field: str) -> list[tuple[int, str]]:
    """(line, text) of every row of a table whose first line names its columns."""
    rows = _tab_rows(file) if ".tsv" in file.suffixes[-2:] else read_rows(file, [field])
    return [(number, take_text(row, field, file, number, SETTING)) for number, row in rows]


def _tab_rows(file: Path) -> Iterator[inputs.Row]:
    rows = (
        (number, line.split("\t")) for number, line in read_lines(file, cut=False) if line.strip()
    )
    _, names = next(rows, (0, []))
    return ((number, dict(zip(names, cells, strict=False))) for number, cells in rows)


def _from_text(text: str, loaded: Loaded, limits: _Limits) -> tuple[EmbeddingLine, int]:
    """The ids of a text, cut to the model's places, between special tokens for an encoder and
    for whatever was fine-tuned.
    """
    vocab = loaded.vocab
    template = vocab.single if vocab.cls is not None or loaded.config.get("task") else ("A",)
    spelling = loaded.source.spelling
    ids = (spelling or loaded.tokenizer).encode(text)
    room = len(ids) if limits.length is None else max(0, limits.length - len(template) + 1)
    parts = [ids[:room] if role == "A" else [vocab.id(role)] for role in template]
    laid, cut = [i for part in parts for i in part], max(0, len(ids) - room)
    return (
        EmbeddingLine(laid)
        if spelling is None
        else EmbeddingLine(spelling.known(laid).tolist(), spelled=laid)
    ), cut


def _from_json(
    text: str, loaded: Loaded, limits: _Limits, text_of: Callable[..., str]
) -> tuple[Any, int]:
    try:
        given = parse_json(text)
    except ValueError as error:
        return f"not JSON: {error}", 0
    if not isinstance(given, dict):
        return "one JSON object a line is needed, with `input_ids` or a text", 0
    unknown = [key for key in given if key not in KEYS]
    if unknown and "input_ids" in given:
        return (
            (
                f"there is no '{unknown[0]}'{nearest(unknown[0], KEYS)};"
                f" a line may have {', '.join(KEYS)}"
            ),
            0,
        )
    if "input_ids" not in given:
        found = text_of(given, setting=SETTING)
        return _from_text(found, loaded, limits) if found.strip() else (EmbeddingLine(), 0)
    columns = {key: given[key] for key in KEYS[1:] if given.get(key) is not None}
    for key, values in columns.items():
        if not isinstance(values, list) or not all(isinstance(v, int) for v in values):
            return f"{key} must be a list of whole numbers", 0
        if len(values) != len(columns["input_ids"]):
            return f"{key} has {len(values)} values, but input_ids {len(columns['input_ids'])}", 0
    return _checked(columns)


def _checked(columns: dict[str, list[int]]) -> tuple[Any, int]:
    for key in ("padding", "attention_mask"):
        if any(value not in (0, 1) for value in columns.get(key, [])):
            return f"{key} must be made of 0 and 1 (or false and true)", 0
    if "padding" in columns and "attention_mask" in columns:
        return "give `padding` (1: padding) or `attention_mask` (1: a token), not both", 0
    real = (
        [not value for value in columns["padding"]]
        if "padding" in columns
        else [bool(v) for v in columns.get("attention_mask", [])]
    )
    return EmbeddingLine(columns["input_ids"], columns.get("segment_ids", []), real), 0
