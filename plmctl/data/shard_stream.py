"""The shards of a token directory as a stream of windows. Each window has one shard or a few, and
each round has a new order.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Protocol

import numpy as np

from plmctl.core.draws import Draws
from plmctl.core.errors import DataError
from plmctl.data.shard_files import FileShards, ShardFile, map_shard
from plmctl.data.text_stream import StreamPlace, TextWindow
from plmctl.text.tokenizer import Tokenizer

AHEAD = 2  # shards that are fetched before they are needed
TRIES = 5


class Origin(Protocol):
    """The origin of shards."""

    def __call__(self, entry: ShardFile) -> Path:
        """The file of a shard, on this machine."""

    def check(self, shards: FileShards) -> None:
        """DataError unless the content of the files is that of the manifest."""


class ShardStream:
    """The shards of a split, read in rounds, whole shards at a time. A hash of the tokens and the
    round decide the order.

    Args:
        home: The folder of the manifest and of the tokenizer.
        manifest: The manifest.
        shards: The shards to read.
        source: Brings a shard to this machine, and checks it.
        size: Characters of a window, which ends with a shard.
        given: The source of the shards, for messages.
        ahead: The number of shards that are fetched before they are needed.
    """

    setting = ("data.path", "tokens in one piece")

    def __init__(
        self,
        home: Path,
        manifest: Mapping[str, Any],
        shards: list[ShardFile],
        source: Origin,
        *,
        size: int,
        given: str,
        ahead: int = 0,
    ) -> None:
        self.home, self.size, self.files = home, size, [given] * len(shards)
        self.tokenizer = Tokenizer.load(home)
        self._manifest, self._shards, self._given = manifest, shards, given
        self._source, self._count_ahead, self._ahead = source, ahead, _Ahead(source)
        self.bytes = [entry.bytes for entry in shards]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all tokens."""
        known = [self.tokenizer.fingerprint, self.size, [entry.sha256 for entry in self._shards]]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]

    @cached_property
    def first(self) -> TextWindow:
        """The first window of the first round."""
        return self._read(StreamPlace())

    def read(self, place: StreamPlace) -> TextWindow:
        """The window that begins at a position; its `file` counts shards in the order of the
        round.
        """
        return self.first if place == StreamPlace() else self._read(place)

    def order(self, round: int) -> np.ndarray:
        """[n]: the numbers of the shards in the order of a round."""
        seed = int(self.fingerprint[:8], 16)
        words = Draws(seed, round).words(np.arange(len(self._shards)), "shards", 1)
        return np.argsort(words[:, 0], kind="stable")

    def count_left(self, place: StreamPlace) -> int:
        """The bytes from a position to the end of its round."""
        return sum(self._shards[n].bytes for n in self.order(place.round)[place.file :])

    def _read(self, place: StreamPlace) -> TextWindow:
        order = self.order(place.round)
        last, characters = place.file, 0
        while last < len(order) and (last == place.file or characters < self.size):
            characters += self._shards[order[last]].characters
            last += 1
        after = (
            StreamPlace(place.round, last) if last < len(order) else StreamPlace(place.round + 1)
        )
        chosen = [self._shards[n] for n in order[place.file : last]]
        files = [self._open(entry) for entry in chosen]
        if self._count_ahead > 0:
            following = [*order[last:], *self.order(place.round + 1)][: self._count_ahead]
            self._ahead.want([self._shards[n] for n in following])
        given = f"{self._given}/{chosen[0].file}"
        shards = FileShards(
            self.home, "train", self._manifest, files, given, beside=self.fingerprint
        )
        self._source.check(shards)
        return TextWindow(shards, after)

    def _open(self, entry: ShardFile) -> tuple[Path, ShardFile, dict[str, np.ndarray]]:
        """A file and its arrays; another process may make room of it in between."""
        for _ in range(TRIES):
            file = self._source(entry)
            with contextlib.suppress(FileNotFoundError):
                return file, entry, map_shard(file, entry)
        what, fix = "there is no such file", "copy all files of the folder, or tokenize again"
        raise DataError(what, file=file, fix=fix)


class _Ahead:
    """A thread that fetches what will be needed; its errors are those of the read that needs it."""

    def __init__(self, fetch: Origin) -> None:
        self._fetch = fetch
        self._wanted: Queue[list[ShardFile]] = Queue()
        self._thread: threading.Thread | None = None

    def want(self, entries: list[ShardFile]) -> None:
        """Fetch these shards in the background, and no earlier ones."""
        while not self._wanted.empty():
            with contextlib.suppress(Empty):
                self._wanted.get_nowait()
        self._wanted.put(entries)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="plmctl-fetch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            for entry in self._wanted.get():
                with contextlib.suppress(Exception):
                    self._fetch(entry)
