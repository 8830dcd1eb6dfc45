"""Token directories: memory-mapped ids of a split with its sentences, documents and tracks, and the
manifest that describes them.

    manifest.json  tokenizer/
    <split>.ids.npy  <split>.sentences.npy  <split>.documents.npy  <split>.<track>.npy
    <split>.<spans>.start.npy  <split>.<spans>.length.npy  <split>.<spans>.id.npy
    <split>.bytes.npy  <split>.characters.npy  <split>.words.npy

The last three hold one number a document, for bits per byte.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Count, Whole
from plmctl.storage.arrays import hash_array
from plmctl.storage.paths import inside
from plmctl.storage.reading import read_array, read_json
from plmctl.storage.remote import is_url
from plmctl.text.tokenizer import META, Tokenizer

MANIFEST = "manifest.json"
KEY = "shards"  # in the manifest: {split: the files of its shards}
FORMAT, VERSION = "plmctl tokens", 1
SPLITS = ("train", "valid")
COUNTS = ("bytes", "characters", "words")
AGAIN = "tokenize the text again"
DAMAGED = "a damaged token directory"


class _Array(TypedDict):
    length: Whole
    dtype: str
    sha256: str


class _Split(TypedDict):
    tokens: Whole
    documents: Whole
    bytes: Whole
    arrays: dict[str, _Array]


class _Tokenizer(TypedDict):
    fingerprint: str
    kind: str
    size: Count


class _Manifest(TypedDict):
    """The part of a manifest that is read or printed."""

    format: str
    version: Whole
    tokenizer: _Tokenizer
    splits: dict[str, _Split]
    tracks: list[str]
    spans: NotRequired[list[str]]
    pairs: NotRequired[bool]


class SpanTrack(NamedTuple):
    """Marked stretches of the tokens of a split, in the order of `start`; stretches of one track do
    not overlap.
    """

    start: np.ndarray  # [m] int64 token
    length: np.ndarray  # [m] int32 tokens, at least 1
    id: np.ndarray  # [m] int64 what is mentioned; 0 if the file gives no id


SPAN_KINDS = {"start": np.dtype(np.int64), "length": np.dtype(np.int32), "id": np.dtype(np.int64)}


class Shards:
    """One split of a token directory, memory-mapped.

    `ids [N]` is uint16 or uint32. Sentence s is `ids[sentences[s] : sentences[s + 1]]`, and
    document d has the sentences `documents[d] .. documents[d + 1]`. `tracks[name] [N]` are parallel
    to the ids; `counts[name] [D]` are counts of the documents' text.
    """

    stored = True  # whether it is on disk, so that plans may be stored next to it
    ids: np.ndarray
    sentences: np.ndarray  # [S + 1] int64 token offsets
    documents: np.ndarray  # [D + 1] int64 sentence offsets

    def __init__(self, folder: Path, split: str, manifest: Mapping[str, Any]) -> None:
        self.folder, self.split, self.manifest = folder, split, manifest
        self.given: object = folder
        self._stated: dict[str, dict[str, Any]] = manifest["splits"][split]["arrays"]
        self.ids, self.sentences, self.documents = (
            self._map(name) for name in ("ids", "sentences", "documents")
        )
        self.tracks: dict[str, np.ndarray] = {name: self._map(name) for name in manifest["tracks"]}
        self.spans: dict[str, SpanTrack] = {
            name: self._map_spans(name) for name in manifest.get("spans", ())
        }
        self.counts: dict[str, np.ndarray] = {name: self._map(name) for name in COUNTS}
        self._check_lengths()
        self._check_order()

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        split: str = "train",
        *,
        tokenizer: Tokenizer | None = None,
        given: object = None,
    ) -> Shards:
        """Open the split of a token directory.

        Args:
            tokenizer: The tokenizer with which the tokens must have been made.
            given: the path or paths of the text as the user gave them, for messages; None: the
                directory.

        Raises:
            DataError: if the directory is damaged, or of another tokenizer.
        """
        path = Path(folder).expanduser()
        manifest = read_manifest(path)
        if split not in SPLITS:
            raise DataError(
                f"there is no split '{split}'; there are {', '.join(SPLITS)}", file=path
            )
        if KEY in manifest:
            what = "its tokens are in shards, which plmctl pretrain alone reads"
            fix = "plmctl tokenize data.path=<text> out=<dir>, without shard_tokens"
            raise DataError(what, file=path, fix=fix)
        stated, actual = manifest["tokenizer"]["fingerprint"], _fingerprint_in(path)
        if stated != actual:
            fix = "tokenize the text again, or put the right tokenizer/ back"
            raise DataError(
                f"its tokenizer/ ({actual}) is not the one its tokens were made with ({stated})",
                file=path,
                fix=fix,
            )
        if tokenizer is not None and tokenizer.fingerprint != stated:
            raise DataError(
                f"tokens of another tokenizer: {stated}, the one given is {tokenizer.fingerprint}",
                file=path,
                fix=f"use its tokenizer ({spell_setting('tokenizer.path', path)}),"
                " or tokenize the text again",
            )
        try:
            shards = cls(path, split, manifest)
            shards.given = ", ".join(map(str, given)) if isinstance(given, tuple) else given or path
            return shards
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{DAMAGED} ({error})", file=path, fix=AGAIN) from error

    @property
    def pairs(self) -> bool:
        """Whether each document is a text and its translation: two sentences, source and target."""
        return bool(self.manifest.get("pairs", False))

    @property
    def vocab_size(self) -> int:
        """The number of ids of its tokenizer."""
        return int(self.manifest["tokenizer"]["size"])

    def first(self, share: float) -> Shards:
        """The first documents, as few as are needed for `share` of the tokens."""
        if share == 1 or not len(self.ids):
            return self
        ends = self.sentences[self.documents]
        documents = int(np.searchsorted(ends, math.ceil(share * len(self.ids))))
        sentences, tokens = int(self.documents[documents]), int(ends[documents])
        part_of_split = copy.copy(self)
        part_of_split.ids = self.ids[:tokens]
        part_of_split.sentences = self.sentences[: sentences + 1]
        part_of_split.documents = self.documents[: documents + 1]
        part_of_split.tracks = {name: track[:tokens] for name, track in self.tracks.items()}
        marks = {
            name: int(np.searchsorted(span.start, tokens)) for name, span in self.spans.items()
        }
        part_of_split.spans = {
            name: SpanTrack(*(part[: marks[name]] for part in span))
            for name, span in self.spans.items()
        }
        part_of_split.counts = {name: count[:documents] for name, count in self.counts.items()}
        return part_of_split

    @property
    def fingerprint(self) -> str:
        """A hash of the split's arrays and of the tokenizer: the same tokens have the same hash,
        wherever they are.
        """
        stated = {name: entry["sha256"] for name, entry in self._stated.items()}
        complete = len(self.ids) == self._stated["ids"]["length"]
        part = [] if complete else [len(self.ids)]
        text = json.dumps(
            [self.manifest["tokenizer"]["fingerprint"], self.split, stated, *part], sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def verify(self) -> None:
        """Read every array and compare it with the manifest's hash.

        Raises:
            DataError: for the first that differs.
        """
        for name, entry in self._stated.items():
            if (actual := hash_array(self._map(name))) != entry["sha256"]:
                message = (
                    f"its content has changed: sha256 {entry['sha256'][:16]}... in the manifest,"
                    f" {actual[:16]}... in the file"
                )
                raise DataError(message, file=self._file(name), fix=AGAIN)

    def list_stated_hashes(self) -> dict[Path, str]:
        """The files of the arrays, each with the hash in the manifest."""
        return {self._file(name): str(entry["sha256"]) for name, entry in self._stated.items()}

    def _file(self, name: str) -> Path:
        return inside(
            self.folder,
            f"{self.split}.{name}.npy",
            lambda why: DataError(
                f"a damaged manifest, its array {name!r} {why}",
                file=self.folder / MANIFEST,
                fix=AGAIN,
            ),
        )

    def _map_spans(self, name: str) -> SpanTrack:
        track = SpanTrack(*(self._map(f"{name}.{part}") for part in SpanTrack._fields))
        if len({len(part) for part in track}) > 1:
            raise ValueError(f"{self.split}.{name}.*.npy have different lengths")
        after = track.start + track.length
        if not _ascending(
            np.concatenate([[0], np.stack([track.start, after], 1).ravel(), [len(self.ids)]])
        ):
            raise ValueError(
                f"{self.split}.{name}.*.npy: marks that overlap, or lie outside the tokens"
            )
        return track

    def _map(self, name: str) -> np.ndarray:
        stated = self._stated[name]
        return read_array(
            self._file(name),
            dtype=stated["dtype"],
            length=stated["length"],
            what=DAMAGED,
            fix=AGAIN,
        )

    def _check_lengths(self) -> None:
        """Raise DataError unless every token has its tracks, and every document its counts."""
        lengths = dict.fromkeys(self.tracks, len(self.ids)) | dict.fromkeys(
            self.counts, len(self.documents) - 1
        )
        for name, length in lengths.items():
            if (stated := self._stated[name]["length"]) != length:
                problem = f"{DAMAGED}: it has {stated} values, not {length}"
                raise DataError(problem, file=self._file(name), fix=AGAIN)

    def _check_order(self) -> None:
        """Raise DataError unless offsets begin at 0, never decrease, and end where the arrays that
        they point into end.
        """
        for name, offsets, last in (
            ("sentences", self.sentences, len(self.ids)),
            ("documents", self.documents, len(self.sentences) - 1),
        ):
            ends = [int(value) for value in (*offsets[:1], *offsets[-1:])]
            if ends != [0, last]:
                problem = f"it goes from {ends[0]} to {ends[1]}" if ends else "it is empty"
                raise DataError(
                    f"{DAMAGED}: {problem}, not from 0 to {last}", file=self._file(name), fix=AGAIN
                )
            if not _ascending(offsets):
                raise DataError(
                    f"{DAMAGED}: its offsets are not in order", file=self._file(name), fix=AGAIN
                )


def is_tokens(path: object) -> bool:
    """Whether `path` is a token directory, damaged or not, or a URL, which names nothing else."""
    if is_url(path):
        return True
    if not isinstance(path, (str, os.PathLike)):
        return False
    try:
        return FORMAT in (Path(path).expanduser() / MANIFEST).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a token directory.

    Raises:
        DataError: if it is missing, or cannot be used.
    """
    file = folder / MANIFEST
    if not file.is_file():
        problem = "not a token directory (no manifest.json)"
        raise DataError(problem, file=folder, fix="plmctl tokenize data.path=<text> out=<dir>")
    try:
        manifest: dict[str, Any] = read_json(file, _Manifest, fix=AGAIN)
    except DataError as error:
        raise DataError(f"a damaged manifest: {error.message}", file=file, fix=AGAIN) from error
    if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
        what = f"format {manifest['format']!r} {manifest['version']} is unknown to this version"
        raise DataError(what, file=file, fix="update plmctl, or tokenize again")
    for split in SPLITS:
        arrays = manifest["splits"].get(split, {}).get("arrays", {})
        spans = [
            f"{name}.{part}" for name in manifest.get("spans", ()) for part in SpanTrack._fields
        ]
        needed = ("ids", "sentences", "documents", *COUNTS, *manifest["tracks"], *spans)
        if missing := [name for name in needed if name not in arrays]:
            raise DataError(
                f"a damaged manifest: {split} has no array '{missing[0]}'", file=file, fix=AGAIN
            )
    return manifest


def _ascending(values: np.ndarray) -> bool:
    return bool(np.all(values[1:] >= values[:-1]))


def _fingerprint_in(folder: Path) -> str:
    try:
        return str(read_json(folder / "tokenizer" / META, dict[str, Any])["fingerprint"])
    except (DataError, KeyError) as error:
        raise DataError("its tokenizer/ is missing or damaged", file=folder, fix=AGAIN) from error
