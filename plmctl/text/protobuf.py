"""A reader of protobuf's wire format, enough for the few fields of SentencePiece's files that
its Python API hides.
"""

from __future__ import annotations

from collections.abc import Iterator


def parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: an int for varints and fixed-width numbers, bytes for
    everything else.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
        else:
            size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            chunk, at = data[at : at + size], at + size
            yield key >> 3, chunk if kind == 2 else int.from_bytes(chunk, "little")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
