"""`data.streaming=true`: a text that is tokenized as it is read, and what such a run cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plmctl.config.build import plain
from plmctl.core.errors import ConfigError, DataError
from plmctl.data.shards import is_tokens
from plmctl.data.text_stream import TextStream
from plmctl.text.inputs import find_all

LINES = (".jsonl", ".ndjson")
# settings of `data` that need all of a text, or a layout that a stream does not read
WHOLE = ("target_path", "fields", "spans", "tags", "bytes", "mixture", "sources", "temperature")


def open_stream(spec: Any) -> TextStream:
    """The stream of `data.path`.

    Raises:
        DataError: One of the files has no lines of JSON that can be read from any place on.
    """
    data = spec.data
    files: list[Path] = []
    for source in find_all(plain(data.path)):
        if not isinstance(source, Path) or source.suffix not in LINES:
            what = "data.streaming reads files of JSON lines that are not packed"
            fix = "data.path=<.jsonl>, or data.streaming=false"
            raise DataError(what, file=source, fix=fix)
        files.append(source)
    return TextStream(
        files,
        Path(str(spec.tokenizer["path"])).expanduser(),
        field=data.field,
        lines=data.lines,
        segment=data.segment,
        size=data.window,
    )


def check_stream(spec: Any) -> Iterator[ConfigError]:
    """What a stream cannot do, before any data are read."""
    data, keys = plain(spec.data), spec.provenance.keys
    if not data["streaming"]:
        if "data.window" in keys:
            allowed = "of data.streaming=true alone"
            yield ConfigError("data.window", data["window"], allowed, fix="data.streaming=true")
        return
    off = "data.streaming=false"
    if data["path"] is None or is_tokens(data["path"]):
        allowed = "false: it reads .jsonl files, which data.path names"
        yield ConfigError("data.streaming", True, allowed, fix="data.path=<.jsonl>")
    for name in WHOLE:
        if data[name]:
            allowed = "not with data.streaming, which reads the texts of rows one after the other"
            yield ConfigError(f"data.{name}", data[name], allowed, fix=off)
    if "data.valid_share" in keys and data["valid_share"]:
        allowed = "not with data.streaming, which nothing is held out of"
        fix = "data.valid_path=<other text>"
        yield ConfigError("data.valid_share", data["valid_share"], allowed, fix=fix)
    if not spec.init and not (spec.tokenizer and spec.tokenizer.get("path")):
        allowed = "must be given with data.streaming: there is no text yet to train one on"
        fix = "plmctl tokenize data.path=<a part of it> out=tokens, and tokenizer.path=tokens"
        yield ConfigError("tokenizer.path", None, allowed, fix=fix)
    if spec.train.epochs is not None:
        allowed = "null: nobody has counted the rows of a stream"
        yield ConfigError("train.epochs", spec.train.epochs, allowed, fix="train.steps=<updates>")
    if spec.train.share != 1:
        allowed = "1 with data.streaming: nobody has counted the text"
        yield ConfigError("train.share", spec.train.share, allowed, fix="train.share=1")
