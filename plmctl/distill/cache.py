"""The teacher cache: predictions on the disk, so that a row that comes again is read, not computed.

    <folder>/<key>/shard-<number>.safetensors
        "rows"           [n, 16] hashes of rows
        "<field>"        all their numbers, row after row
        "<field>/shape"  [n, d] the shape of each row

`key`: a hash of the teacher (its weights, config and tokenizer), the precision, and what is
recorded. A field is "logits/<name>" or "<recorded>/<layer>", with only the real tokens of each row.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError, PlmctlError
from plmctl.core.terminal import tell
from plmctl.distill.base import LOGITS, Logits, Predictions, Question, Teacher
from plmctl.distill.questions import OfTask
from plmctl.models.base import Model
from plmctl.nn.recorder import Record
from plmctl.storage.gate import admit, own
from plmctl.storage.reading import MALFORMED
from plmctl.tasks.task import Task

SHARD = 64 << 20  # bytes that wait in memory before they become a file
NUMBERS = ("example", "cut", "question_cut", "group")  # values of a row that no model reads
PADDED = {
    "hidden": (0,),
    "queries": (1,),
    "keys": (1,),
    "values": (1,),
    "scores": (1, 2),
    "attention": (1, 2),
}  # axes of tokens


class Cached(Teacher):
    """The predictions of `teacher`, bit for bit as at the first time of each row (other rows in the
    batch change the last digits).

    Rows are looked up by what a model reads of them. If one row of a batch is new, the teacher
    computes the whole batch. At the first new batch `say` reports how large everything will be, for
    `rows` rows. ConfigError for a task that writes: the predictions would be as many as its tokens
    times the vocabulary.
    """

    def __init__(
        self,
        *,
        teacher: Teacher,
        folder: Path,
        identity: str,
        rows: int,
        say: Callable[[str], None] = tell,
    ) -> None:
        super().__init__()
        self.teacher, self.measures = teacher, teacher.measures
        self.folder, self.identity, self.rows, self.say = folder, identity, rows, say
        self._stores: dict[frozenset[str], Store] = {}
        self._said = False

    def meet(self, question: Question) -> None:
        self.teacher.meet(question)

    def predict(self, batch: Batch, question: Question, record: Record) -> Predictions:
        if not isinstance(question, OfTask):
            allowed = "null: only predictions of tasks with labels are cached"
            raise ConfigError("teacher_cache", str(self.folder), allowed)
        task = question.task
        if record not in self._stores:
            kind = batch.key.device.type
            precision = (
                torch.get_autocast_dtype(kind)
                if torch.is_autocast_enabled(kind)
                else "as the weights"
            )
            words = [self.identity, str(precision), *sorted(record)]
            self._stores[record] = Store(
                self.folder / hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
            )
        store, keys = self._stores[record], hash_rows(batch)
        if all(key in store for key in keys):
            return _join_rows([store[key] for key in keys], task, batch)
        by_row = _LogitsByRow(task)
        predictions = self.teacher.predict(batch, by_row, record)
        self._keep(store, keys, {**_flatten_layers(predictions), **by_row.fields}, batch)
        return predictions

    def _keep(
        self, store: Store, keys: Sequence[bytes], fields: Mapping[str, Tensor], batch: Batch
    ) -> None:
        trimmed = [
            {name: _trim(name, value[row], int(length)) for name, value in fields.items()}
            for row, length in enumerate(_lengths(batch))
        ]
        if not self._said:
            self._said = True
            bytes_per_row = sum(_bytes(row) for row in trimmed) / len(trimmed)
            expected = round(bytes_per_row * max(0, self.rows - len(store)))
            self.say(
                f"the teacher's predictions: about {_size(expected)} for {self.rows:,} rows,"
                f" cached in {store.folder}"
            )
            free = shutil.disk_usage(store.folder.parent).free
            if expected > free:
                fix = (
                    "teacher_cache=<a folder with more room>, or teacher_cache=null to compute them"
                )
                raise PlmctlError(
                    f"teacher_cache: {_size(free)} are free for about {_size(expected)}\n"
                    f"  fix: {fix}"
                )
        for key, row in zip(keys, trimmed, strict=True):
            store.add(key, row)


class _LogitsByRow(OfTask):
    """The question of a task that also keeps the logits by row."""

    fields: Mapping[str, Tensor] = {}

    def logits(self, model: Model, batch: Batch) -> dict[str, Logits]:
        by_name = self.task.logits(model, batch)
        self.fields = {f"{LOGITS}/{name}": value for name, value in by_name.items()}
        return {
            name: Logits(*flat) for name, flat in self.task.flatten_logits(by_name, batch).items()
        }


@dataclass(eq=False)
class Store:
    """Rows of fields by key: all rows in the shards of a folder, and the rows that are not written
    yet.

    A shard is complete or absent. Waiting rows are written when they are `SHARD` bytes, and when
    the store is deleted or the program ends.
    """

    folder: Path
    _shards: dict[Path, Shard] = field(default_factory=dict)
    _positions: dict[bytes, tuple[Path, int]] = field(default_factory=dict)
    _waiting: dict[bytes, dict[str, Tensor]] = field(default_factory=dict)
    _size: int = 0

    def __post_init__(self) -> None:
        try:
            admit(own(self.folder)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot cache predictions here: {error.strerror}"
            raise DataError(problem, file=self.folder, fix="another teacher_cache") from error
        for file in sorted(self.folder.glob("shard-*.safetensors")):
            self._open(file)
        weakref.finalize(self, _write, self.folder, self._waiting)

    def __contains__(self, key: bytes) -> bool:
        return key in self._positions or key in self._waiting

    def __len__(self) -> int:
        return len(self._positions) + len(self._waiting)

    def __getitem__(self, key: bytes) -> dict[str, Tensor]:
        if key in self._waiting:
            return self._waiting[key]
        file, index = self._positions[key]
        return self._shards[file].row(index)

    def add(self, key: bytes, row: dict[str, Tensor]) -> None:
        """Add the row of a new key."""
        if key in self:
            return
        self._waiting[key] = row
        self._size += _bytes(row)
        if self._size >= SHARD:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows as one shard."""
        if (file := _write(self.folder, self._waiting)) is not None:
            self._waiting.clear()
            self._size = 0
            self._open(file)

    def _open(self, file: Path) -> None:
        """Read a shard; the rows of a damaged one are computed again."""
        try:
            self._shards[file] = Shard(file)
        except (SafetensorError, OSError, *MALFORMED):
            return
        self._positions |= {key: (file, index) for index, key in enumerate(self._shards[file].keys)}


