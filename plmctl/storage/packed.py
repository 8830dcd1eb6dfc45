"""Weights in few bits each: codes of a codebook, or steps of a scale for each group; zeros of
pruned weights in a mask.

A packed array X is several arrays:

    X:form    [bits, group, *shape]
    X:codes   the bits of all codes, the lowest first
    X:table   the codebook, or
    X:scales  one for each group
    X:mask    one bit for each weight, 1 where it has a code; only where that is smaller
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from plmctl.core.codebook import find_codebook, find_codes

FORM, CODES, TABLE, SCALES, MASK = (f":{n}" for n in ("form", "codes", "table", "scales", "mask"))
LEAST = 1024  # numbers of an array; smaller ones, and vectors, stay as they are
PRUNED = 0.01  # share of zeros from which they are no chance, and stay exactly 0

Arrays = dict[str, np.ndarray]


def pack_arrays(arrays: Mapping[str, np.ndarray], *, bits: int, group: int = 0) -> Arrays:
    """`arrays` with all matrices and tables in codes of `bits` bits; norms and biases stay.

    Args:
        arrays: Weights by name.
        bits: 2 to 8.
        group: Weights that share a scale; 0: a codebook of 2^bits values for each matrix.
    """
    packed: Arrays = {}
    for name, array in arrays.items():
        if is_packed(array):
            packed |= {f"{name}{part}": own for part, own in _pack(array, bits, group).items()}
        else:
            packed[name] = array
    return packed


def is_packed(array: np.ndarray) -> bool:
    """Whether an array is a matrix or a table that is worth a code."""
    return array.ndim >= 2 and array.size >= LEAST and array.dtype.kind == "f"


def is_part(name: str, names: Mapping[str, object]) -> bool:
    """Whether a name is that of a part of a packed array."""
    place, colon, _ = name.rpartition(":")
    return bool(colon) and place + FORM in names


def unpack_arrays(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """`pack_arrays`, the other way; fp32 whatever is packed."""
    found: Arrays = {}
    for name, array in arrays.items():
        place, colon, part = name.rpartition(":")
        if not colon:
            found[name] = array
        elif f":{part}" == FORM:
            others = {each: arrays.get(place + each) for each in (TABLE, SCALES, MASK)}
            found[place] = _unpack(array, arrays[place + CODES], **_named(others))
    return found


def _named(parts: Mapping[str, np.ndarray | None]) -> dict[str, np.ndarray | None]:
    return {part.removeprefix(":"): array for part, array in parts.items()}


def _pack(array: np.ndarray, bits: int, group: int) -> Arrays:
    values = array.astype(np.float32).reshape(-1)
    zero = values == 0
    share = float(zero.mean())
    packed: Arrays = {FORM: np.array([bits, group, *array.shape], np.int32)}
    if share > 1 / bits:
        packed[MASK] = np.packbits(~zero, bitorder="little")
        values = values[~zero]
    if group:
        codes, packed[SCALES] = _find_steps(values, bits, group)
    else:
        codes, packed[TABLE] = find_entries(values, bits)
    packed[CODES] = _pack_bits(codes.astype(np.uint8), bits)
    return packed


def find_entries(values: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(codes, codebook of 2^bits values), of which one is 0 where 1% of the values are."""
    zero = values == 0
    if zero.mean() < PRUNED:
        table = find_codebook(values, 2**bits)
        return find_codes(values, table), table
    table = np.sort(np.append(find_codebook(values[~zero], 2**bits - 1), np.float32(0)))
    codes = find_codes(values, table)
    codes[zero] = np.flatnonzero(table == 0)[0]
    return codes, table


def _find_steps(values: np.ndarray, bits: int, group: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes `round(w / s) + most`, and s = max|w| / most of each group, in fp16."""
    most = 2 ** (bits - 1) - 1
    padded = np.pad(values, (0, -len(values) % group)).reshape(-1, group)
    scales = (np.abs(padded).max(1, initial=0) / most).astype(np.float16)
    divisors = np.where(scales > 0, scales, 1).astype(np.float32)
    steps = np.clip(np.rint(padded / divisors[:, None]), -most, most)
    return (steps + most).reshape(-1)[: len(values)], scales


def _unpack(
    form: np.ndarray,
    codes: np.ndarray,
    *,
    table: np.ndarray | None,
    scales: np.ndarray | None,
    mask: np.ndarray | None,
) -> np.ndarray:
    bits, group, *shape = form.tolist()
    whole = math.prod(shape)
    there = np.ones(whole, bool)
    if mask is not None:
        there = np.unpackbits(mask, count=whole, bitorder="little").astype(bool)
    numbers = _unpack_bits(codes, bits, int(there.sum()))
    if table is not None:
        values = table[numbers]
    else:
        assert scales is not None
        steps = numbers.astype(np.float32) - (2 ** (bits - 1) - 1)
        values = steps * np.repeat(scales.astype(np.float32), group)[: len(steps)]
    found = np.zeros(whole, np.float32)
    found[there] = values
    return found.reshape(shape)


def _pack_bits(codes: np.ndarray, bits: int) -> np.ndarray:
    """The lowest `bits` bits of each code, one after the other."""
    flags = (codes[:, None] >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(flags, bitorder="little")


def _unpack_bits(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    flags = np.unpackbits(packed, count=count * bits, bitorder="little")
    weights = np.left_shift(1, np.arange(bits))
    numbers: np.ndarray = flags.reshape(count, bits) @ weights
    return numbers
