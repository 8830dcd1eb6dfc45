"""The words of a command line in Hydra's grammar: their meaning, and the settings they change."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from plmctl.config import schema
from plmctl.config.composer import HydraComposer, to_plain
from plmctl.config.plain_composition import UNSET, Unusual
from plmctl.config.quoting import read_name
from plmctl.config.references import register
from plmctl.config.walks import scalars_in, select
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.spelling import spell_setting

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride
    from omegaconf import DictConfig


class Sweep(NamedTuple):
    """The values of a word: a list, or both ends of an interval."""

    values: tuple[Any, ...]  # plain values; none of an interval
    ends: tuple[Any, Any] | None  # whole numbers where `int(...)` says so
    tags: frozenset[str]


class Override:
    """One word of a command line, as Hydra's grammar reads it."""

    def __init__(self, parsed: HydraOverride) -> None:
        self._parsed = parsed
        self.key = parsed.key_or_group
        self.of_hydra = parsed.is_hydra_override()
        self.sweeps = parsed.is_sweep_override()
        self.endless = self.sweeps and not parsed.is_discrete_sweep()  # an interval

    @property
    def removes(self) -> bool:
        """Whether it takes the setting away: `~key`, or null."""
        return self._parsed.is_delete() or self._parsed.value() is None

    @property
    def typed_key(self) -> str:
        """The setting as it is typed, with its `+`."""
        return str(self._parsed.get_key_element())

    def sweep(self) -> Sweep:
        """Its values; the only one of a word that does not sweep."""
        if not self.sweeps:
            return Sweep((_to_value(self._parsed.value()),), None, frozenset())
        sweep: Any = self._parsed.value()
        if self.endless:
            return Sweep((), (sweep.start, sweep.end), frozenset(sweep.tags))
        values = tuple(map(_to_value, self._parsed.sweep_iterator()))
        return Sweep(values, None, frozenset(sweep.tags))

    def choices(self) -> list[str]:
        """The names of part files that it may choose."""
        if self.removes:
            return []
        discrete = self._parsed.is_discrete_sweep()
        values = list(self._parsed.sweep_iterator()) if discrete else [self._parsed.value()]
        flat = [
            option for value in values for option in (value if isinstance(value, list) else [value])
        ]
        return ["null" if each is None else str(getattr(each, "text", each)) for each in flat]

    def words(self) -> Iterator[str]:
        """The override of each job of a sweep; itself where it is none; the start of an interval,
        where a search begins.
        """
        key = self._parsed.get_key_element()
        if not self.sweeps:
            yield str(self._parsed.input_line)
        elif self.endless:
            yield f"{key}={self._parsed.value().start}"  # type: ignore[union-attr]
        else:
            yield from (f"{key}={value}" for value in self._parsed.sweep_string_iterator())

    def in_jobs(self) -> tuple[str, ...]:
        """The override of each job of a sweep, spelled as Hydra does; none for an interval, whose
        jobs a search chooses.
        """
        if self.endless:
            return ()
        if self._parsed.is_delete():
            return (str(self._parsed.input_line),)
        if self.sweeps:
            return tuple(self.words())
        value = self._parsed.get_value_element_as_str()
        return (f"{self._parsed.get_key_element()}={value}",)


def _to_value(element: Any) -> Any:
    """An element of Hydra's grammar as a plain value."""
    if isinstance(element, dict):
        return {str(_to_value(key)): _to_value(value) for key, value in element.items()}
    if isinstance(element, list):
        return [_to_value(value) for value in element]
    return getattr(element, "text", element)


def parse_word(word: str, composer: HydraComposer) -> Override:
    """ValueError with Hydra's reason where `word` cannot be read."""
    from hydra.errors import HydraException

    try:
        parsed = _parse(word)
        if parsed.is_sweep_override():
            parsed = replace(parsed, config_loader=composer.loader)
        return Override(parsed)
    except HydraException as error:
        raise ValueError(str(error).splitlines()[0]) from None


@functools.lru_cache(maxsize=4096)
def _parse(word: str) -> HydraOverride:
    """An override as Hydra's grammar reads it; one composition asks several times."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_overrides([word])[0]


def set_values(config: dict[str, Any], words: Sequence[str]) -> list[UsageError]:
    """Apply value overrides as Hydra does, one by one, so that each bad one is reported."""
    bad: list[UsageError] = []
    for override in map(_parse, words):
        plain = not override.is_delete() and not override.is_force_add() and not override.package
        try:
            if not plain:
                raise Unusual
            key, value = override.key_or_group, override.value()
            if key in schema.MANY and isinstance(value, list) and select(config, key) is None:
                bad.append(_explain_list(key, value, config))
                continue
            _set_plainly(config, key, value, adds=override.is_add())
        except Unusual:
            bad += _set_by_hydra(config, override)
    return bad


def _set_plainly(config: dict[str, Any], key: str, value: Any, *, adds: bool) -> None:
    """Put a value at a dotted key; with `adds`, the name must be new."""
    node: Any = config
    *above, last = key.split(".")
    for name in above:
        node = node.get(name) if type(node) is dict else None
    if type(node) is not dict or not re.fullmatch(r"\w+", last):
        raise Unusual
    old = node.get(last)
    if (last in node) == adds or isinstance(old, dict):
        raise Unusual
    refers = any("${" in str(each) for each in (old, value) if isinstance(value, (str, list)))
    if isinstance(value, dict) or refers or value == UNSET:
        raise Unusual
    node[last] = value


def _set_by_hydra(config: dict[str, Any], override: HydraOverride) -> Iterator[UsageError]:
    """Apply an override of any kind."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    register()
    nodes = OmegaConf.create(config)
    OmegaConf.set_struct(nodes, True)
    try:
        ConfigLoaderImpl._apply_overrides_to_config([override], nodes)
    except HydraException as error:
        if "Cannot merge DictConfig with ListConfig" in str(error.__cause__):
            yield _explain_list(override.key_or_group, override.value(), nodes)
            return
        unknown = re.search(r"Key '(.+?)' is not in struct", str(error.__cause__))
        why = (
            f"there is no '{unknown[1]}' there"
            if unknown
            else f"{error} {error.__cause__ or ''}".strip()
        )
        yield UsageError(read_name(f"{override.input_line}: {why}"))
        return
    config.clear()
    config |= OmegaConf.to_container(nodes)  # type: ignore[arg-type]


def _explain_list(key: str, value: Any, config: DictConfig | dict[str, Any]) -> UsageError:
    """A list as the value of a mapping. The fix sets one of its names, or for a mapping of parts
    takes the list of the slot.
    """
    slot = key.rpartition(".")[2]
    first = next(scalars_in(select(to_plain(config), key), key), (key, "{<name>:<value>}"))
    fix = f"{key}='${{{slot}}}'" if slot in schema.MANY else spell_setting(*first)
    return ConfigError(key, value, "a mapping of names to values, not a list", fix=fix)
