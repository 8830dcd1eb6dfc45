"""The survey of a corpus: its size, the documents that are held out, and a sample to train a
tokenizer on.
"""

from __future__ import annotations

import hashlib
import heapq
import platform
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.progress import Say
from plmctl.knowledge.directory import FILE, MARKED, count_entities
from plmctl.text.annotate import check_names
from plmctl.text.document import Document
from plmctl.text.inputs import Input, find_all, read_lines
from plmctl.text.layout import TextLayout
from plmctl.text.markup import measure_html
from plmctl.text.pieces import Stretch
from plmctl.text.reader import BUILTIN, detect_layout, read_documents, read_pairs
from plmctl.text.running import Span
from plmctl.text.strings import Strings
from plmctl.text.tabular import has_rows

# the current step, bytes of text done, bytes in all (0: not known)
_SPACE = 1 << 64  # number of possible document hashes
_STEP = 1 << 22
_EDGE = 1 << 16  # bytes at each end of a file that identify it
Ranked = tuple[int, int, int, Document]  # (hash, -part, -number, a part of a document)
BEGINNING = 1 << 20  # characters that are read before a run begins
# least characters that a document counts in a sample: its memory besides the text
_LEAST = 128
# characters that are held out at least, about 5,000 tokens, where they are no more than a tenth of
# the text; and the largest part of a text that is held out because its documents are long
HELD, TENTH, LARGEST = 24_000, 0.1, 0.2


def ignore_progress(doing: str, done: int, total: int) -> None:
    """No progress display."""


@dataclass(frozen=True)
class TextSource:
    """Where text comes from and how it is read; reading it twice gives the same documents."""

    path: Any
    field: str = "text"
    lines: str = "auto"
    spans: tuple[str, ...] = ()  # fields with marks, see text/marks.py
    tags: tuple[str, ...] = ()
    target: Any = None  # the file of translations, for parallel text in two files
    fields: tuple[str, ...] = ()  # source and target, for parallel text in one file
    span: Span | None = None  # bytes of the running text that are read
    pieces: tuple[Stretch, ...] | None = None  # the pieces of the files that are read; None: all

    def __post_init__(self) -> None:
        check_names(self.spans, self.tags)
        if self.pairs and (self.spans or self.tags):
            kind = "spans" if self.spans else "tags"
            raise ConfigError(
                f"data.{kind}", list(getattr(self, kind)), "parallel text has no spans and no tags"
            )

    @property
    def pairs(self) -> bool:
        """Whether each document is a text and its translation."""
        return self.target is not None or bool(self.fields)

    def documents(self, layouts: dict[str, TextLayout] | None = None) -> Iterator[Document]:
        """The documents in order; `layouts` receives how each file is read."""
        if self.pairs:
            return read_pairs(
                self.path, targets=self.target, fields=self.fields, pieces=self.pieces
            )
        return read_documents(
            self.path,
            field=self.field,
            lines=self.lines,
            spans=self.spans,
            tags=self.tags,
            layouts=layouts,
            span=self.span,
            known=self.entities(),
            pieces=self.pieces,
        )

    def find_layouts(self) -> dict[str, TextLayout]:
        """How each file is read."""
        if self.pairs or self.path in BUILTIN:
            return {}
        known = {"field": self.field, "lines": self.lines}
        return {str(file): detect_layout(file, **known) for file in self.files()}

    def entities(self) -> dict[str, int]:
        """{the field of entities: their number}, if the text has them."""
        files = self.files() if MARKED in self.spans else []
        folders = {file.parent for file in files if isinstance(file, Path)}
        counts = [count_entities(folder) for folder in folders if (folder / FILE).is_file()]
        return {MARKED: min(counts)} if counts else {}

    def files(self) -> list[Input]:
        """The files; none for the built-in corpus."""
        both = [path for path in (self.path, self.target) if path not in BUILTIN]
        return [given for path in both for given in find_all(path)]

    def check_beginning(self) -> None:
        """Read the first row of the first file, where text is in fields, or the first lines of the
        files; DataError if it has no field of these names, or is no UTF-8. Data sets on the hub are
        left alone.
        """
        files = self.files()
        local = bool(files) and isinstance(files[0], Path | Strings)
        if local and (self.fields or has_rows(files[0])):
            next(self.documents(), None)
        elif self.span is None:
            left = BEGINNING
            for file in (each for each in files if isinstance(each, Path) and not has_rows(each)):
                for _, line in read_lines(file):
                    left -= len(line) + 1
                    if left < 0:
                        return

    def content(self, exact: int = 1 << 62) -> list[dict[str, Any]]:
        """Name, size and sha256 of each file; for more than `exact` bytes in all, the time of
        change instead of the hash.
        """
        if self.path in BUILTIN:
            return [{"path": "builtin", "python": platform.python_version()}]
        files = self.files()
        hashed = sum(file.stat().st_size for file in files if isinstance(file, Path)) <= exact
        return [{"path": str(file), **_state(file, hashed)} for file in files]

    def outline(self) -> list[dict[str, Any]]:
        """Name and size of each file, and a hash of its ends. They are the same on every machine
        with a copy, and quick for any size.
        """
        if self.path in BUILTIN:
            return self.content()
        return [
            {"path": file.name, "bytes": file.stat().st_size, "ends": hash_ends(file)}
            if isinstance(file, Path)
            else {"path": str(file), **file.state()}
            for file in self.files()
        ]


