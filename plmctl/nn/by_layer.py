"""Settings of cells that differ from layer to layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.locate import parameters
from plmctl.core.values import fit
from plmctl.nn.cells.base import Cell

Factory = Callable[..., Cell]
# {letter of the layout: {setting of its cell: one value for each copy}}
ByLayer = Mapping[str, Mapping[str, Sequence[Any]]]


def build_cells(
    cells: Mapping[str, Factory],
    copies: Mapping[str, int],
    by_layer: ByLayer,
    widths: Mapping[str, int] = MappingProxyType({}),
    last: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, list[Cell]]:
    """The cells of every letter, each with its own values of the settings in `by_layer`.

    Args:
        cells: {letter: factory}.
        copies: {letter: how many cells are built}.
        by_layer: {letter: {setting: as many values as copies}}.
        widths: {letter: columns of the stream}, for cells that read only some.
        last: {letter: settings of its last copy}.

    Raises:
        ConfigError: An unknown letter or setting, a list of another length, a wrong value.
    """
    for letter in by_layer:
        if letter not in copies:
            allowed = f"a cell of the layout: {', '.join(copies)}{nearest(letter, copies)}"
            raise ConfigError("model.stack.by_layer", letter, allowed)
    built: dict[str, list[Cell]] = {}
    for letter, number in copies.items():
        width = {"width": widths[letter]} if letter in widths else {}
        settings = _fit_settings(letter, cells[letter], by_layer.get(letter) or {}, number)
        built[letter] = [
            _build_cell(
                letter,
                partial(cells[letter], **width),
                {name: values[i] for name, values in settings.items()}
                | (dict(last.get(letter) or {}) if i == number - 1 else {}),
            )
            for i in range(number)
        ]
    return built


def _fit_settings(
    letter: str, factory: Factory, settings: Mapping[str, Sequence[Any]], number: int
) -> dict[str, list[Any]]:
    """The values of each setting, converted by the cell's own annotations."""
    if not settings:
        return {}
    known = parameters(factory.func if isinstance(factory, partial) else factory)
    by_name: dict[str, list[Any]] = {}
    for name, values in settings.items():
        path = f"model.stack.by_layer.{letter}.{name}"
        if name not in known:
            allowed = f"a setting of '{letter}': {', '.join(known)}{nearest(name, known)}"
            raise ConfigError(path, values, allowed)
        if not isinstance(values, list | tuple) or len(values) != number:
            allowed = f"a list of {number} values, one for each '{letter}' of the layout"
            raise ConfigError(path, values, allowed)
        try:
            by_name[name] = [fit(value, known[name].annotation) for value in values]
        except ValueError as error:
            raise ConfigError(path, list(values), f"each {error}") from None
    return by_name


def _build_cell(letter: str, factory: Factory, settings: Mapping[str, Any]) -> Cell:
    try:
        return factory(**settings)
    except ConfigError as error:  # the cell knows what is wrong, but not where in the config
        name = error.path.rpartition(".")[2]
        if name not in settings:
            raise
        path = f"model.stack.by_layer.{letter}.{name}"
        raise ConfigError(path, settings[name], error.allowed) from None
