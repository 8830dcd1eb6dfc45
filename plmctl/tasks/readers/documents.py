"""Documents with their summaries, sentence by sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.parts import part_of
from plmctl.tasks.readers.articles import Articles
from plmctl.tasks.readers.column_settings import Columns
from plmctl.tasks.record import Example
from plmctl.text import sentences
from plmctl.text.tabular import OBJECTS, kind_of


@part_of("reader")
class DocumentFiles(Articles):
    """All files that `Articles` reads, with each sentence of the source on a line of its own.
    Sentences of a list in JSON stay as they are, any other text is cut at the ends of its sentences
    and paragraphs.
    """

    def read_file(
        self, file: Path, columns: Columns, *, header: bool | None = None, labelled: bool = True
    ) -> list[Example]:
        examples = super().read_file(file, columns, header=header, labelled=labelled)
        # `cell` has done it for a file whose rows name their values
        return examples if kind_of(file) in OBJECTS else list(map(_divide, examples))

    def read_lines(self, source: Path, target: Path) -> list[Example]:
        return list(map(_divide, super().read_lines(source, target)))

    def cell(self, role: str, value: Any) -> Any:
        cell = super().cell(role, value)
        return divide(value) if role == "source" and isinstance(value, str) else cell

    def join_sentences(self, texts: Sequence[str]) -> str:
        return _write_lines(texts)

    def join_paragraphs(self, texts: Sequence[str]) -> str:
        return _write_lines(sentence for text in texts for sentence in sentences.split(text))


def divide(text: str) -> str:
    """`text` with each of its sentences on a line of its own."""
    return _write_lines(sentences.split(text))


def _write_lines(texts: Iterable[str]) -> str:
    return "\n".join(" ".join(text.split()) for text in texts)


def _divide(example: Example) -> Example:
    return replace(example, fields={**example.fields, "source": divide(example.fields["source"])})
