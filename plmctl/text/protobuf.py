"""The encoding of protobuf messages, enough for the few fields of SentencePiece's files that its
Python API hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


def parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message: an int for varints and fixed-width numbers, bytes
    for everything else.
    """
    offset = 0
    while offset < len(data):
        key, offset = parse_varint(data, offset)
        kind = key & 7
        if kind == 0:
            value, offset = parse_varint(data, offset)
            yield key >> 3, value
        else:
            size, offset = parse_varint(data, offset) if kind == 2 else ({1: 8, 5: 4}[kind], offset)
            chunk, offset = data[offset : offset + size], offset + size
            yield key >> 3, chunk if kind == 2 else int.from_bytes(chunk, "little")


def replace_fields(data: bytes, number: int, change: Callable[[bytes], bytes]) -> bytes:
    """`data` with `change(content)` for the content of each field of this number, which holds text
    or a message.
    """
    out, offset = bytearray(), 0
    while offset < len(data):
        start = offset
        key, offset = parse_varint(data, offset)
        if key & 7 == 0:
            _, offset = parse_varint(data, offset)
        elif key & 7 == 2:
            size, offset = parse_varint(data, offset)
            offset += size
        else:
            offset += {1: 8, 5: 4}[key & 7]
        field = data[start:offset]
        if key == number << 3 | 2:
            field = spell_field(number, change(data[offset - size : offset]))
        out += field
    return bytes(out)


def parse_varint(data: bytes, offset: int) -> tuple[int, int]:
    """(a number of 7 bits a byte, the position behind it)."""
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset


def spell_field(number: int, content: bytes) -> bytes:
    """A field of a message that holds text or a message; behind a message, one more of its list."""
    return _spell_varint(number << 3 | 2) + _spell_varint(len(content)) + content


def _spell_varint(value: int) -> bytes:
    low = bytearray()
    while value > 0x7F:
        low.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*low, value])
