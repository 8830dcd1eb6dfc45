"""A dev set out of the training examples, chosen by a hash of their content."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Example = TypeVar("Example")


def take_fold(
    examples: Sequence[Example],
    fold: int,
    folds: int,
    *,
    unit: Callable[[Example], str],
    labels: Callable[[Example], Iterable[str]],
    stratified: bool = False,
) -> tuple[list[Example], list[Example]]:
    """(train, dev) of one of `folds` parts, each of which is dev once; in the order of `examples`.

    Examples of one `unit` are in one part. Units are dealt out in the order of their hashes, each
    to the part with the fewest examples: the parts are about equally large. All `labels` of dev
    occur in train, too. If one part has all examples of a label, a unit of it goes to another part;
    a label with one unit is in no dev.

    With `stratified`, parts have the same share of each label. Their numbers differ by 1 at most
    where a unit is an example with one label.
    """
    sizes = Counter(unit(example) for example in examples)
    owned: dict[str, Counter[str]] = {key: Counter() for key in sizes}
    for example in examples if stratified else ():
        owned[unit(example)].update(labels(example))
    parts, filled = _deal(sizes, owned, folds)
    units = find_units(examples, unit=unit, labels=labels).values()
    for keys in units:
        if len(keys) > 1 and len({parts[key] for key in keys}) == 1:
            others = [part for part in range(folds) if part != parts[keys[0]]]
            parts[keys[-1]] = min(others, key=lambda part: filled[part])
            filled[parts[keys[-1]]] += sizes[keys[-1]]
    for keys in units:
        if len({parts[key] for key in keys}) == 1:
            parts |= dict.fromkeys(keys, folds)
    sides: tuple[list[Example], list[Example]] = ([], [])
    for example in examples:
        sides[parts[unit(example)] == fold].append(example)
    return sides


def _deal(
    sizes: Mapping[str, int], owned: Mapping[str, Counter[str]], folds: int
) -> tuple[dict[str, int], list[int]]:
    """(the part of each unit, the examples of each part). A unit goes to the part with the least of
    its labels, then to the one with the fewest examples; units of the rarest label come first,
    large ones before small ones.

    Args:
        sizes: The examples of each unit.
        owned: The labels of each unit that are divided evenly, with their numbers.
        folds: The number of parts.
    """
    counts = sum(owned.values(), Counter[str]())

    def rank(key: str) -> tuple[int, str, int, bytes]:
        rarest = min(((counts[label], label) for label in owned[key]), default=(0, ""))
        large = sizes[key] if owned[key] else 0
        return (*rarest, -large, hashlib.sha256(key.encode()).digest())

    parts, filled, taken = dict[str, int](), [0] * folds, [Counter[str]() for _ in range(folds)]
    for key in sorted(sizes, key=rank):
        own = owned[key].items()
        shares = [sum(n * held[label] / counts[label] for label, n in own) for held in taken]
        loads = [*zip(shares, filled, strict=True)]
        parts[key] = loads.index(min(loads))
        filled[parts[key]] += sizes[key]
        taken[parts[key]].update(owned[key])
    return parts, filled


def find_units(
    examples: Iterable[Example],
    *,
    unit: Callable[[Example], str],
    labels: Callable[[Example], Iterable[str]],
) -> dict[str, list[str]]:
    """{label: the units with it, in their order}."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for example in examples:
        for label in labels(example):
            found[label][unit(example)] = None
    return {label: [*keys] for label, keys in sorted(found.items())}


def hold_out(
    examples: Sequence[Example],
    share: float,
    *,
    unit: Callable[[Example], str],
    labels: Callable[[Example], Iterable[str]],
    balanced: bool = False,
) -> tuple[list[Example], list[Example]]:
    """(train, dev), both in the order of `examples`; dev has about `share` of them, and none where
    that is impossible.

    Examples of one `unit` are on the same side: the hash of the unit decides, independent of other
    examples. All `labels` of dev occur in train, too.

    Args:
        unit: The unit of an example; examples of one stay together.
        balanced: Whether dev has the same share of each label, as far as units allow. The units of
            the rarest label come first (Sechidis et al., 2011, iterative stratification). A label
            with two examples has one in dev.
    """
    units: dict[bytes, list[int]] = defaultdict(list)
    for index, example in enumerate(examples):
        units[hashlib.sha256(unit(example).encode()).digest()].append(index)
    remaining = Counter(label for example in examples for label in labels(example))
    target, order = max(1, round(share * len(examples))), sorted(units)
    room = max(target, min(map(len, units.values()), default=0))
    owned = {
        key: Counter(label for index in units[key] for label in labels(examples[index]))
        for key in order
    }
    dev: set[int] = set()
    for key in _order_evenly(owned, share) if balanced else order if len(units) > 1 else ():
        if len(dev) + len(units[key]) > room or not dev.isdisjoint(units[key]):
            continue
        if all(remaining[label] > count for label, count in owned[key].items()):
            dev.update(units[key])
            remaining.subtract(owned[key])
    train = [example for index, example in enumerate(examples) if index not in dev]
    return train, [examples[index] for index in sorted(dev)]


def _order_evenly(owned: Mapping[bytes, Counter[str]], share: float) -> list[bytes]:
    """The units, with `share` of each label at the beginning: those for the rarest label first."""
    counts = Counter[str]()
    for own in owned.values():
        counts.update(own)
    wanted = _divide_wanted(counts, share)
    having = defaultdict[str, list[bytes]](list)
    for key, own in owned.items():
        for label in own:
            having[label].append(key)
    chosen, taken = dict[bytes, None](), Counter[str]()
    for label in sorted(counts, key=lambda label: (counts[label], label)):
        for spare in (0, max(counts.values())):  # units with too many of other labels come last
            for key in having[label]:
                own = owned[key]
                fits = all(taken[each] + n <= wanted[each] + spare for each, n in own.items())
                if taken[label] < wanted[label] and key not in chosen and fits:
                    chosen[key] = None
                    taken.update(own)
    return [*chosen, *(key for key in owned if key not in chosen)]


def _divide_wanted(counts: Counter[str], share: float) -> Counter[str]:
    """The examples of each label in a part, all together `share` of them, by the largest
    remainders; a label with two has one before another has two.
    """
    wanted = Counter({label: int(share * count) for label, count in counts.items()})
    rest = sorted(counts, key=lambda label: (wanted[label] - share * counts[label], label))
    for label in rest[: round(share * counts.total()) - wanted.total()]:
        wanted[label] += 1
    for label in sorted(counts, key=lambda label: (-counts[label], label)):
        if not wanted[label] and counts[label] > 1:
            most = max(wanted, key=lambda each: (wanted[each], each))
            if wanted[most] > 1:
                wanted[most] -= 1
                wanted[label] += 1
    return wanted
