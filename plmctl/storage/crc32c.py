"""The checksum CRC-32C (RFC 3720, appendix B.4), fast enough for the tables of a model.

A buffer is cut into lanes, which numpy computes side by side. A CRC is linear over bits. So the
left one of two neighbours is shifted over as many zero bytes as the right one has, and added.
"""

from __future__ import annotations

import numpy as np

_POLYNOMIAL = 0x82F63B78  # with its bits in reverse
_LANES = 1 << 16  # at most
_LEAST = 64  # bytes of a lane
_SMALL = 1 << 14  # bytes that one lane computes in less time


def _make_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _make_table()


def crc32c(data: bytes | memoryview) -> int:
    """The CRC-32C of `data`.

    Example:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    buffer = np.frombuffer(data, np.uint8)
    lanes = (
        min(_LANES, 1 << (len(buffer) // _LEAST).bit_length() - 1) if buffer.size > _SMALL else 1
    )
    size = len(buffer) // lanes if lanes > 1 else 0
    columns = np.ascontiguousarray(buffer[: lanes * size].reshape(lanes, size).T)
    state = np.zeros(lanes, np.uint32)
    state[0] = 0xFFFFFFFF
    for column in columns:
        state = _TABLE[(state ^ column) & 0xFF] ^ state >> 8
    shift = _find_shift(size)
    while len(state) > 1:
        state = _apply(shift, state[0::2]) ^ state[1::2]
        shift = _apply(shift, shift)
    value, table = int(state[0]), _TABLE.tolist()
    for byte in buffer[lanes * size :].tolist():
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _find_shift(size: int) -> np.ndarray:
    """[32] the images of the 32 bits of a state after so many zero bytes."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power = _TABLE[bits & 0xFF] ^ bits >> 8  # one zero byte
    whole = bits
    while size:
        if size & 1:
            whole = _apply(power, whole)
        power = _apply(power, power)
        size >>= 1
    return whole


def _apply(images: np.ndarray, states: np.ndarray) -> np.ndarray:
    """The linear map with these images of the 32 bits, of each state."""
    found = np.zeros_like(states)
    for bit, image in enumerate(images):
        found ^= np.where(states >> np.uint32(bit) & 1, image, np.uint32(0))
    return found
