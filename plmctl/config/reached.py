"""The losses that recipes state to have reached, which a run of the same size and target is
compared with.

The file of a recipe states how far its held-out loss had come after so many tokens. It is a share
of the distance from the frequencies of single tokens (0) to those of pairs (1):

    reached:
      mlm: # the target
        tiny: {0.5e6: 0.9, 1e6: 1.2} # size: tokens read: the share of that distance

As a share it carries over to other text and to other vocabularies, roughly.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from plmctl.config.recipes import find_recipe, load, part_files, recipe_names
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, PlmctlError, nearest, raise_all

KEY = "reached"  # in the file of a recipe
EXAMPLE = "reached: {mlm: {tiny: {0.5e6: 0.9, 1e6: 1.2}}}"
GROUPS = "must be a group for each target, with one for each size in it"
SHARE = (
    "must be numbers of tokens, more than 0, each with its share of the distance from the"
    " frequencies of single tokens (0) to those of pairs (1)"
)


@dataclass(frozen=True)
class Reached:
    """The statement of one recipe on one target at one size.

    Args:
        target: The target of the held-out loss.
        points: (tokens read, share), the fewest tokens first.
    """

    recipe: str
    target: str
    size: str
    num_layers: int
    width: int
    points: tuple[tuple[float, float], ...]

    def is_of(self, size: Any) -> bool:
        """Whether the settings of a size have as many layers, as wide."""
        return (self.num_layers, self.width) == (select(size, "num_layers"), select(size, "width"))

    def share_after(self, tokens: float) -> float | None:
        """The share after so many tokens: 0 at none, in proportion between two points, None behind
        the last one.
        """
        for (before, low), (behind, high) in pairwise([(0.0, 0.0), *self.points]):
            if tokens <= behind:
                return low + (high - low) * (tokens - before) / (behind - before)
        return None

    def first_above(self, share: float) -> float | None:
        """The tokens of the first point with a larger share, or None."""
        return next((tokens for tokens, stated in self.points if stated > share), None)


def losses_reached(
    statements: Iterable[Reached], floors: Mapping[str, float], tokens: float
) -> dict[str, float]:
    """{"reached/mlm"}: the loss, in nats, that the best of the recipes had after so many tokens;
    without the targets of which none says it.

    Args:
        statements: The statements on the size of the run.
        floors: `unigram/mlm` and `bigram/mlm`, counted on the text of the run.
        tokens: The tokens that the run has read.
    """
    losses: dict[str, float] = {}
    for statement in statements:
        share, target = statement.share_after(tokens), statement.target
        unigram, bigram = (floors.get(f"{kind}/{target}") for kind in ("unigram", "bigram"))
        if share is None or unigram is None or bigram is None or bigram >= unigram:
            continue
        loss = unigram - share * (unigram - bigram)
        losses[f"reached/{target}"] = min(loss, losses.get(f"reached/{target}", math.inf))
    return losses


def read_reached(recipe: str | None, config_dirs: Sequence[str] = ()) -> list[Reached]:
    """The statements of all recipes that have a name, and of the recipe of the run.

    A file that is not readable, or states it wrongly, is passed over: the run of another recipe
    does not depend on it. The recipe of the run itself is reported.
    """
    sizes = part_files("size", config_dirs)
    names = dict.fromkeys([*recipe_names(config_dirs), *([recipe] if recipe else [])])
    statements: list[Reached] = []
    for name in names:
        with contextlib.suppress(PlmctlError, OSError):
            statements += _read(name, find_recipe(name, config_dirs), sizes)
    return statements


def check_reached(stated: Any, sizes: Collection[str]) -> Iterator[ConfigError]:
    """Every mistake in the form of a recipe's statement; `sizes`: the known names."""
    if stated is None:
        return
    if not isinstance(stated, Mapping):
        yield ConfigError(KEY, stated, GROUPS, fix=EXAMPLE)
        return
    for target, by_size in stated.items():
        if not isinstance(by_size, Mapping):
            yield ConfigError(f"{KEY}.{target}", by_size, GROUPS, fix=EXAMPLE)
            continue
        for size, points in by_size.items():
            path = f"{KEY}.{target}.{size}"
            if size not in sizes:
                unknown = f"there is no such size{nearest(size, sizes)}"
                yield ConfigError(path, ..., unknown, fix=EXAMPLE)
            else:
                yield from _check_points(path, points)


def _check_points(path: str, points: Any) -> Iterator[ConfigError]:
    if not isinstance(points, Mapping) or not points:
        yield ConfigError(path, points, SHARE, fix=EXAMPLE)
        return
    for tokens, share in points.items():
        if not (_is_number(tokens) and tokens > 0 and _is_number(share)):
            yield ConfigError(path, {tokens: share}, SHARE, fix=EXAMPLE)


def _read(name: str, file: Path, sizes: Mapping[str, Path]) -> list[Reached]:
    """The statements in the file of one recipe; without the key it is not even parsed."""
    if KEY not in file.read_text(encoding="utf-8", errors="replace"):
        return []
    stated = load(file).get(KEY) or {}
    raise_all(check_reached(stated, sizes))
    return [
        Reached(name, target, size, *_measure(sizes[size]), tuple(sorted(points.items())))
        for target, by_size in stated.items()
        for size, points in by_size.items()
    ]


def _measure(file: Path) -> tuple[int, int]:
    """The number of layers, and the width, in the file of a size."""
    settings = load(file)
    return settings.get("num_layers", 0), settings.get("width", 0)


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)