class Shard:
    """One file of rows, each read when it is needed."""

    def __init__(self, file: Path) -> None:
        self._file = safe_open(str(file), framework="pt")
        names = set(self._file.keys()) - {"rows"}
        self.keys = [bytes(key.tolist()) for key in self._file.get_tensor("rows")]
        self.shapes = {
            name: self._file.get_tensor(f"{name}/shape")
            for name in names
            if f"{name}/shape" in names
        }
        self.ends = {name: shape.prod(1).cumsum(0).tolist() for name, shape in self.shapes.items()}

        for name, shape in self.shapes.items():
            size = [self.ends[name][-1]] if len(shape) else [0]
            stored = self._file.get_slice(name).get_shape()
            if len(shape) != len(self.keys) or bool((shape < 0).any()) or size != stored:
                raise ValueError(
                    f"{file}: {name} has {stored} numbers, and its shapes ask for {size}"
                )

    def row(self, index: int) -> dict[str, Tensor]:
        """The fields of a row."""
        fields = {}
        for name, shapes in self.shapes.items():
            begin, end = (self.ends[name][index - 1] if index else 0), self.ends[name][index]
            fields[name] = self._file.get_slice(name)[begin:end].view(shapes[index].tolist())
        return fields


def _write(folder: Path, rows: Mapping[bytes, Mapping[str, Tensor]]) -> Path | None:
    """Write a new shard of `rows`, completely or not at all; None if there are no rows."""
    if not rows:
        return None
    tensors = {"rows": torch.tensor([list(key) for key in rows], dtype=torch.uint8)}
    for name in next(iter(rows.values())):
        tensors[name] = torch.cat([row[name].flatten() for row in rows.values()])
        shapes = [row[name].shape for row in rows.values()]
        tensors[f"{name}/shape"] = torch.tensor(shapes, dtype=torch.int64).reshape(
            len(rows), len(shapes[0])
        )
    numbers = [int(file.stem.split("-")[1]) for file in folder.glob("shard-*.safetensors")]
    file = folder / f"shard-{max(numbers, default=-1) + 1:05d}-{os.getpid()}.safetensors"
    partial = file.with_name(f".{file.name}.partial")
    try:
        save_file(tensors, admit(partial))
        os.replace(admit(partial), admit(file))
    except (OSError, SafetensorError) as error:
        admit(partial).unlink(missing_ok=True)
        raise PlmctlError(
            f"cannot write {file}: {error}\n  fix: free some space, or teacher_cache=null"
        ) from error
    return file


