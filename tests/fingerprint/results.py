"""Short hashes of what a command of plmctl has written: of weights, curves and other output."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

CLOCK = {"tokens_per_second", "data_wait", "mfu", "seconds"}  # keys that the clock decides
CLOCK |= {"slowest_rank", "slowest_over"}
CLOCK |= {"latency of 1 row, ms", "latency of 32 rows, ms"}
# losses of models that only count, and of other recipes, which no training changes
COUNTED = ("valid/unigram/", "valid/bigram/", "valid/reached/", "valid/constant")
PLACES = {"checkpoint", "folder", "dir", "predictions", "skipped", "bytes on disk"}  # of files
TAKEN = {"footprint", "memory"}  # depend on the machine
SENTENCES = {"measured on", "about", "notes", "unknown"}  # for people
POWER = {"detectable", "span"}  # follows from the values beside it
IGNORED = CLOCK | PLACES | TAKEN | SENTENCES | POWER
PARTS = ("weights", "curve", "output")

Fingerprint = dict[str, str | float]
Record = dict[str, Any]


def short_hash(pieces: Iterable[bytes]) -> str:
    """Of the pieces in this order, each with its length."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(len(piece).to_bytes(8, "little") + piece)
    return found.hexdigest()[:16]


def tensors(file: Path) -> list[bytes]:
    """A hash of the type and the bytes of every tensor in a .safetensors file."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    header.pop("__metadata__", None)
    found = []
    for each in header.values():
        first, end = (start + offset for offset in each["data_offsets"])
        found.append(hashlib.sha256(each["dtype"].encode() + content[first:end]).digest())
    return found


def weights(folder: Path) -> str | None:
    """Of all checkpoints in `folder`, whatever their tensors are called; copies count once."""
    saved: dict[Path, list[bytes]] = {}
    for file in folder.rglob("*.safetensors"):
        if file.stem.startswith(("model", "objective")):  # not the optimizer's state
            saved.setdefault(file.parent, []).extend(tensors(file))
    return (
        short_hash(sorted({b"".join(sorted(each)) for each in saved.values()})) if saved else None
    )


def without(value: Any, keys: Collection[str]) -> Any:
    """JSON data without `keys` and without `COUNTED`, however deep they are."""
    if isinstance(value, Mapping):
        return {
            key: without(each, keys)
            for key, each in value.items()
            if key not in keys and not key.startswith(COUNTED)
        }
    if isinstance(value, list):
        return [without(each, keys) for each in value]
    return value


def curves(folder: Path) -> list[list[Record]]:
    """The records of every metrics.jsonl in `folder` without what the clock decides."""
    found = []
    for file in folder.rglob("metrics.jsonl"):
        lines = file.read_text(encoding="utf-8").splitlines()
        found.append([without(json.loads(line), CLOCK) for line in lines])
    return sorted(found, key=json.dumps)  # folders may be called by what decides their results


def last_loss(found: list[list[Record]]) -> float | None:
    """Of the last update in `found`, for people."""
    losses = [record["loss"] for curve in found for record in curve if "loss" in record]
    return losses[-1] if losses else None


def content(file: Path) -> bytes:
    """What a file says, without what a clock, a folder or a choice of words decides."""
    if file.suffix == ".npz":
        with ZipFile(file) as parts:
            return b"".join(name.encode() + parts.read(name) for name in sorted(parts.namelist()))
    if file.suffix not in (".json", ".jsonl", ".csv"):
        return file.read_bytes()
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".csv":
        data: list[Any] = list(csv.DictReader(io.StringIO(text)))
    else:
        lines = text.splitlines() if file.suffix == ".jsonl" else [text]
        data = [json.loads(line) for line in lines]
    return json.dumps(without(data, IGNORED), sort_keys=True).encode()


def output(folder: Path, patterns: Collection[str]) -> str | None:
    """Of the files that match a pattern, with their own names but not those of their folders."""
    files = {file for pattern in patterns for file in folder.glob(pattern)}
    if patterns and not files:
        raise OSError(f"{folder.name}: there is none of {', '.join(patterns)}")
    named = sorted(file.name.encode() + b"\n" + content(file) for file in files)
    return short_hash(named) if named else None


def fingerprint(folder: Path, patterns: Collection[str]) -> Fingerprint:
    """Of what a command has written into a folder.

    Args:
        folder: with checkpoints and metrics.jsonl at any depth, or none.
        patterns: globs in `folder` of other files that count.

    Returns:
        Those of PARTS that there are, and `loss`, the last one as a number.
    """
    found = curves(folder)
    parts: dict[str, str | float | None] = {
        "weights": weights(folder),
        "curve": short_hash([json.dumps(found, sort_keys=True).encode()]) if found else None,
        "output": output(folder, patterns),
        "loss": last_loss(found),
    }
    return {key: value for key, value in parts.items() if value is not None}
