"""The input of `plmctl embed`: lines of text, or of two with a tab between for a model whose task
reads pairs; a column of a table; or JSON with the token ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.artifacts.loading import Loaded
from plmctl.config.build import class_of
from plmctl.core.errors import DataError, nearest
from plmctl.core.terminal import remark
from plmctl.interop.sentence_folder import SentenceSettings
from plmctl.storage.reading import parse_json_at
from plmctl.tasks.layouts.encode import lay_out, pad
from plmctl.tasks.layouts.texts import parse_texts
from plmctl.text.inputs import read_lines
from plmctl.text.tabular import find_object, has_rows, kind_of, named_rows, take_text
from plmctl.text.unknown import KNOWING, describe_unknown, refuse_unknown, unknown_share

SETTING = "field"  # names the column of a table, or the key of JSON lines, that has the text
TABLES = (".csv", ".tsv", ".parquet")
KEYS = ("text", "input_ids", "segment_ids", "padding", "attention_mask")


@dataclass(frozen=True)
class EmbeddingLine:
    """The row of one line of input; without ids for a blank one of most models."""

    ids: Sequence[int] = ()
    segment: Sequence[int] = ()  # one for each id, or empty: all are in segment 0
    real: Sequence[bool] = ()  # one for each id, or empty: nothing is padding
    # for a vocabulary of words one for each id: numbers of a `Spelling`; empty: as the vocabulary
    # does
    spelled: Sequence[int] = ()
    cut: bool = False  # whether the text was longer than the longest row of the model
    unpooled: int = 0  # tokens at its beginning that poolings leave out: those of a prompt
    blank: bool = False  # whether the text has spaces alone, or nothing


def read(
    file: Path, loaded: Loaded, *, field: str = "text", prompt: str = ""
) -> list[EmbeddingLine]:
    """Every line of `file`, or every row of a table, in order.

    Args:
        field: the column of a table (.csv, .tsv, .parquet), or the key of a JSON line, that has
            the text.

    Raises:
        DataError: for a line that the model cannot read; it names file and line. And for a file
            without a text.
    """
    file = file.expanduser()
    contents = _read_contents(file, field)
    return lay_out_lines(contents, loaded, file, field=field, prompt=prompt)


def lay_out_lines(
    contents: Iterable[tuple[int, str | dict[str, Any]]],
    loaded: Loaded,
    source: object,
    *,
    field: str = "text",
    prompt: str = "",
) -> list[EmbeddingLine]:
    """The rows of numbered texts, or of JSON objects with `input_ids`; a pair of texts is a
    `PlainLine`.

    Args:
        source: The source of the lines, for messages.
        field: The field of a text, as for `read`.
    """
    lines, limits = list[EmbeddingLine](), _Limits.of(loaded)
    node = loaded.own_task()
    columns = node.get("columns") or {}
    # a task that compares texts reads each by itself
    apart = node and getattr(class_of(node, loaded.source.plugins), "embeds", False)
    pairs = columns.get("text2") is not None and not apart
    if pairs and isinstance(source, Path) and _is_table(source):
        problem = f"its task reads pairs, and of a table the column {field} alone is read"
        remark(f"{source}: {problem}; lines may have both texts, with a tab between")
    for number, content in contents:
        try:
            if isinstance(content, PlainLine) and pairs and content.strip():
                texts = parse_texts(content, number, columns).fields
                line = _from_pair(texts["text"], texts["text2"], loaded, limits.length)
            elif isinstance(content, str):
                line = lay_out_text(content, loaded, limits.length, prompt)
            else:
                line = _from_ids(content)
            limits.check(line)
        except ValueError as error:
            raise DataError(str(error), file=source, line=number) from error
        lines.append(line)
    if not any(line.ids and not line.blank for line in lines):
        raise DataError("there is no text in it", file=source, fix="a text on each line")
    _remark_on_lines(lines, loaded, source, limits.length)
    return lines


def _remark_on_lines(
    lines: Sequence[EmbeddingLine], loaded: Loaded, source: object, length: int | None
) -> None:
    """Say what of the lines is padding, blank, unknown or cut; DataError where too much is
    unknown.
    """
    for number, line in enumerate(lines, 1):
        if line.real and line.real[-1] and not line.real[0]:
            remark(
                f"line {number}: `padding` says that the first token is padding and the last is"
                " not; where 1 means a token, the name is `attention_mask`"
            )
            break
    if blank := [line for line in lines if line.blank]:
        read_as = "the special tokens alone, as sentence-transformers has them"
        vectors = f"read as {read_as}" if any(line.ids for line in blank) else "zeros"
        remark(f"{source}: {len(blank)} of {len(lines)} lines are blank; their vectors: {vectors}")
    share = measure_unknown(lines, loaded)
    refuse_unknown(share, file=source, fix=KNOWING)
    if said := describe_unknown(share):
        remark(f"{source}: {said}")
    if cut := sum(line.cut for line in lines):
        remark(f"{cut} of {len(lines)} lines are longer than {length} tokens and were cut")


def measure_unknown(lines: Iterable[EmbeddingLine], loaded: Loaded) -> float:
    """The share of unknown tokens of lines; 0 where the model reads their characters."""
    ids = [i for line in lines if not line.spelled for i in line.ids]
    return unknown_share(ids, loaded.vocab) if ids and loaded.source.has_tokenizer else 0.0


def read_texts(file: Path, field: str = "text") -> list[str]:
    """The text of every line or row that `read` gives, as it stands; "" of one with ids alone."""
    contents = _read_contents(file, field)
    return [str(content) if isinstance(content, str) else "" for _, content in contents]


@dataclass(frozen=True)
class _Limits:
    """The numbers of tokens of a row (None: any), ids and segments that a model knows."""

    length: int | None
    vocab: int
    segments: int

    @classmethod
    def of(cls, loaded: Loaded) -> _Limits:
        shapes = {name: tensor.shape for name, tensor in loaded.model.named_parameters()}
        segments = shapes.get("backbone.embedding.segment.weight", [1])[0]
        return cls(find_longest(loaded), loaded.source.vocab_size, segments)

    def check(self, line: EmbeddingLine) -> None:
        """Raise ValueError if the model cannot read the line."""
        if self.length is not None and len(line.ids) > self.length:
            raise ValueError(f"{len(line.ids)} tokens, but the model reads at most {self.length}")
        columns = (
            ("input_ids", line.ids, self.vocab),
            ("segment_ids", line.segment, self.segments),
        )
        for name, values, size in columns:
            for value in values:
                if not 0 <= value < size:
                    raise ValueError(f"{name} has {value}, but the model knows 0..{size - 1}")
        if line.real and not any(line.real):
            raise ValueError("every token is padding")


class PlainLine(str):
    """A line of a file of texts, as it stands."""


def _is_table(file: Path) -> bool:
    return kind_of(file) in TABLES


def _read_contents(file: Path, field: str) -> Iterator[tuple[int, str | dict[str, Any]]]:
    """(line, its text, or its JSON object if that has `input_ids`) of every line or row."""
    if _is_table(file):
        for number, row in named_rows(file, [field], strict=True):
            yield number, take_text(row, field, file, number, SETTING)
        return
    lines = list(read_lines(file, cut=False))
    first = next((text for _, text in lines if text.strip()), "")
    names_a_key = not {field, "input_ids"}.isdisjoint(find_object(first) or ())
    is_json = has_rows(file) or names_a_key
    for number, text in lines:
        if not is_json or not text.strip():
            yield number, PlainLine(text)
            continue
        given = parse_json_at(text, file=file, line=number)
        if not isinstance(given, dict):
            allowed = "one JSON object a line is needed, with `input_ids` or a text"
            raise DataError(allowed, file=file, line=number)
        has_ids = "input_ids" in given
        yield number, given if has_ids else take_text(given, field, file, number, SETTING)


def find_longest(loaded: Loaded) -> int | None:
    """Tokens of a text at most, special ones included; None: any number."""
    settings = SentenceSettings.of(loaded.config)
    own = settings.max_length if settings else None
    bounds = [length for length in (loaded.model.backbone.max_length, own) if length]
    return min(bounds, default=None)


def lay_out_text(text: str, loaded: Loaded, length: int | None, prompt: str = "") -> EmbeddingLine:
    """The ids of a text, cut to `length`, between special tokens for an encoder and for whatever
    was fine-tuned.

    Args:
        text: The text. One of spaces alone has no ids; a model of sentences of the library
            `sentence-transformers` reads its special tokens, as the library does.
        length: Tokens of the row at most; None: any number.
    """
    settings = SentenceSettings.of(loaded.config)
    blank = not text.strip()
    if blank and (settings is None or not loaded.source.has_tokenizer):
        return EmbeddingLine(blank=True)
    if settings is not None and settings.lower and not loaded.tokenizer.is_uncased:
        text, prompt = text.lower(), prompt.lower()  # converted by a version that left it cased
    text = prompt + text
    vocab, spelling = loaded.vocab, loaded.source.spelling
    template = vocab.single if vocab.cls is not None or loaded.config.get("task") else ("A",)
    ids = (spelling or loaded.tokenizer).encode(text)
    room = len(ids) if length is None else max(0, length - len(template) + 1)
    parts = (ids[:room] if role == "A" else [vocab.id(role)] for role in template)
    row, cut = [i for part in parts for i in part], len(ids) > room
    if spelling is not None:
        return EmbeddingLine(
            spelling.replace_unknown(row).tolist(), spelled=row, cut=cut, blank=blank
        )
    unpooled = 0
    if prompt and settings is not None and not settings.include_prompt:
        unpooled = template.index("A") + len(loaded.tokenizer.encode(prompt))
    return EmbeddingLine(row, cut=cut, unpooled=unpooled, blank=blank)


def _from_pair(first: str, second: str, loaded: Loaded, length: int | None) -> EmbeddingLine:
    """The ids of two texts as the rows of a task have them, cut to `length`, the longer one
    first.
    """
    vocab, spelling = loaded.vocab, loaded.source.spelling
    a, b = ((spelling or loaded.tokenizer).encode(text) for text in (first, second))
    longest = len(a) + len(b) + len(vocab.pair)
    row = lay_out(a, b, vocab, max_length=length or longest, pooling="first")
    segment = pad([row], vocab, example=[0]).seqs["text"].tracks["segment"][0].tolist()
    if spelling is None:
        return EmbeddingLine(row.ids, segment, cut=row.cut > 0)
    ids = spelling.replace_unknown(row.ids).tolist()
    return EmbeddingLine(ids, segment, spelled=row.ids, cut=row.cut > 0)


def _from_ids(given: dict[str, Any]) -> EmbeddingLine:
    """The ids, segments and padding of a JSON line; ValueError if they do not fit together."""
    for key in given:
        if key not in KEYS:
            allowed = f"a line may have {', '.join(KEYS)}"
            raise ValueError(f"there is no '{key}'{nearest(key, KEYS)}; {allowed}")
    columns = {key: given[key] for key in KEYS[2:] if given.get(key) is not None}
    for key, values in {"input_ids": given["input_ids"], **columns}.items():
        if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
            raise ValueError(f"{key} must be a list of whole numbers")
        if len(values) != len(given["input_ids"]):
            raise ValueError(
                f"{key} has {len(values)} values, but input_ids {len(given['input_ids'])}"
            )
        if key in ("padding", "attention_mask") and not set(values) <= {0, 1}:
            raise ValueError(f"{key} must be made of 0 and 1 (or false and true)")
    if "padding" in columns and "attention_mask" in columns:
        raise ValueError("give `padding` (1: padding) or `attention_mask` (1: a token), not both")
    real = [not value for value in columns.get("padding", [])]
    real += [bool(value) for value in columns.get("attention_mask", [])]
    return EmbeddingLine(given["input_ids"], columns.get("segment_ids", []), real)