def hash_rows(batch: Batch) -> list[bytes]:
    """A hash of each row: its tokens with their tracks, its anchor, and its values; in a group, of
    all its rows.
    """
    parts = [(f"{name}.ids", seq.ids, seq.length) for name, seq in sorted(batch.seqs.items())]
    parts += [
        (f"{name}.{track}", value, seq.length)
        for name, seq in sorted(batch.seqs.items())
        for track, value in sorted(seq.tracks.items())
    ]
    values = [(name, value) for name, value in sorted(batch.values.items()) if name not in NUMBERS]
    values += (
        [("anchor", batch.anchors[:, 1])]
        if batch.anchors is not None and len(batch.anchors) == len(batch.key)
        else []
    )
    trimmed = [(name, value.cpu().numpy(), length.tolist()) for name, value, length in parts]
    plain = [(name, value.cpu().numpy()) for name, value in values]
    hashes = []
    for row in range(len(batch.key)):
        digest = hashlib.blake2b(digest_size=16)
        for name, value, length in trimmed:
            digest.update(name.encode() + value[row, : length[row]].astype("int64").tobytes())
        for name, value in plain:
            digest.update(name.encode() + value[row].astype("int64").tobytes())
        hashes.append(digest.digest())
    return (
        hashes
        if "group" not in batch.values
        else list(_of_groups(hashes, batch.values["group"].tolist()))
    )


def _of_groups(keys: Sequence[bytes], groups: Sequence[int]) -> Iterator[bytes]:
    """The keys of rows whose answers depend on the others of their example."""
    together: dict[int, bytes] = {}
    for key, group in zip(keys, groups, strict=True):
        together[group] = together.get(group, b"") + key
    return (
        hashlib.blake2b(key + together[group], digest_size=16).digest()
        for key, group in zip(keys, groups, strict=True)
    )


def _flatten_layers(predictions: Predictions) -> dict[str, Tensor]:
    return {
        f"{name}/{layer}": value
        for name, layers in predictions.recorded.items()
        for layer, value in enumerate(layers)
    }


def _axes(name: str, dims: int) -> tuple[int, ...]:
    """The axes of a row of `name` that are its tokens; for logits, those of each token, or of the
    ends of a span.
    """
    kind, _, which = name.partition("/")
    return (
        PADDED.get(kind, (0,))
        if kind != LOGITS
        else (0,)
        if dims == 2 or which in ("start", "end")
        else ()
    )


def _lengths(batch: Batch) -> list[int]:
    """The number of tokens of each row up to the last real one."""
    real: Tensor = next(iter(batch.seqs.values())).real
    return [int(row.nonzero().max()) + 1 for row in real.cpu()]


def _trim(name: str, row: Tensor, length: int) -> Tensor:
    for axis in _axes(name, row.ndim):
        row = row.narrow(axis, 0, length)
    return row.detach().cpu().clone()


def _join_rows(rows: Sequence[Mapping[str, Tensor]], task: Task, batch: Batch) -> Predictions:
    """The predictions of a batch from those of its rows; values at padding are never read."""
    device, real = batch.key.device, next(iter(batch.seqs.values())).real
    width = real.shape[1]
    fields: dict[str, Tensor] = {}
    for name, first in rows[0].items():
        axes = _axes(name, first.ndim)
        shape = [width if axis in axes else size for axis, size in enumerate(first.shape)]
        lowest = name.startswith(("scores/", f"{LOGITS}/start", f"{LOGITS}/end"))
        padded = first.new_full((len(rows), *shape), torch.finfo(first.dtype).min if lowest else 0)
        for index, row in enumerate(rows):
            padded[index][tuple(slice(size) for size in row[name].shape)] = row[name]
        fields[name] = padded.to(device)
    logits = {
        name.partition("/")[2]: value
        for name, value in fields.items()
        if name.startswith(f"{LOGITS}/")
    }
    recorded: dict[str, dict[int, Tensor]] = {}
    for name, value in fields.items():
        kind, _, layer = name.partition("/")
        if kind != LOGITS:
            recorded.setdefault(kind, {})[int(layer)] = value
    flat = task.flatten_logits(logits, batch) if logits else {}
    return Predictions(
        real,
        {name: Logits(*values) for name, values in flat.items()},
        {kind: [layers[n] for n in range(len(layers))] for kind, layers in recorded.items()},
    )


def _bytes(row: Mapping[str, Tensor]) -> int:
    return sum(value.nbytes for value in row.values())


def _size(number: float) -> str:
    return next(
        f"{number / 1e3**power:.1f} {unit}"
        for power, unit in ((3, "GB"), (2, "MB"), (1, "kB"), (0, "bytes"))
        if number >= 1e3**power or not power
    )
