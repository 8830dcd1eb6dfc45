"""Text to token directories: written under another name, renamed when complete, and kept by content for raw text."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from plmctl.data.arrays import ArrayWriter
from plmctl.data.encoding import COLUMNS, Encoded, Labelled, cores, encoded
from plmctl.data.shards import COUNTS, FORMAT, MANIFEST, SPLITS, VERSION, is_tokens, read_manifest
from plmctl.data.survey import Say, Source, Survey, look, quiet
from plmctl.errors import DataError, UsageError
from plmctl.text import annotate
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import Recipe

_EXACT = 1 << 28  # bytes of raw text that are hashed on each start; of more, size and time of change count


@dataclass(frozen=True)
class Job:
    """All that decides the tokens: text, tokenizer, and what is held out."""

    source: Source
    recipe: Recipe  # with `path`, the tokenizer there
    valid: Source | None = None  # held-out text of its own
    valid_share: float = 0.01
    segment: str | None = None
    processes: int | None = None  # changes nothing but the time
    say: Say = field(default=quiet, compare=False)

    def settings(self) -> dict[str, Any]:
        return {
            "field": self.source.field, "lines": self.source.lines, "segment": self.segment,
            "valid_share": 0 if self.valid else self.valid_share, "tokenizer": self.recipe.settings(),
        }  # fmt: skip


def tokenize(job: Job, out: str | os.PathLike[str]) -> dict[str, Any]:
    """Write the token directory `out` and return its manifest. An earlier token directory there is replaced."""
    place = Path(out).expanduser()
    _refuse(place)
    with _beside(place) as partial:
        manifest = _write(job, partial)
        if place.exists():
            old = place.with_name(f".{place.name}.{uuid4().hex[:8]}.old")
            place.rename(old)
            partial.rename(place)
            shutil.rmtree(old, ignore_errors=True)
        else:
            partial.rename(place)
    return manifest


def open_or_tokenize(job: Job, *, cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """The token directory of `job`: its path if that is one already, else the cached one, else a new one in the cache."""
    if is_tokens(job.source.path):
        return Path(job.source.path).expanduser()
    place = cache_folder(cache_dir) / _key(job)
    if is_tokens(place):
        with contextlib.suppress(DataError):
            read_manifest(place)
            return place
    with _beside(place) as partial:
        _write(job, partial)
        try:
            partial.rename(place)
        except OSError:
            if not is_tokens(place):  # another process was first, with the same content
                raise
    return place


def cache_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """`given`, else PLMCTL_CACHE, else plmctl/ in the user's cache folder."""
    if given or (given := os.environ.get("PLMCTL_CACHE")):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plmctl"


