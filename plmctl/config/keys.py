"""The kind of value that a config key holds, where it is more than a setting: files."""

from __future__ import annotations

_PATHS = (
    "path",
    "valid_path",
    "target_path",
    "valid_target_path",
    "sketchy_path",
    "dir",
    "cache_dir",
    "first_vectors",
    "stop_words",
    "weights_from",
    "minimal_pairs",
    "merged_by",
    "ngram",
)
PLACES = (
    *("out", "checkpoint", "init", "into", "input"),
    *("teacher", "teacher_cache", "writer", "embedder", "labelled_from"),
)


def is_path(key: str) -> bool:
    """Whether the config key names files: its value is taken literally, never as Hydra's
    grammar.
    """
    return key in PLACES or key.rpartition(".")[2] in _PATHS


def is_written(key: str) -> bool:
    """Whether the config key says where a command writes: one folder, in whose name a comma is a
    letter, also in a sweep.
    """
    return key in ("run.dir", "out", "teacher_cache", "data.cache_dir")
