"""The first look at a corpus: how much there is, which documents are held out, and a sample to train a tokenizer on."""

from __future__ import annotations

import hashlib
import heapq
import platform
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.errors import ConfigError, DataError
from plmctl.text.layout import Layout
from plmctl.text.reader import BUILTIN, Document, documents, find_all

Say = Callable[[str, int, int], None]  # what is being done, bytes of text done, bytes in all (0: not known)
_SPACE = 1 << 64  # of document hashes


def quiet(doing: str, done: int, total: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class Source:
    """Where text comes from and how it is read. Reading it twice gives the same documents."""

    path: Any
    field: str = "text"
    lines: str = "auto"

    def documents(self, layouts: dict[str, Layout] | None = None) -> Iterator[Document]:
        return documents(self.path, field=self.field, lines=self.lines, layouts=layouts)

    def files(self) -> list[Path]:
        """Empty for the built-in corpus."""
        return [] if self.path in BUILTIN else find_all(self.path)

    def content(self, exact: int = 1 << 62) -> list[dict[str, Any]]:
        """Name, size and sha256 of each file; beyond `exact` bytes in all, the time of change instead of the hash."""
        if self.path in BUILTIN:
            return [{"path": "builtin", "python": platform.python_version()}]
        files = self.files()
        hashed = sum(file.stat().st_size for file in files) <= exact
        return [{"path": str(file), "bytes": file.stat().st_size, **_state(file, hashed)} for file in files]


@dataclass(frozen=True)
class Survey:
    """What one pass over the documents found."""

    documents: int
    duplicates: int
    bytes: int
    threshold: int  # documents with a hash up to it are held out
    sample: list[Document]  # those with the largest hashes: the farthest from being held out
    identities: np.ndarray  # [documents] uint64
    layouts: dict[str, Layout]


def look(source: Source, *, valid_share: float, sample_bytes: int, say: Say = quiet) -> Survey:
    """Count, hash and sample. A document is held out if its hash is small, so neither order nor tokenizer matters."""
    if isinstance(valid_share, bool) or not 0 <= valid_share < 1:
        raise ConfigError("data.valid_share", valid_share, "0 <= share < 1")
    identities, size = array("Q"), 0
    layouts: dict[str, Layout] = {}
    best: list[tuple[int, int, int, Document]] = []  # (hash, -part, bytes, document), smallest first
    kept = parts = 0
    for document in source.documents(layouts):
        parts = parts + 1 if document.continues else 0
        if not document.continues:
            identities.append(document.identity)
        length = _length(document)
        size += length
        if sample_bytes and (kept < sample_bytes or document.identity > best[0][0]):
            heapq.heappush(best, (document.identity, -parts, -len(identities), document))
            kept += length
            while len(best) > 1 and kept - (smallest := _length(best[0][3])) >= sample_bytes:
                heapq.heappop(best)
                kept -= smallest
        if len(identities) % 256 == 0:
            say("reading", size, 0)
    if not identities:
        raise DataError("there are no documents in it", file=source.path, fix="data.path=<files with text>")
    hashes = np.array(identities, np.uint64)
    threshold = _threshold(hashes, valid_share)
    sample = [entry[3] for entry in sorted(best, key=lambda entry: entry[:3], reverse=True) if entry[0] > threshold]
    return Survey(len(hashes), len(hashes) - len(np.unique(hashes)), size, threshold, sample, hashes, layouts)


def _threshold(hashes: np.ndarray, share: float) -> int:
    """The largest held-out hash: `share` of all, but of two different documents always one is held out and one is not."""
    different = np.unique(hashes)
    if share == 0 or len(different) < 2:
        return -1
    threshold = max(int(share * _SPACE), int(different[0]))
    return min(threshold, int(different[-1]) - 1)


def _length(document: Document) -> int:
    return sum(len(paragraph) + 1 for paragraph in document.paragraphs)


def _state(file: Path, hashed: bool) -> dict[str, Any]:
    if not hashed:
        return {"changed": file.stat().st_mtime_ns}
    with file.open("rb") as stream:
        return {"sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
