"""The text on which language models are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError
from plmctl.tasks.lm import Text
from plmctl.text.layout import RUNNING
from plmctl.text.reader import read_documents
from plmctl.text.running import check_span
from plmctl.text.tokenizer import Tokenizer


def read_text(data: Data, path: Any, tokenizer: Tokenizer) -> Text:
    """The text at `path` as ids, read as `data` says; ConfigError without a path."""
    if path is None:
        fix = "data.path=<file, folder or pattern>"
        raise ConfigError("data.path", None, "a text, on which the model is measured", fix=fix)
    span = check_span(data.bytes, data.lines, setting="data.bytes")
    if data.lines == RUNNING:
        return Text.of_running(read_documents(path, lines=data.lines, span=span), tokenizer)
    return Text.of(_read_texts(data, path), tokenizer)


def _read_texts(data: Data, path: Any) -> Iterator[str]:
    """Whole documents at `path`; parts of a long one are put together again."""
    parts = list[str]()
    for document in read_documents(path, field=data.field, lines=data.lines):
        if parts and not document.continues:
            yield "".join(parts)
            parts = []
        parts += document.segments
    yield "".join(parts)
