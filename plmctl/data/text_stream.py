"""Text that is tokenized as it is read: a window of it at a time, in memory, nothing on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from plmctl.core.errors import DataError
from plmctl.data.encoding import CHUNK, DocumentEncoder
from plmctl.data.shards import COUNTS, FORMAT, VERSION, Shards
from plmctl.data.split_writer import MemoryArray, SplitWriter
from plmctl.text.annotate import Wanted, choose_tracks
from plmctl.text.document import Document
from plmctl.text.reader import detect_layout, split_row
from plmctl.text.row_stream import count_lines, stream_rows
from plmctl.text.tabular import take_text
from plmctl.text.tokenizer import Tokenizer

TRAIN = "train"
_EDGE = 1 << 16  # bytes at both ends of a file that identify it


class StreamPlace(NamedTuple):
    """A position between two lines of the files, in one of the rounds in which all are read."""

    round: int = 0
    file: int = 0
    byte: int = 0


@dataclass(frozen=True)
class TextWindow:
    """The tokens of the text between two positions."""

    shards: Shards
    after: StreamPlace


class WindowShards(Shards):
    """The tokens of some text, as those of a split of a token directory, in memory.

    Args:
        arrays: The arrays, as their files would hold them.
        home: the folder of the tokenizer.
        given: The source of the text, for messages.
        identity: A hash of all that determines the tokens.
    """

    stored = False

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        tokenizer: Tokenizer,
        *,
        home: Path,
        given: str,
        identity: str,
    ) -> None:
        self.folder, self.split, self.given, self._identity = home, TRAIN, given, identity
        self.ids, self.sentences, self.documents = (
            arrays[name] for name in ("ids", "sentences", "documents")
        )
        self.counts = {name: arrays[name] for name in COUNTS}
        known = {"ids", "sentences", "documents", *COUNTS}
        self.tracks = {name: array for name, array in arrays.items() if name not in known}
        self.spans = {}
        about = {
            "fingerprint": tokenizer.fingerprint,
            "kind": tokenizer.kind,
            "size": tokenizer.vocab.size,
            "path": str(home),
        }
        self.manifest = {
            "format": FORMAT,
            "version": VERSION,
            "tokenizer": about,
            "settings": {"valid_share": 0},
            "splits": {TRAIN: {"tokens": len(self.ids)}, "valid": {"tokens": 0}},
            "tracks": list(self.tracks),
        }

    @property
    def fingerprint(self) -> str:
        return self._identity


class TextStream:
    """Files of JSON lines, read in rounds, a window of about `size` characters at a time.

    A window ends behind a row. If less than half a window would remain until the end of the round,
    it takes the rest, too. So every row is read once in a round.

    Args:
        files: in the order of reading.
        home: the folder of the tokenizer.
        field: The field of a row that holds its text.
        lines: The kind of a line of the text.
        segment: Chinese words, as in a token directory.
        size: characters of a window.
    """

    setting = ("data.streaming", True)

    def __init__(
        self,
        files: Sequence[Path],
        home: Path,
        *,
        field: str,
        lines: str,
        segment: str | None,
        size: int,
    ) -> None:
        self.files, self.home, self.size, self._field = list(files), home, size, field
        self.tokenizer = Tokenizer.load(home)
        wanted = Wanted(segment)
        self._kinds = {"ids": self.tokenizer.dtype, **choose_tracks(self.tokenizer, wanted)}
        self._encode = DocumentEncoder(self.tokenizer, wanted)
        self._layouts = [detect_layout(file, field=field, lines=lines) for file in self.files]
        self.bytes = [file.stat().st_size for file in self.files]
        self._settings = (field, lines, segment, size)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that determines the tokens: both ends of each file and its size, the
        tokenizer, the settings.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.tokenizer.fingerprint, self.bytes, self._settings)).encode())
        for file, size in zip(self.files, self.bytes, strict=True):
            with file.open("rb") as stream:
                digest.update(stream.read(_EDGE))
                stream.seek(max(0, size - _EDGE))
                digest.update(stream.read(_EDGE))
        return digest.hexdigest()

    @cached_property
    def first(self) -> TextWindow:
        """The first window of every round."""
        return self._read(StreamPlace())

    def read(self, place: StreamPlace) -> TextWindow:
        """The window that begins at a position."""
        if place[1:] == (0, 0):
            end = self.first.after
            return TextWindow(self.first.shards, end._replace(round=place.round + end.round))
        return self._read(place)

    def count_left(self, place: StreamPlace) -> int:
        """The bytes from a position to the end of its round."""
        return sum(self.bytes[place.file :]) - place.byte

    def _read(self, place: StreamPlace) -> TextWindow:
        writer = SplitWriter(None, TRAIN, self._kinds, ())
        documents, waiting, taken, after = list[Document](), 0, 0, place
        for row, after in self._rows(place):
            documents += row
            characters = sum(len(text) for document in row for text in document.paragraphs)
            waiting, taken = waiting + characters, taken + characters
            if waiting >= CHUNK:
                writer.append(self._encode(documents))
                documents, waiting = [], 0
            left = self.count_left(after)
            if taken >= self.size and 2 * left >= self.count_left(place) - left:
                break
        else:
            after = StreamPlace(place.round + 1)
        if documents:
            writer.append(self._encode(documents))
        writer.close()
        arrays = {
            name: array.join()
            for name, array in writer.arrays.items()
            if isinstance(array, MemoryArray)
        }
        identity = f"{self.fingerprint}-{place.file}-{place.byte}"
        given = f"{self.files[place.file]}, from byte {place.byte:,} on"
        shards = WindowShards(
            arrays, self.tokenizer, home=self.home, given=given, identity=identity
        )
        return TextWindow(shards, after)

    def _rows(self, place: StreamPlace) -> Iterator[tuple[list[Document], StreamPlace]]:
        """(the document of a row, in parts if it is long; the position behind it) of every row from
        a position to the end of the round.
        """
        for number in range(place.file, len(self.files)):
            file, begin = self.files[number], place.byte if number == place.file else 0
            for row, start, end in stream_rows(file, begin):
                try:
                    text = take_text(row, self._field, file, 0)
                except DataError:  # again, with the number of the line
                    text = take_text(row, self._field, file, count_lines(file, start))
                parts = split_row(text, f"{file}, byte {start:,}", self._layouts[number])
                yield list(parts), StreamPlace(place.round, number, end)
