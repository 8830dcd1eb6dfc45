"""Token directories of any size: the arrays of a split are cut into files of bounded size, at the
ends of documents.

    manifest.json  tokenizer/
    train-00000.safetensors  train-00001.safetensors  ...  valid-00000.safetensors

Each file holds the arrays of its documents under their names, with offsets from its own beginning.
The manifest has their sizes and hashes, so that no other file is read to open thousands of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plmctl.core.errors import DataError
from plmctl.data.shards import COUNTS, DAMAGED, KEY, SPLITS, Shards, SpanTrack, read_manifest
from plmctl.storage.atomic import write_bytes
from plmctl.storage.gate import admit
from plmctl.storage.paths import inside
from plmctl.storage.resumable import hash_file

FILES = "files_of_tokenizer"  # in the manifest: {path: [bytes, sha256]}
END = ".safetensors"


class ShardFile(NamedTuple):
    """A file of a split, as the manifest states it."""

    file: str
    bytes: int
    sha256: str
    tokens: int
    characters: int


def list_shards(manifest: Mapping[str, Any], split: str) -> list[ShardFile]:
    """The files of a split; none where it lies in one piece."""
    return [ShardFile(*entry) for entry in manifest.get(KEY, {}).get(split, ())]


def cut_shards(folder: Path, manifest: dict[str, Any], tokens: int) -> None:
    """Cut the arrays of a token directory into files, and remove them.

    Args:
        folder: The folder of the arrays and of the tokenizer.
        manifest: Its manifest, which receives the files.
        tokens: The tokens of a file; one has more only where a single document does. Held-out text
            is one file.
    """
    files: dict[str, list[ShardFile]] = {}
    for split in SPLITS:
        shards = Shards(folder, split, manifest)
        ends = shards.sentences[shards.documents]
        first, files[split] = 0, []
        while first < len(ends) - 1:
            last = int(np.searchsorted(ends, ends[first] + tokens, side="right")) - 1
            last = len(ends) - 1 if split != SPLITS[0] else max(first + 1, last)
            name = f"{split}-{len(files[split]):05}{END}"
            files[split].append(_write(folder / name, _slice(shards, first, last)))
            first = last
        for file in shards.list_stated_hashes():
            admit(file).unlink()
    manifest[KEY] = {split: [list(each) for each in own] for split, own in files.items()}
    manifest[FILES] = {
        str(file.relative_to(folder)): [file.stat().st_size, hash_file(file)]
        for file in sorted((folder / "tokenizer").rglob("*"))
        if file.is_file()
    }


def _slice(shards: Shards, first: int, last: int) -> dict[str, np.ndarray]:
    """The arrays of some documents."""
    sentences = slice(int(shards.documents[first]), int(shards.documents[last]) + 1)
    offsets = shards.sentences[sentences]
    begin, end = int(offsets[0]), int(offsets[-1])
    arrays = {
        "ids": shards.ids[begin:end],
        "sentences": offsets - begin,
        "documents": shards.documents[first : last + 1] - sentences.start,
        **{name: track[begin:end] for name, track in shards.tracks.items()},
        **{name: count[first:last] for name, count in shards.counts.items()},
    }
    for name, span in shards.spans.items():
        marks = slice(*np.searchsorted(span.start, [begin, end]).tolist())
        own = SpanTrack(*(part[marks] for part in span))
        own = own._replace(start=own.start - begin)
        arrays |= {f"{name}.{part}": array for part, array in own._asdict().items()}
    return arrays


def _write(file: Path, arrays: Mapping[str, np.ndarray]) -> ShardFile:
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    write_bytes(file, content)
    characters = int(arrays["characters"].sum())
    digest = hashlib.sha256(content).hexdigest()
    return ShardFile(file.name, len(content), digest, len(arrays["ids"]), characters)


class FileShards(Shards):
    """The tokens of files of a split, one behind the other, as those of a token directory.

    Those of one file stay in it; those of several are joined in memory.

    Args:
        home: The folder of the manifest and of the tokenizer.
        split: The split.
        manifest: The manifest.
        files: The path of each file, its entry in the manifest, and its arrays.
        given: The source of the tokens, for messages.
        beside: A hash of further tokens that a run reads.
    """

    stored = False

    def __init__(
        self,
        home: Path,
        split: str,
        manifest: Mapping[str, Any],
        files: Sequence[tuple[Path, ShardFile, dict[str, np.ndarray]]],
        given: object,
        beside: str = "",
    ) -> None:
        self._beside = beside
        self.folder, self.split, self.manifest, self.given = home, split, manifest, given
        self._files = {file: entry for file, entry, _ in files}
        arrays = _join([each for _, _, each in files])
        self.ids, self.sentences, self.documents = (
            arrays[name] for name in ("ids", "sentences", "documents")
        )
        self.tracks = {name: arrays[name] for name in manifest["tracks"]}
        self.counts = {name: arrays[name] for name in COUNTS}
        self.spans = {
            name: SpanTrack(*(arrays[f"{name}.{part}"] for part in SpanTrack._fields))
            for name in manifest.get("spans", ())
        }

    @property
    def fingerprint(self) -> str:
        known = [self.manifest["tokenizer"]["fingerprint"], self.split, len(self.ids), self._beside]
        text = json.dumps([*known, *(entry.sha256 for entry in self._files.values())])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def verify(self) -> None:
        """Read each file and compare it with the manifest's hash."""
        for file, entry in self._files.items():
            if (actual := hash_file(file)) != entry.sha256:
                what = (
                    f"its content has changed: sha256 {entry.sha256[:16]}... in the manifest,"
                    f" {actual[:16]}... in the file"
                )
                raise DataError(what, file=file, fix="copy it again, or tokenize the text again")

    def list_stated_hashes(self) -> dict[Path, str]:
        """The files, each with the hash in the manifest."""
        return {file: entry.sha256 for file, entry in self._files.items()}


