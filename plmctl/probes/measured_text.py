"""The text on which language models are measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.terminal import counted
from plmctl.data.counted_words import LOOKED, has_spaces
from plmctl.data.encoding import close_lines
from plmctl.text.document import Document
from plmctl.text.layout import RUNNING
from plmctl.text.reader import read_documents
from plmctl.text.running import check_span, join_parts
from plmctl.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Text:
    """A text as ids, and its size in the units that perplexities are stated in."""

    ids: list[list[int]]  # by document
    words: int  # runs of characters that are not white space
    characters: int
    bytes: int
    # the ends of its lines are tokens, and words in what is counted: nothing is added to it
    running: bool = False
    spaced: bool = True  # whether it has spaces between its words
    lines: int = 0  # the number of lines with text

    @classmethod
    def of(cls, documents: Iterable[str], tokenizer: Any) -> Text:
        """`documents` as ids, those without text left out; DataError if none is left."""
        kept = [document for document in documents if document.strip()]
        ids = tokenizer.encode_batch(kept)
        if not any(ids):
            raise DataError("no text to measure", fix="data.path=<a file with text>")
        words, characters = sum(len(d.split()) for d in kept), sum(map(len, kept))
        spaced = has_spaces(words, characters, _begin(kept))
        size = sum(len(d.encode()) for d in kept)
        lines = sum(bool(line.strip()) for d in kept for line in d.splitlines())
        return cls(ids, words, characters, size, spaced=spaced, lines=lines)

    @classmethod
    def of_running(cls, documents: Iterable[Document], tokenizer: Tokenizer) -> Text:
        """Running text as ids, files apart; DataError for an empty text."""
        ids: list[list[int]] = []
        words = characters = size = 0
        first = ""
        for pieces in join_parts(documents):
            ids.append(close_lines(pieces, *tokenizer.encode_flat(pieces), tokenizer)[0].tolist())
            words += sum(len(piece.split()) + piece.endswith("\n") for piece in pieces)
            characters += sum(map(len, pieces))
            size += sum(len(piece.encode()) for piece in pieces)
            first = first or _begin(pieces)
        if not any(ids):
            raise DataError("no text to measure", fix="data.path=<a file with text>")
        spaced = has_spaces(words, characters, first)
        return cls(ids, words, characters, size, running=True, spaced=spaced)

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return sum(map(len, self.ids))

    def describe(self) -> str:
        """The documents, and what separates them."""
        documents = counted(len(self.ids), "document")
        if self.running:
            return f"{documents} of running text, one a file (data.lines=running)"
        rule = "a blank line, or the end of a file or row, separates documents"
        return f"{documents} of {counted(self.lines, 'line')}; {rule}"

    def join(self, end: int) -> list[int]:
        """All documents behind each other; each but those of running text is closed by `end`."""
        closing = [] if self.running else [end]
        return [token for ids in self.ids for token in (*ids, *closing)]


def _begin(texts: Iterable[str]) -> str:
    """The first `LOOKED` characters of some texts."""
    return "".join(islice(chain.from_iterable(texts), LOOKED))


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
