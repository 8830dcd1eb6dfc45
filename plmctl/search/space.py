"""A space: the individuals that a search may train, as points that are plain JSON."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from plmctl.core.parts import base_of
from plmctl.search.dimension import Dimension

Point = Mapping[str, Any]  # plain JSON: texts, numbers, lists and mappings of them


def compute_point_key(point: Point) -> str:
    """16 hexadecimal digits, equal for equal points."""
    text = json.dumps(point, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@base_of("space")
class Space(ABC):
    """The points among which a search chooses.

    A point is a function of the generator alone: no space keeps state.
    """

    @property
    def dimensions(self) -> Mapping[str, Dimension]:
        """The independent settings of a point by name; none where a point has another structure.
        Models of the space (TPE, CMA-ES, a Gaussian process) and importances need them.
        """
        return {}

    @abstractmethod
    def draw(self, random: np.random.Generator) -> Point:
        """Draw a point at random."""

    @abstractmethod
    def mutate(self, point: Point, random: np.random.Generator) -> Point:
        """A copy of `point` with one change, drawn at random."""

    @abstractmethod
    def overrides(self, point: Point) -> tuple[str, ...]:
        """The words of a command line that make this point of the usual settings."""

    def brief(self, point: Point, parent: Point | None = None) -> str:
        """A point in few words, for tables; a change of a `parent` by what is changed, where the
        whole is long.
        """
        return " ".join(self.overrides(point))

    def problems(self, point: Point) -> str | None:
        """Why a point cannot be built, in a sentence; None where it can. A strategy draws again."""
        return None

    def points(self) -> Iterator[Point] | None:
        """Every point in a fixed order; None where they cannot be listed."""
        return None

    def seeds(self) -> Mapping[str, Point]:
        """Points with a name, with which an evolution may start (`strategy.start=[NAME]`)."""
        return {}

    def describe(self, point: Point) -> Mapping[str, float]:
        """Numbers of a point by name, which a page plots against the fitness."""
        return {}
