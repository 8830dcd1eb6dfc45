"""Tokens in shards, on this machine or behind a URL, whose shards pass through a cache."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError
from plmctl.data.shard_files import FileShards, ShardFile, list_shards, map_shard, place_shard
from plmctl.data.shard_stream import AHEAD, ShardStream
from plmctl.data.shards import read_manifest
from plmctl.data.verified import verify_once
from plmctl.storage.file_cache import FileCache
from plmctl.storage.paths import find_cache_folder
from plmctl.storage.remote import copy_url, is_url

GB = 10**9


def open_shards(home: Path, path: Any, data: Data, *, window: int, share: float) -> ShardStream:
    """The stream of the training text of a token directory in shards.

    Args:
        home: The folder of its manifest.
        path: The path or URL as the user gave it.
        data: The settings of texts.
        window: Characters of a window.
        share: The share of the tokens to read: so many of the first shards.
    """
    manifest = read_manifest(home)
    refuse_small_cache(manifest, path, data.cache_size)
    shards = list_shards(manifest, "train")
    needed, count = math.ceil(share * sum(entry.tokens for entry in shards)), 0
    while needed > 0:
        needed, count = needed - shards[count].tokens, count + 1
    largest = max((entry.bytes for entry in shards), default=1)
    return ShardStream(
        home,
        manifest,
        shards[: max(1, count)],
        _Origin(home, path, data),
        size=window,
        given=str(path),
        ahead=min(AHEAD, int(data.cache_size * GB) // largest - 1) if is_url(path) else 0,
    )


def open_held_out_shard(home: Path, path: Any, data: Data) -> FileShards:
    """The held-out tokens of a token directory in shards."""
    manifest, source = read_manifest(home), _Origin(home, path, data)
    opened = [(source(entry), entry) for entry in list_shards(manifest, "valid")]
    files = [(file, entry, map_shard(file, entry)) for file, entry in opened]
    return FileShards(home, "valid", manifest, files, str(path))


def refuse_small_cache(manifest: dict[str, Any], path: Any, cache_size: float) -> None:
    """ConfigError where the cache of a URL has no room for its largest shard."""
    every = [entry for split in ("train", "valid") for entry in list_shards(manifest, split)]
    largest = max((entry.bytes for entry in every), default=0)
    if is_url(path) and largest > cache_size * GB:
        allowed = f"at least the {largest:,} bytes of the largest shard of {path}"
        fix = f"data.cache_size={math.ceil(3 * largest / GB * 100) / 100:g}, for three of them"
        raise ConfigError("data.cache_size", cache_size, allowed, fix=fix)


class _Origin:
    """Shards where they lie: in their folder, or, from a URL, in the cache."""

    def __init__(self, home: Path, path: Any, data: Data) -> None:
        self._home, self._folder = home, find_cache_folder(data.cache_dir)
        self._url = path.rstrip("/") if is_url(path) else None
        self._cache = FileCache(self._folder / "shards", int(data.cache_size * GB))

    def __call__(self, entry: ShardFile) -> Path:
        if self._url is None:
            return place_shard(self._home, entry)
        url = f"{self._url}/{entry.file}"
        return self._cache.get(
            url, entry.bytes, entry.sha256, lambda stream: copy_url(url, entry.bytes, stream)
        )

    def check(self, shards: FileShards) -> None:
        """Compare a file with its hash, once; a download has been compared."""
        if self._url is None:
            verify_once(shards, self._folder)
