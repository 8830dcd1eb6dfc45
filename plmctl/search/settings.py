"""A space of settings: words in Hydra's sweep grammar."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plmctl.config.composer import HydraComposer, open_composer
from plmctl.config.quoting import quote
from plmctl.config.word_grammar import Sweep, parse_word
from plmctl.core.errors import ConfigError, PlmctlError, UsageError, collect, raise_all
from plmctl.core.parts import part_of
from plmctl.core.spelling import spell, spell_setting
from plmctl.search.dimension import Dimension, Interval, Layouts, Options
from plmctl.search.layouts import parse_grammar
from plmctl.search.space import Point, Space

LOG, LAYOUT = "log", "layout"  # tags of a word
SHORT = re.compile(r"=\s*log\((.*)\)\s*$")  # optim.lr=log(1e-5,1e-3)


@part_of("space")
class SettingsSpace(Space):
    """Every combination of the values of some settings.

    Args:
        words: Settings with their values in Hydra's sweep grammar: `size=tiny,mini`,
            `train.batch_size=range(8,65,8)`, `optim.beta2=interval(0.9,0.999)`,
            `optim.lr=tag(log,interval(1e-5,1e-3))` or in short `optim.lr=log(1e-5,1e-3)`,
            `size.num_layers=int(interval(2,8))`, and layouts by a grammar,
            `model.stack.layout=tag(layout,choice('(af|fa){2}'))`.
        named: Points with a name, {name: {setting: value}}.

    Raises:
        UsageError: A word cannot be read or has no values, or there is no word.
    """

    def __init__(
        self, words: Sequence[str] = (), named: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.words, self.named = tuple(words), dict(named or {})
        if not self.words:
            raise ConfigError(
                "space.words",
                [],
                "a setting with its values, at least",
                fix=spell_setting("space.words", ["optim.lr=log(1e-5,1e-3)"]),
            )
        errors: list[PlmctlError] = []
        self._dimensions: dict[str, Dimension] = {}
        with open_composer("pretrain") as composer:
            for word in self.words:
                with collect(errors):
                    key, dimension = read_dimension(word, composer)
                    if key in self._dimensions:
                        raise UsageError(f"space.words: {key} is there twice")
                    self._dimensions[key] = dimension
        raise_all(errors)
        raise_all(self._find_wrong_seeds())

    @property
    def dimensions(self) -> Mapping[str, Dimension]:
        """{setting: its values}."""
        return self._dimensions

    def draw(self, random: np.random.Generator) -> Point:
        """Draw every setting, in the order of the words."""
        return {key: each.draw(random) for key, each in self.dimensions.items()}

    def mutate(self, point: Point, random: np.random.Generator) -> Point:
        """Change one setting that has another value."""
        keys = [key for key, each in self.dimensions.items() if _is_open(each)]
        if not keys:
            return dict(point)
        key = keys[int(random.integers(len(keys)))]
        return {**point, key: self.dimensions[key].change(point[key], random)}

    def overrides(self, point: Point) -> tuple[str, ...]:
        """Each setting as a word."""
        return tuple(f"{key}={spell(value)}" for key, value in point.items())

    def brief(self, point: Point, parent: Point | None = None) -> str:
        """Each setting as a word, with four digits of a number."""
        short = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in point.items()}
        return " ".join(self.overrides(short))

    def problems(self, point: Point) -> str | None:
        """The first setting with a value that is not in the space."""
        if (lacking := self.dimensions.keys() ^ point.keys()) != set():
            return f"{', '.join(sorted(lacking))} must be set, and nothing else"
        return next(
            (
                f"{spell_setting(key, point[key])} is not in the space"
                for key, each in self.dimensions.items()
                if not each.holds(point[key])
            ),
            None,
        )

    def points(self) -> Iterator[Point] | None:
        """Every combination, the last setting changing fastest; None with an interval."""
        values = [each.values() for each in self.dimensions.values()]
        listed = [each for each in values if each is not None]
        if len(listed) < len(values):
            return None
        return (
            dict(zip(self.dimensions, point, strict=True)) for point in itertools.product(*listed)
        )

    def seeds(self) -> Mapping[str, Point]:
        """The points with a name."""
        return self.named

    def _find_wrong_seeds(self) -> Iterator[UsageError]:
        for name, point in self.named.items():
            if why := self.problems(point):
                yield UsageError(f"space.named.{name}: {why}")


def read_dimension(word: str, composer: HydraComposer) -> tuple[str, Dimension]:
    """(the setting of a word, its values).

    Raises:
        UsageError: The word cannot be read, or has no values.
    """
    if "=" not in word:
        fix = spell_setting("space.words", ["optim.lr=1e-4,1e-3"])
        raise UsageError(
            f"space.words: {word}: has no =; a word with commas stands in quotes\n  fix: {fix}"
        )
    try:
        text = quote(SHORT.sub(r"=tag(log,interval(\1))", word), sweep=True)
        override = parse_word(text, composer)
        return override.typed_key, make_dimension(override.sweep())
    except ValueError as error:
        raise UsageError(f"space.words: {word}: cannot be read ({error})") from None


def make_dimension(sweep: Sweep) -> Dimension:
    """The dimension of a sweep; ValueError for ends in the wrong order, or a broken grammar."""
    if LAYOUT in sweep.tags:
        text = "|".join(map(str, sweep.values))
        parse_grammar(text)
        return Layouts(text)
    if sweep.ends is None:
        if not sweep.values:
            raise ValueError("it has no values")
        values = list(sweep.values)
        return Options(tuple(v for n, v in enumerate(values) if not _is_among(v, values[:n])))
    low, high = sweep.ends
    log = LOG in sweep.tags
    if low > high:
        raise ValueError(f"{low} is above {high}")
    if log and low <= 0:
        raise ValueError(f"the logarithm of {low} is no number")
    return Interval(low, high, log=log, whole=isinstance(low, int) and isinstance(high, int))


def _is_among(value: Any, others: Sequence[Any]) -> bool:
    """Whether a value is there already: 1 is 1.0, and true is neither."""
    kind = isinstance(value, bool)
    return any(value == other and isinstance(other, bool) is kind for other in others)


def _is_open(dimension: Dimension) -> bool:
    """Whether a dimension has a second value."""
    values = dimension.values()
    return values is None or len(values) > 1
