"""A reader of the encoding of protobuf messages, enough for the few fields of SentencePiece's files
that its Python API hides.
"""

from __future__ import annotations

from collections.abc import Iterator


def parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message: an int for varints and fixed-width numbers, bytes
    for everything else.
    """
    offset = 0
    while offset < len(data):
        key, offset = _parse_varint(data, offset)
        kind = key & 7
        if kind == 0:
            value, offset = _parse_varint(data, offset)
            yield key >> 3, value
        else:
            size, offset = (
                _parse_varint(data, offset) if kind == 2 else ({1: 8, 5: 4}[kind], offset)
            )
            chunk, offset = data[offset : offset + size], offset + size
            yield key >> 3, chunk if kind == 2 else int.from_bytes(chunk, "little")


def _parse_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset
