"""Sizes that a `config.json` states and its weights do not have, each with both numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError
from plmctl.core.terminal import remark
from plmctl.interop.family import Family, find_token_tables
from plmctl.interop.names import Tensors
from plmctl.interop.settings import Numbers

Shape = tuple[int, ...]
HEAD_WIDTH = 64  # columns of a head of attention in all published sizes of BERT's relatives
# as `explain`, of a family and its numbers
Explain = Callable[
    [Mapping[str, tuple[Shape, Shape]], Iterable[str], Iterable[str]], tuple[str, str]
]
_BLOCK = re.compile(r"(.*\.blocks\.\w+)\.(\d+)\..*")


def guess_heads(width: int, folder: Path, where: str) -> int:
    """The number of heads of a model whose settings are missing, which no shape says; logged.

    Args:
        where: The file that would state it.

    Raises:
        DataError: Heads of 64 columns do not fill the width.
    """
    if width % HEAD_WIDTH:
        what = f"no {where} states the number of heads, and {width} columns are no multiple of"
        fix = f"take the folder with the {where} of this model"
        raise DataError(f"{what} {HEAD_WIDTH}", file=folder, fix=fix)
    heads = width // HEAD_WIDTH
    remark(f"{folder}: {heads} heads of {HEAD_WIDTH} columns, since no {where} states their number")
    return heads


def find_other_vocabulary(family: Family, numbers: Numbers, ours: Tensors) -> tuple[str, str]:
    """The sentence on a table of tokens whose rows are not the stated ones, and its fix; ""."""
    rows = sum(map(len, find_token_tables(ours)))
    if rows in (0, numbers.vocab_size):
        return "", ""
    keys = _find_keys(family, numbers, numbers.vocab_size, rows, ["vocab_size"])
    return _spell(keys or {"vocab_size": (numbers.vocab_size, rows)})


def explain(
    family: Family,
    numbers: Numbers,
    shapes: Mapping[str, tuple[Shape, Shape]],
    tensors: Iterable[str],
    known: Iterable[str],
) -> tuple[str, str]:
    """The settings by which weights and a model differ, and the fix; "" where none explains it.

    Args:
        numbers: Its numbers, from its `config.json`.
        shapes: {our name: (the shape in the file, that in the model)}.
        tensors: Our names of the tensors of the file.
        known: The names of the tensors of the model.
    """
    layers, stated = _count_layers(tensors), _count_layers(known)
    found: Counter[tuple[str, Any, Any]] = Counter()
    names = [name for name, value in vars(numbers).items() if type(value) is int]
    for block, count in layers.items():
        if count > stated.get(block, count):
            own = [name for name in names if name.endswith("layers")]
            keys = _find_keys(family, numbers, stated[block], count, own)
            decoder = {key: value for key, value in keys.items() if "decoder" in key}
            other = {key: value for key, value in keys.items() if key not in decoder}
            keys = (decoder if ".decoder." in block else other) or keys
            found.update((key, *values) for key, values in keys.items())
    rest = [name for name in names if not name.endswith("layers")]
    same = Counter(size for file, model in shapes.values() if file == model for size in {*model})
    differ = Counter(
        pair
        for file, model in shapes.values()
        for pair in {(b, a) for a, b in zip(file, model, strict=False) if a != b}
    )
    for (before, after), count in differ.items() if not found else ():
        if count > same[before]:  # else the setting of this value is another's
            keys = _find_keys(family, numbers, before, after, rest)
            found.update({(key, *values): count for key, values in keys.items()})
    best = max(found.values(), default=0)
    return _spell({key: (a, b) for (key, a, b), count in found.items() if count == best})


def _count_layers(names: Iterable[str]) -> dict[str, int]:
    """{a kind of block of a stack: its layers with weights of their own}."""
    counts: dict[str, int] = {}
    for match in filter(None, map(_BLOCK.fullmatch, names)):
        counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
    return counts


def _find_keys(
    family: Family, numbers: Numbers, before: int, after: int, names: Iterable[str]
) -> dict[str, tuple[Any, Any]]:
    """{published setting: (its value, the value that fits)} of the numbers that are `before`."""
    first, found = family.settings(numbers), dict[str, tuple[Any, Any]]()
    for name in names:
        if getattr(numbers, name) == before:
            changed = family.settings(numbers.but(**{name: after}))
            found |= {
                key: (value, changed[key])
                for key, value in first.items()
                if changed.get(key) != value
            }
    return found


def _spell(keys: Mapping[str, tuple[Any, Any]]) -> tuple[str, str]:
    """The sentence on settings, and its fix."""
    if not keys:
        return "", ""
    stated = " or ".join(f"{key}={before}" for key, (before, _) in keys.items())
    fitting = " or ".join(str(after) for after in dict.fromkeys(b for _, b in keys.values()))
    change = " or ".join(f'"{key}": {after}' for key, (_, after) in keys.items())
    fix = f"{change} in config.json, if its weights are whole; else download both again"
    return f"config.json says {stated}, and the weights have {fitting}", fix
