"""The files that cleaning writes: documents as datatrove's JSON lines or as plain text, and tables
of dropped documents.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from plmctl.cleaning.raw_text import RawText
from plmctl.core.extras import require_library
from plmctl.storage.atomic import open_atomic
from plmctl.storage.durable import settle
from plmctl.storage.formulas import guard
from plmctl.storage.gate import admit

GZIP_LEVEL, ZSTD_LEVEL = 4, 3
SHOWN = 120  # characters of a dropped text in a table
_BLANK = re.compile(r"\n\s*\n")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class OutputFormat:
    """The form of the documents that are written.

    Args:
        kind: "jsonl": a row of JSON a document; "text": a line a paragraph, and a blank line
            between documents.
        compression: "gz", "zst" or "none".
    """

    kind: str = "jsonl"
    compression: str = "gz"

    def check(self) -> None:
        """Raise UsageError where the library that packs is missing."""
        if self.compression == "zst":
            require_library("zstandard", "zstd", "compression=zst")

    @property
    def ending(self) -> str:
        """The ending of a file: `.jsonl.gz`."""
        stem = ".jsonl" if self.kind == "jsonl" else ".txt"
        return stem if self.compression == "none" else f"{stem}.{self.compression}"

    @contextmanager
    def file(self, folder: Path, name: str) -> Iterator[Callable[[RawText], None]]:
        """A function that writes one document into the file `name`, which appears at the end.
        Without a document there is no file: readers of text refuse empty ones.
        """
        spell = RawText.spell if self.kind == "jsonl" else spell_plainly
        end = "\n" if self.kind == "jsonl" else "\n\n"
        file, written = folder / f"{name}{self.ending}", False
        with open_atomic(file, "wb") as stream:
            packed = self._pack(stream)

            def write(text: RawText) -> None:
                nonlocal written
                written = True
                packed.write(f"{spell(text)}{end}".encode("utf-8", "replace"))

            yield write
            if packed is not stream:
                packed.close()
            settle(stream)
        if not written:
            admit(file).unlink()

    def _pack(self, stream: IO[bytes]) -> Any:
        """The stream that packs; without times or names, so that the same text gives the same
        bytes.
        """
        if self.compression == "gz":
            return gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0)
        if self.compression == "zst":
            library = require_library("zstandard", "zstd", "compression=zst")
            return library.ZstdCompressor(ZSTD_LEVEL).stream_writer(stream, closefd=False)
        return stream


def spell_plainly(text: RawText) -> str:
    """The text with no blank line in it, since one ends a document."""
    return _BLANK.sub("\n", text.text.strip())


def shorten(text: str, length: int = SHOWN) -> str:
    """The beginning of a text in one line."""
    line = _SPACE.sub(" ", text[: 4 * length]).strip()
    return line if len(line) <= length else f"{line[: length - 1]}…"


@contextmanager
def open_table(file: Path, columns: Sequence[str]) -> Iterator[Callable[[Sequence[Any]], None]]:
    """A function that writes one row of a table, which appears at the end."""
    with open_atomic(file) as stream:

        def write(cells: Sequence[Any]) -> None:
            texts = (guard(_SPACE.sub(" ", str(cell))) for cell in cells)
            stream.write("\t".join(texts) + "\n")

        write(columns)
        yield write
        settle(stream)
