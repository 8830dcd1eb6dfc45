"""The key of a job: a hash of its config, the content of its files and the code of its plug-ins."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plmctl.config.keys import is_path
from plmctl.config.plugins import hash_code
from plmctl.config.walks import scalars_in
from plmctl.core.moved import name_before
from plmctl.core.used_cells import drop_unused_cells
from plmctl.data.shards import MANIFEST, is_tokens
from plmctl.jobs.job import REFERENCE

WITHOUT_EFFECT = {  # on any figure of the table: another value makes no other job
    "recipe",
    "budgets",  # their decisions are settings of their own
    "run",
    "out",
    "data.cache_dir",
    "data.cache_size",
    "processes",
    *(f"train.{name}" for name in ("log_every", "save_every", "save_async", "keep_last")),
    "train.save_at",
    *(f"train.{name}" for name in ("device", "processes", "threads", "micro_batch_size")),
    *(f"train.{name}" for name in ("timeout", "restarts", "profile")),
    *(f"train.{name}" for name in ("parallel", "shard_size", "tensor_parallel", "offload")),
}
LATER: dict[tuple[str, str], Any] = {  # defaults of later settings: they make no other job
    **{(verb, "runtime"): None for verb in ("eval", "embed", "attack", "generate")},
    **{(verb, "pruning"): None for verb in ("pretrain", "finetune", "distill")},
    **{(verb, "train.stream"): "fp32" for verb in ("pretrain", "finetune", "distill", "graph")},
    **{(verb, "train.pause_at"): None for verb in ("pretrain", "finetune", "distill", "graph")},
    **{(verb, "origin"): None for verb in ("pretrain", "finetune", "distill")},
    **{(verb, "task.reader.merged_by"): None for verb in ("finetune", "distill", "eval", "attack")},
    **{
        (verb, f"schedule.{name}"): value
        for verb in ("pretrain", "finetune", "distill", "graph")
        for name, value in (("from_zero", False), ("cycles", 1))
    },
    **{(verb, "task.stratified"): False for verb in ("finetune", "distill", "eval", "attack")},
    ("embed", "dimensions"): None,
    ("eval", "task.seeds"): [],
    ("eval", "task.unit"): "word",
    ("eval", "only"): None,
    ("eval", "abstain"): None,
    **{(verb, "sentence"): None for verb in ("finetune", "distill")},
    **{(verb, "tokenizer.normalize"): None for verb in ("pretrain", "tokenize", "finetune")},
    ("embed", "numbers"): "fp32",
    **{(verb, "task.dimensions"): None for verb in ("finetune", "distill", "eval")},
    **{(verb, "task.matryoshka"): [] for verb in ("finetune", "distill", "eval")},
    **{
        (verb, "task.loss._target_"): "plmctl.tasks.pair_losses.squared.SquaredError"
        for verb in ("finetune", "distill", "eval")
    },
    **{(verb, "train.batch_tokens"): None for verb in ("pretrain", "finetune", "distill")},
    ("pretrain", "eval.minimal_pairs"): None,
    ("pretrain", "eval.pairs"): 500,
    ("pretrain", "train.words"): None,
    **{
        (verb, f"model.{name}"): None
        for verb in ("pretrain", "finetune", "distill")
        for name in ("forced", "stack.weighted")
    },
    **{("tokenize", name): None for name in ("parts", "part", "shard_tokens")},
    **{
        (verb, f"{place}search.{name}"): value
        for verb in ("finetune", "distill", "eval", "generate", "rewrite")
        for place in ("", "task.", "rewrite.")
        for name, value in (
            *(("repetition_penalty", 1.0), ("excluded", None), ("last", None)),
            *(("min_p", 0.0), ("typical_p", 1.0)),
        )
    },
    **{
        (verb, f"train.spike{name}"): value
        for verb in ("pretrain", "finetune", "graph")
        for name, value in (("s", "off"), ("_window", 100), ("_deviations", 10.0))
    },
}
FILES = {("inject", "words")}  # settings that name files, and in other commands something else
_EXACT = 1 << 26  # bytes of a file that are hashed; of a larger one, size and time of change count


def compute_key(verb: str, config: Mapping[str, Any]) -> str:
    """16 hexadecimal digits: the same for the same work on the same files, wherever the study
    lies. Cells that no layout runs do not count; the code of plug-ins does.
    """
    counted = {
        path: _identify(verb, path, value)
        for path, value in scalars_in(drop_unused_cells(config))
        if not _is_without_effect(path) and value != LATER.get((verb, path), ...)
    }
    code = hash_code(config)
    text = json.dumps([verb, counted, *([code] if code else [])], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint(path: str) -> list[Any]:
    """[name, size, hash] of every file at `path`, a file, folder or pattern; the path itself
    where there is nothing.
    """
    root = Path(path).expanduser()
    if is_tokens(str(root)):
        files = [root / MANIFEST]
    elif root.is_dir():
        inside = sorted(file for file in root.rglob("*") if file.is_file())
        return [[str(file.relative_to(root)), *_describe(file)] for file in inside]
    else:
        matches = sorted(glob.glob(str(root), recursive=True))
        files = [root] if root.is_file() else [Path(match) for match in matches]
    return [[file.name, *_describe(file)] for file in files if file.is_file()] or [path]


def _describe(file: Path) -> tuple[int, str | int]:
    """(size, hash); of a large file, (size, time of change)."""
    size, changed = file.stat().st_size, file.stat().st_mtime_ns
    return size, _hash(file, size, changed) if size <= _EXACT else changed


@functools.lru_cache(maxsize=100_000)
def _hash(file: Path, size: int, changed: int) -> str:
    """The hash of a file, read once while it stays as it is, however many jobs name it."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _identify(verb: str, path: str, value: Any) -> Any:
    """The value of a setting, or the content of the files that it names."""
    if not isinstance(value, str):
        return value
    owner = path.rpartition(".")[0]  # path: {train: ..., dev: ...} and lists of paths
    named = is_path(path) or is_path(owner) or (verb, path) in FILES
    if named and not value.startswith((REFERENCE, "hf:")):
        return fingerprint(value)
    if path.endswith("_target_"):
        return name_before(value)
    return value


def _is_without_effect(path: str) -> bool:
    keys = path.split(".")
    return any(".".join(keys[: place + 1]) in WITHOUT_EFFECT for place in range(len(keys)))
