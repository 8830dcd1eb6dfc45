"""A dev set out of the training examples, chosen by a hash of their content."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Example = TypeVar("Example")


def take_fold(
    examples: Sequence[Example], fold: int, folds: int, *, unit: Callable[[Example], str]
) -> tuple[list[Example], list[Example]]:
    """(train, dev) of one of `folds` parts, each of which is dev once; in the order of `examples`.

    Examples of one `unit` are in one part. Units are dealt out in the order of their hashes, each
    to the part with the fewest examples: the parts are about equally large.
    """
    sizes = Counter(unit(example) for example in examples)
    parts, filled = dict[str, int](), [0] * folds
    for key in sorted(sizes, key=lambda key: hashlib.sha256(key.encode()).digest()):
        parts[key] = filled.index(min(filled))
        filled[parts[key]] += sizes[key]
    sides: tuple[list[Example], list[Example]] = ([], [])
    for example in examples:
        sides[parts[unit(example)] == fold].append(example)
    return sides


def hold_out(
    examples: Sequence[Example],
    share: float,
    *,
    unit: Callable[[Example], str],
    labels: Callable[[Example], Iterable[str]],
) -> tuple[list[Example], list[Example]]:
    """(train, dev), both in the order of `examples`; dev has about `share` of them, and none where
    that is impossible.

    Examples of one `unit` are on the same side: the hash of the unit decides, independent of other
    examples. All `labels` of dev occur in train, too.
    """
    units: dict[bytes, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        units[hashlib.sha256(unit(example).encode()).digest()].append(index)
    remaining = Counter(label for example in examples for label in labels(example))
    target, order = max(1, round(share * len(examples))), sorted(units)
    room = max(target, min(map(len, units.values()), default=0))
    dev: set[int] = set()
    for key in order if len(units) > 1 else ():
        if len(dev) + len(units[key]) > room:
            continue
        own = Counter(label for index in units[key] for label in labels(examples[index]))
        if all(remaining[label] > count for label, count in own.items()):
            dev.update(units[key])
            remaining.subtract(own)
    train = [example for index, example in enumerate(examples) if index not in dev]
    return train, [examples[index] for index in sorted(dev)]