def _key(job: Job) -> str:
    tokenizer = Tokenizer.load(job.recipe.path).fingerprint if job.recipe.path else None
    texts = [source.content(_EXACT) for source in (job.source, job.valid) if source]
    for entry in (entry for content in texts for entry in content):
        if "sha256" in entry:
            entry["path"] = Path(entry["path"]).name  # the same content elsewhere has the same tokens
    text = json.dumps([VERSION, texts, job.settings(), tokenizer], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _write(job: Job, folder: Path) -> dict[str, Any]:
    given = Tokenizer.load(job.recipe.path) if job.recipe.path else None
    sample_bytes = 0 if given else job.recipe.sample_bytes
    survey = look(job.source, valid_share=0 if job.valid else job.valid_share, sample_bytes=sample_bytes, say=job.say)
    held = look(job.valid, valid_share=0, sample_bytes=0, say=job.say) if job.valid else None
    if given is None:
        job.say("training the tokenizer", 0, 0)
    tokenizer = given or Tokenizer.learn(_texts(survey, job.recipe), job.recipe)
    tokenizer.save(folder / "tokenizer")
    tracks = annotate.names(tokenizer, job.segment)
    splits = {name: _Split(folder, name, tokenizer.dtype, tracks) for name in SPLITS}
    counted = _Sorted(survey, held)
    total, done = survey.bytes + (held.bytes if held else 0), 0
    for chunk in encoded(counted.documents(job), folder / "tokenizer", job.segment, job.processes or cores()):
        for name, found in chunk.items():
            splits[name].append(found)
            done += int(found.documents[:, COLUMNS.index("characters")].sum())
        job.say("tokenizing", done, total)
    entries = {name: split.close() for name, split in splits.items()}
    if not entries["train"]["tokens"]:
        raise DataError("no text is left to train on", file=job.source.path, fix="more text, or a smaller data.valid_share")
    manifest = _manifest(job, tokenizer, entries, survey, held)
    manifest |= {"tracks": list(tracks), "duplicates": survey.duplicates, "dropped_from_train": counted.dropped}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return manifest


class _Sorted:
    """The documents of both splits in order, each with its split; train documents that are held out elsewhere are dropped."""

    def __init__(self, survey: Survey, held: Survey | None) -> None:
        self._survey = survey
        self._held = set(held.identities.tolist()) if held else frozenset[int]()
        self.dropped = 0

    def documents(self, job: Job) -> Iterator[Labelled]:
        for document in job.source.documents():
            if document.identity in self._held:
                self.dropped += not document.continues
            else:
                yield document, "valid" if document.identity <= self._survey.threshold else "train"
        for document in job.valid.documents() if job.valid else ():
            yield document, "valid"


class _Split:
    """The growing arrays of one split."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any], tracks: Sequence[str]) -> None:
        kinds: dict[str, Any] = {
            "ids": dtype,
            **dict.fromkeys(("sentences", "documents", *COUNTS), np.int64),
            **dict.fromkeys(tracks, np.bool_),
        }
        self._arrays = {array: ArrayWriter(folder / f"{name}.{array}.npy", kind) for array, kind in kinds.items()}
        self._ends = {"sentences": 0, "documents": 0}
        for column in self._ends:
            self._arrays[column].append(np.zeros(1, np.int64))
        self._open = np.zeros((0, len(COLUMNS)), np.int64)  # the last document: its next part may still come
        self._totals = dict.fromkeys(COUNTS, 0)

    def append(self, found: Encoded) -> None:
        self._arrays["ids"].append(found.ids)
        self._offsets("sentences", found.lengths)
        for name, track in found.tracks.items():
            self._arrays[name].append(track)
        rows = np.concatenate([self._open, found.documents])
        if len(rows):
            begins = np.flatnonzero(np.append(True, rows[1:, COLUMNS.index("new")] > 0))
            rows = np.add.reduceat(rows, begins)
        self._documents(rows[:-1])
        self._open = rows[-1:]

    def close(self) -> dict[str, Any]:
        self._documents(self._open)
        entries = {name: array.close() for name, array in self._arrays.items()}
        numbers = {"documents": entries["bytes"]["length"], "sentences": entries["sentences"]["length"] - 1}
        return {**numbers, "tokens": entries["ids"]["length"], **self._totals, "arrays": entries}

    def _documents(self, rows: np.ndarray) -> None:
        kept = rows[rows[:, COLUMNS.index("tokens")] > 0]
        self._offsets("documents", kept[:, COLUMNS.index("sentences")])
        for name in self._totals:
            column = kept[:, COLUMNS.index(name)]
            self._arrays[name].append(column)
            self._totals[name] += int(column.sum())

    def _offsets(self, name: str, lengths: np.ndarray) -> None:
        ends = self._ends[name] + np.cumsum(lengths)
        self._arrays[name].append(ends)
        if len(ends):
            self._ends[name] = int(ends[-1])


def _manifest(job: Job, tokenizer: Tokenizer, entries: dict[str, Any], survey: Survey, held: Survey | None) -> dict[str, Any]:
    layouts = {**survey.layouts, **(held.layouts if held else {})}
    files = [entry for source in (job.source, job.valid) if source for entry in source.content()]
    for entry in files:
        if entry["path"] in layouts:
            entry |= layouts[entry["path"]].settings()
    origin = {"path": str(job.recipe.path)} if job.recipe.path else {}
    known = {"fingerprint": tokenizer.fingerprint, "kind": tokenizer.kind, "size": tokenizer.vocab.size, **origin}
    return {
        "format": FORMAT,
        "version": VERSION,
        "tokenizer": known,
        "settings": job.settings(),
        "files": files,
        "splits": entries,
    }


def _texts(survey: Survey, recipe: Recipe) -> Iterator[str]:
    """What a tokenizer is trained on; a sample may hold one document that is larger than it."""
    room = recipe.sample_bytes
    for document in survey.sample:
        for text in document.segments if recipe.kind in ("byte_bpe", "char") else document.sentences:
            if room <= 0:
                return
            room -= len(text)
            yield text


def _refuse(place: Path) -> None:
    if place.exists() and not place.is_dir():
        raise UsageError(f"out={str(place)!r}: is a file\n  fix: out=<new folder>")
    if place.is_dir() and any(place.iterdir()) and not is_tokens(place):
        raise UsageError(f"out={str(place)!r}: is not empty and holds no tokens of plmctl\n  fix: out=<new folder>")


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A new folder beside `place`, gone in the end unless it was renamed; a folder that cannot be written is explained."""
    partial = place.with_name(f".{place.name}.{uuid4().hex[:8]}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
    except OSError as error:
        raise DataError(
            f"cannot be written ({error.strerror})",
            file=place,
            fix="free some space, or give another folder (out=, data.cache_dir=)",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
