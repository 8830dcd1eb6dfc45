"""A document as it comes out of a file, with all that the file states about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

TEXT, ID, METADATA = "text", "id", "metadata"


@dataclass(frozen=True)
class RawText:
    """One document.

    Args:
        text: The text, with its line breaks.
        id: The `id` of its row, else the name of its file and the number of its line from 0.
        file: The name of its file.
        line: The number of its first line, from 1.
        row: The fields of its row; empty for a text file.
        key: The field of the row that has the text.
    """

    text: str
    id: str
    file: str
    line: int
    row: Mapping[str, Any] = field(default_factory=dict)
    key: str = TEXT

    @property
    def position(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def with_text(self, text: str) -> RawText:
        """The same document with another text."""
        return self if text == self.text else replace(self, text=text)

    def find(self, name: str) -> Any:
        """A field of the row, or of its metadata; None without one."""
        inner = self.row.get(METADATA)
        return self.row.get(name, inner.get(name) if isinstance(inner, Mapping) else None)

    def spell(self) -> str:
        """The document as a line of JSON, as datatrove writes it: `text`, `id`, `metadata`, and all
        other fields of its row. A text of another field becomes `text`, so that all rows agree.
        """
        metadata = {} if self.row else {METADATA: {"file_path": self.file}}
        row = {ID: self.id, **self.row, **metadata} if ID not in self.row else {**self.row}
        others = {k: v for k, v in row.items() if k not in (self.key, TEXT)}
        ordered = {TEXT: self.text} | others
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
