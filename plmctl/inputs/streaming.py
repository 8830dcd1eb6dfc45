"""`data.streaming=true`: a text that is tokenized as it is read."""

from __future__ import annotations

from pathlib import Path

from plmctl.config.build import plain
from plmctl.config.groups import Corpora
from plmctl.core.errors import DataError
from plmctl.data.text_stream import TextStream
from plmctl.text.inputs import find_all

LINES = (".jsonl", ".ndjson")


def open_stream(data: Corpora, tokenizer: Path) -> TextStream:
    """The stream of `data.path`.

    Raises:
        DataError: One of the files has no lines of JSON that can be read from any position on.
    """
    files: list[Path] = []
    for source in find_all(plain(data.path)):
        if not isinstance(source, Path) or source.suffix not in LINES:
            what = "data.streaming reads files of JSON lines that are not packed"
            fix = "data.path=<.jsonl>, or data.streaming=false"
            raise DataError(what, file=source, fix=fix)
        files.append(source)
    return TextStream(
        files,
        tokenizer.expanduser(),
        field=data.field,
        lines=data.lines,
        segment=data.segment,
        size=data.window,
    )