@dataclass(frozen=True)
class Survey:
    """The result of one pass over the documents: 8 bytes a document, and a sample of bounded
    size.
    """

    documents: int
    duplicates: int
    bytes: int
    threshold: int  # documents with a hash up to it are held out, and above `above`
    sample: list[Document]  # documents with the largest hashes, which are never held out
    identities: np.ndarray  # [documents] uint64, ascending
    layouts: dict[str, TextLayout]
    joined: int = 0  # lines of files that were joined to those before them
    html: float = 0.0  # share of the documents that are written in HTML, in a sample
    above: int = -1
    held: int = 0  # characters that are held out

    def holds(self, identity: int) -> bool:
        """Whether a document is held out."""
        return self.above < identity <= self.threshold

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON, without the texts; `from_json` reads them."""
        names = ("documents", "duplicates", "bytes", "threshold", "above", "held", "joined", "html")
        numbers = {name: getattr(self, name) for name in names}
        return {
            **numbers,
            "layouts": {file: layout.settings() for file, layout in self.layouts.items()},
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any], identities: np.ndarray) -> Survey:
        """The survey that `to_json` wrote, with an empty sample."""
        layouts = {file: TextLayout(**settings) for file, settings in saved["layouts"].items()}
        return cls(**{**saved, "layouts": layouts}, sample=[], identities=identities)


@dataclass(frozen=True)
class Tally:
    """The documents of a text, or of a part of it, as one pass over them has counted them.

    Args:
        identities: [n] uint64, the hash of each document, in order.
        sizes: [n] uint64 characters.
        best: The documents with the largest hashes, each behind its (hash, -part, -number).
        layouts: The layout of each file.
        joined: Lines of files that were joined to those before them.
    """

    identities: np.ndarray
    sizes: np.ndarray
    best: Iterable[Ranked]
    layouts: dict[str, TextLayout]
    joined: int = 0


def survey_text(
    source: TextSource, *, valid_share: float, sample_bytes: int, say: Say = ignore_progress
) -> Survey:
    """Count, hash and sample the documents.

    Args:
        valid_share: share of the documents that are held out, those with the smallest hashes; so
            neither order nor tokenizer matters. `find_held_out` says where lengths matter.

    Raises:
        DataError: if there are no documents.
    """
    check_share(valid_share)
    tally = count_documents(source, sample_bytes=sample_bytes, say=say)
    return survey_tallies(source, [tally], valid_share=valid_share, sample_bytes=sample_bytes)


def check_share(valid_share: float) -> None:
    """ConfigError unless a share of documents can be held out."""
    if isinstance(valid_share, bool) or not 0 <= valid_share < 1:
        raise ConfigError("data.valid_share", valid_share, "0 <= share < 1")


def count_documents(source: TextSource, *, sample_bytes: int, say: Say = ignore_progress) -> Tally:
    """Read all documents once."""
    identities, sizes, size = array("Q"), array("Q"), 0
    layouts: dict[str, TextLayout] = {}
    largest = _Sample(sample_bytes)
    parts = joined = 0
    for document in source.documents(layouts):
        parts = parts + 1 if document.continues else 0
        if not document.continues:
            identities.append(document.identity)
            sizes.append(0)
        length = _length(document)
        sizes[-1] += length
        size += length
        joined += document.joined
        largest.add((document.identity, -parts, -len(identities), document))
        if len(identities) % 256 == 0:
            say("reading characters", size, 0)
    hashes, lengths = (np.frombuffer(each, np.uint64) for each in (identities, sizes))
    return Tally(hashes, lengths, largest.best, layouts, joined)


def survey_tallies(
    source: TextSource, tallies: Sequence[Tally], *, valid_share: float, sample_bytes: int
) -> Survey:
    """The survey of a text whose parts were counted apart, in their order; all arguments as for
    `survey_text`. The number of parts changes nothing.
    """
    if not sum(len(tally.identities) for tally in tallies):
        raise DataError(
            "there are no documents in it", file=source.path, fix="data.path=<files with text>"
        )
    largest, before = _Sample(sample_bytes), 0
    for tally in tallies:
        for identity, part, number, document in tally.best if sample_bytes else ():
            largest.add((identity, part, number - before, document))
        before += len(tally.identities)
    hashes = _join([tally.identities for tally in tallies])
    lengths = _join([tally.sizes for tally in tallies])
    above, threshold = find_held_out(hashes, lengths, valid_share)
    held = int(lengths[(hashes > above) & (hashes <= threshold)].sum())
    hashes.sort()  # in place: there may be a billion
    ranked = sorted(largest.best, key=lambda each: each[:3], reverse=True)
    sample = [each[3] for each in ranked if not above < each[0] <= threshold]
    return Survey(
        documents=len(hashes),
        duplicates=_repeats(hashes),
        bytes=int(lengths.sum()),
        threshold=threshold,
        sample=sample,
        identities=hashes,
        layouts={file: each for tally in tallies for file, each in tally.layouts.items()},
        joined=sum(tally.joined for tally in tallies),
        html=measure_html("\n".join(document.paragraphs) for document in sample),
        above=above,
        held=held,
    )


def _join(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


class _Sample:
    """The documents with the largest hashes, in so many bytes: the fewest that fill them."""

    def __init__(self, size: int) -> None:
        self.size, self._kept = size, 0
        self.best: list[Ranked] = []  # a heap: the smallest first

    def add(self, ranked: Ranked) -> None:
        """Add a document, and drop the smallest ones if the others fill the bytes."""
        if self.size and (self._kept < self.size or ranked[:3] > self.best[0][:3]):
            heapq.heappush(self.best, ranked)
            self._kept += _room(ranked[3])
            while (
                len(self.best) > 1 and self._kept - (least := _room(self.best[0][3])) >= self.size
            ):
                heapq.heappop(self.best)
                self._kept -= least


def find_held_out(hashes: np.ndarray, sizes: np.ndarray, share: float) -> tuple[int, int]:
    """(above, threshold): documents with a hash in between are held out, the largest included.

    They are `share` of the documents, but at least one is held out and one is not, if there are two
    different ones. More are held out if these documents have less than half of `share` of the text.
    The same holds for fewer than HELD characters and less than a TENTH of the text. If they have
    more than LARGEST of it, and more than twice `share`, the documents behind the long ones are
    held out.

    Args:
        hashes: [n] of the documents, in any order.
        sizes: [n] their characters.
    """
    first, last = int(hashes.min()), int(hashes.max())
    if share == 0 or first == last:
        return -1, -1
    threshold = min(max(int(share * _SPACE), first), last - 1)
    total = int(sizes.sum())
    held = int(sizes[hashes <= threshold].sum())
    least, most = max(min(HELD, TENTH * total), share * total / 2), max(LARGEST, 2 * share) * total
    if least <= held <= most:
        return -1, threshold
    order = np.argsort(hashes, kind="stable")
    different, starts = np.unique(hashes[order], return_index=True)
    found = _find_run(np.add.reduceat(sizes[order], starts), least, most)
    if found is None or (held < least and found[2] <= held):
        return -1, threshold
    begin, end, _ = found
    return int(different[begin - 1]) if begin else -1, int(different[end - 1])


def _find_run(sizes: np.ndarray, least: float, most: float) -> tuple[int, int, int] | None:
    """(begin, end, size) of the first run of documents with `least` characters and no more than
    `most`, else of the largest one; None where each document has more.
    """
    best, begin, size = None, 0, 0
    for end, own in enumerate(sizes.tolist(), 1):
        size += own
        while size > most:
            size -= int(sizes[begin])
            begin += 1
        if begin < end and (best is None or size > best[2]):
            best = begin, end, size
        if size >= least:
            return best
    return best


def _repeats(hashes: np.ndarray) -> int:
    """The number of the ascending `hashes` that equal the one before."""
    parts = (hashes[start : start + _STEP + 1] for start in range(0, len(hashes), _STEP))
    return sum(int((part[1:] == part[:-1]).sum()) for part in parts)


def _length(document: Document) -> int:
    return sum(len(paragraph) + 1 for paragraph in document.paragraphs)


def _room(document: Document) -> int:
    return max(_length(document), _LEAST)


def hash_ends(file: Path) -> str:
    """A hash of the first and the last bytes of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        digest.update(stream.read(_EDGE))
        stream.seek(max(0, file.stat().st_size - _EDGE))
        digest.update(stream.read(_EDGE))
    return digest.hexdigest()


def _state(file: Input, hashed: bool) -> dict[str, Any]:
    if not isinstance(file, Path):
        return file.state()
    size = {"bytes": file.stat().st_size}
    if not hashed:
        return {**size, "changed": file.stat().st_mtime_ns}
    with file.open("rb") as stream:
        return {**size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
