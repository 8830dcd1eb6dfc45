"""A dev set out of the training examples, chosen by what they say."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Example = TypeVar("Example")


def hold_out(
    examples: Sequence[Example],
    share: float,
    *,
    unit: Callable[[Example], str],
    labels: Callable[[Example], Iterable[str]],
) -> tuple[list[Example], list[Example]]:
    """(train, dev), both in the order of `examples`; dev has about `share` of them, and none where
    that cannot be.

    Examples of one `unit` fall on the same side, whatever stands around them: its hash decides.
    Every one of the `labels` of dev is one of train, too.
    """
    units: dict[str, list[int]] = defaultdict(list)
    for place, example in enumerate(examples):
        units[unit(example)].append(place)
    of = {
        key: Counter(label for place in places for label in labels(examples[place]))
        for key, places in units.items()
    }
    left, wanted = sum(of.values(), Counter()), max(1, round(share * len(examples)))
    order = sorted(units, key=lambda key: hashlib.sha256(key.encode()).digest())
    room = max(wanted, min(map(len, units.values()), default=0))
    chosen: set[int] = set()
    for key in order if len(units) > 1 else ():
        if len(chosen) + len(units[key]) <= room and all(
            left[label] > count for label, count in of[key].items()
        ):
            chosen.update(units[key])
            left -= of[key]
    train = [example for place, example in enumerate(examples) if place not in chosen]
    return train, [examples[place] for place in sorted(chosen)]
