"""TensorFlow's checkpoints of variables, the bundle format: `P.index` and `P.data-00000-of-0000N`
(tensorflow/core/util/tensor_bundle and lib/io/table_format.txt). `P.meta` is not needed.

The reader is our own: the index is a small table, and the data are raw. TensorFlow would be the
largest requirement of plmctl by far. The light package tensorflow-checkpoint-reader has had no
release since 2023, and would replace about a hundred lines.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plmctl.core.errors import DataError
from plmctl.storage.crc32c import crc32c
from plmctl.storage.reading import blame_file, read_bytes
from plmctl.text.protobuf import parse_fields, parse_varint

AGAIN = "download it again"
MAGIC = 0xDB4775248B80FB57
FOOTER = 48  # bytes
DTYPES = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    9: torch.int64,
    14: torch.bfloat16,
    19: torch.float16,
}


@dataclass(frozen=True)
class Variable:
    """A variable of a bundle: its type and shape, and where its bytes are.

    Args:
        shard: The number of its data file.
        offset: Its first byte there.
        crc: Their masked checksum.
        sliced: Whether it is stored in parts.
    """

    dtype: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    sliced: bool = False


@dataclass(frozen=True)
class Bundle:
    """The variables of a checkpoint."""

    prefix: Path
    shards: int
    variables: Mapping[str, Variable]

    @classmethod
    def open(cls, index: Path) -> Bundle:
        """The bundle with this index; DataError for a damaged one."""
        with blame_file(index, "no index of a TensorFlow checkpoint", fix=AGAIN):
            entries = dict(_read_table(read_bytes(index, fix=AGAIN)))
            header = dict(parse_fields(entries.pop(b"")))
            variables = {name.decode(): _parse_entry(value) for name, value in entries.items()}
        if header.get(2):
            raise DataError("its numbers begin with the highest byte", file=index, fix=AGAIN)
        return cls(index.with_suffix(""), int(header.get(1, 1)), variables)

    def read(self, name: str) -> Tensor:
        """The tensor of a variable; DataError for damaged bytes, text, or parts."""
        entry = self.variables[name]
        file = Path(f"{self.prefix}.data-{entry.shard:05d}-of-{self.shards:05d}")
        dtype = DTYPES.get(entry.dtype)
        if dtype is None or entry.sliced:
            what = "is stored in parts" if entry.sliced else f"has the type {entry.dtype}"
            raise DataError(f"{name} {what}, which plmctl does not read", file=file)
        if entry.size != math.prod(entry.shape) * dtype.itemsize:
            what = f"{name} has {entry.size} bytes, and the shape {list(entry.shape)}"
            raise DataError(what, file=file, fix=AGAIN)
        try:
            with file.open("rb") as data:
                data.seek(entry.offset)
                content = data.read(entry.size)
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror})", file=file, fix=AGAIN) from error
        if len(content) != entry.size:
            raise DataError(f"it ends within {name}", file=file, fix=AGAIN)
        if mask(crc32c(content)) != entry.crc:
            raise DataError(f"the checksum of {name} is another", file=file, fix=AGAIN)
        if not content:
            return torch.zeros(entry.shape, dtype=dtype)
        return torch.frombuffer(bytearray(content), dtype=dtype).view(entry.shape)


def mask(crc: int) -> int:
    """A checksum as it is stored."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _parse_entry(content: bytes) -> Variable:
    fields = list(parse_fields(content))
    known = dict(fields)
    shape = tuple(
        int(dict(parse_fields(size)).get(1, 0))  # type: ignore[arg-type]
        for number, value in fields
        if number == 2
        for inner, size in parse_fields(value)  # type: ignore[arg-type]
        if inner == 2
    )
    numbers = {
        name: int(known.get(number, 0))
        for name, number in {"dtype": 1, "shard": 3, "offset": 4, "size": 5, "crc": 6}.items()
    }
    return Variable(shape=shape, sliced=7 in known, **numbers)


def _read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a table of LevelDB; ValueError for a damaged one."""
    footer = data[-FOOTER:]
    if len(footer) < FOOTER or struct.unpack("<Q", footer[-8:])[0] != MAGIC:
        raise ValueError("its last bytes are not those of such a file")
    numbers, at = [], 0
    for _ in range(4):  # offset and size of the block about the file, and of that of all blocks
        number, at = parse_varint(footer, at)
        numbers.append(number)
    for _, handle in _read_block(data, *numbers[2:]):
        offset, at = parse_varint(handle, 0)
        size, _ = parse_varint(handle, at)
        yield from _read_block(data, offset, size)


def _read_block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a block, each key of which begins with a part of the one before."""
    block, end = data[offset : offset + size], offset + size
    if len(data) < end + 5 or size < 4:
        raise ValueError("a block is cut short")
    if data[end]:
        raise ValueError("a block is compressed")
    (crc,) = struct.unpack("<I", data[end + 1 : end + 5])
    if mask(crc32c(data[offset : end + 1])) != crc:
        raise ValueError("the checksum of a block is another")
    (restarts,) = struct.unpack("<I", block[-4:])
    at, last, key = 0, size - 4 - 4 * restarts, b""
    while at < last:
        shared, at = parse_varint(block, at)
        own, at = parse_varint(block, at)
        length, at = parse_varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + length]
        at += length
