"""Measures of trained models: frozen results, each read off an opened model."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from plmctl import analysis
from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import PlmctlError, UsageError, nearest
from plmctl.core.members import find_members
from plmctl.core.unwritten import place_of


class Measure(ABC):
    """A property of a trained model. A subclass is a frozen dataclass with the result in it."""

    name: ClassVar[str]  # the key of the result

    @classmethod
    @abstractmethod
    def of(cls, opened: Loaded) -> Self | None:
        """Measure a model.

        Returns:
            None where the model has nothing of this kind.

        Raises:
            DataError: It has, and does not record it.
        """


def find_measures(plugins: Sequence[str] = ()) -> dict[str, type[Measure]]:
    """{name: measure} of all modules of this package and of the plug-ins.

    Raises:
        UsageError: A measure has no name, or that of another one.
    """
    found: dict[str, type[Measure]] = {}
    for measure in find_members(analysis, plugins, _is_measure):
        name = getattr(measure, "name", None)
        fix = f'name: ClassVar[str] = "{measure.__name__.lower()}", in the class'
        if not isinstance(name, str):
            raise UsageError(
                f"{place_of(measure)} has no name, the key of its result\n  fix: {fix}"
            )
        if name in found:
            other = f"the name of {place_of(found[name])}, too"
            raise UsageError(f"{place_of(measure)}: '{name}' is {other}\n  fix: {fix}")
        found[name] = measure
    return found


def _is_measure(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Measure) and not inspect.isabstract(value)


def measure_model(
    opened: Loaded,
    names: Sequence[str] | None = None,
    plugins: Sequence[str] = (),
    sentences: Sequence[str] = (),
) -> dict[str, Measure]:
    """{name: result} of the measures that a model has something for.

    Args:
        names: The measures; None for all, where one that fails is left out.
        sentences: The text for measures that read sentences; without any they read their own.
    """
    known = find_measures(plugins)
    for name in names or ():
        if name not in known:
            allowed = f"one of {', '.join(sorted(known))}{nearest(name, known)}"
            raise UsageError(f"measures: there is no '{name}'; {allowed}")
    given = {"sentences": sentences} if sentences else {}
    readers = [
        name for name, each in known.items() if "sentences" in inspect.signature(each.of).parameters
    ]
    if given and names is not None and not set(names).intersection(readers):
        raise UsageError(
            f"sentences: none of {', '.join(names)} reads any; {', '.join(readers)} do"
        )
    results: dict[str, Measure] = {}
    for name in known if names is None else names:
        try:
            result = known[name].of(opened, **(given if name in readers else {}))
        except PlmctlError:
            if names is not None:
                raise
            continue
        if result is not None:
            results[name] = result
    return results