def open_beginning(folder: Path) -> Shards:
    """The training text of a token directory, or its first shard."""
    manifest = read_manifest(folder)
    if not (shards := list_shards(manifest, SPLITS[0])):
        return Shards.open(folder)
    file = place_shard(folder, shards[0])
    files = [(file, shards[0], map_shard(file, shards[0]))]
    return FileShards(folder, SPLITS[0], manifest, files, file)


def place_shard(home: Path, entry: ShardFile) -> Path:
    """The path of a file in its folder."""

    def refuse(why: str) -> DataError:
        return DataError(f"a damaged manifest, its file {entry.file!r} {why}", file=home)

    return inside(home, entry.file, refuse)


def map_shard(file: Path, entry: ShardFile) -> dict[str, np.ndarray]:
    """The arrays of a file, mapped into memory; FileNotFoundError where it is gone."""
    fix = "copy it again, or tokenize the text again"
    try:
        if (size := file.stat().st_size) != entry.bytes:
            what = f"{DAMAGED}: it has {size:,} bytes, not {entry.bytes:,}"
            raise DataError(what, file=file, fix=fix)
        content = np.memmap(file, np.uint8, "r")
        start = 8 + int(content[:8].view("<u8")[0])
        head = json.loads(bytes(content[8:start]))
        arrays = {}
        for name, about in head.items():
            begin, end = (start + offset for offset in about["data_offsets"])
            kind = f"<{about['dtype'][0].lower()}{int(about['dtype'][1:]) // 8}"
            arrays[name] = np.asarray(content[begin:end].view(kind))
        ends = [arrays["sentences"][-1], arrays["documents"][-1]]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", file=file, fix=fix) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise DataError(f"{DAMAGED} ({error})", file=file, fix=fix) from error
    if ends != [len(arrays["ids"]), len(arrays["sentences"]) - 1]:
        raise DataError(f"{DAMAGED}: its offsets are those of another", file=file, fix=fix)
    return arrays


def _join(files: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of several files, one behind the other."""
    if len(files) == 1:
        return files[0]
    tokens = np.cumsum([0, *(len(arrays["ids"]) for arrays in files)])
    sentences = np.cumsum([0, *(len(arrays["sentences"]) - 1 for arrays in files)])
    moved = {"sentences": tokens, "documents": sentences}
    joined = {}
    for name in files[0]:
        by = moved.get(name, tokens if name.endswith(".start") else None)
        pieces = [arrays[name] for arrays in files]
        if by is not None:
            pieces = [piece + add for piece, add in zip(pieces, by, strict=False)]
        if name in moved:
            pieces = [pieces[0], *(piece[1:] for piece in pieces[1:])]
        joined[name] = np.concatenate(pieces)
    return joined
