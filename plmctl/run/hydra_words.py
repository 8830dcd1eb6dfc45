"""The words of a command line as Hydra reads and applies them."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from plmctl.core.errors import ConfigError, UsageError
from plmctl.run import schema
from plmctl.run.spelling import spell
from plmctl.run.usual_files import set_usual
from plmctl.run.walks import scalars_in, select

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride
    from omegaconf import DictConfig


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

    def choices(self) -> list[str]:
        """The names of part files that it may choose."""
        if self.removes:
            return []
        discrete = self._parsed.is_discrete_sweep()
        values = list(self._parsed.sweep_iterator()) if discrete else [self._parsed.value()]
        flat = [
            option for value in values for option in (value if isinstance(value, list) else [value])
        ]
        return [str(getattr(option, "text", option)) for option in flat]

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


def parse_word(word: str, loader: Any = None) -> HydraOverride:
    """One word of a command line, or Hydra's exception; only a `glob(...)` needs the loader."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if "(" in word:
        return OverridesParser.create(loader).parse_overrides([word])[0]
    return _parse_plain(word)


@functools.lru_cache(maxsize=4096)
def _parse_plain(word: str) -> HydraOverride:
    return _parser().parse_overrides([word])[0]


@functools.cache
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


def set_values(settings: dict[str, Any], words: Sequence[str]) -> list[UsageError]:
    """Apply value overrides as Hydra does, one by one, so that each bad one is reported; those
    that only change a value need no node of OmegaConf.
    """
    overrides = [parse_word(word) for word in words]
    left = list(itertools.dropwhile(lambda override: _set(settings, override), overrides))
    if not left:
        return []
    from omegaconf import OmegaConf

    config = OmegaConf.create(settings)
    OmegaConf.set_struct(config, True)
    bad = _apply(config, left)
    for removed in settings.keys() - config.keys():
        del settings[removed]
    settings |= to_plain(config)
    return bad


def _set(settings: dict[str, Any], override: HydraOverride) -> bool:
    """Whether a word only changed a value, which is done then."""
    marked = override.is_add() or override.is_force_add() or override.is_delete()
    if marked or override.package is not None:
        return False
    return set_usual(settings, override.key_or_group, override.value())


def _apply(config: DictConfig, overrides: Sequence[HydraOverride]) -> list[UsageError]:
    """Hydra's own way of applying overrides."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.errors import HydraException

    bad: list[UsageError] = []
    for override in overrides:
        try:
            ConfigLoaderImpl._apply_overrides_to_config([override], config)
        except HydraException as error:
            if "Cannot merge DictConfig with ListConfig" in str(error.__cause__):
                bad.append(_explain_list(override.key_or_group, override.value(), config))
                continue
            unknown = re.search(r"Key '(.+?)' is not in struct", str(error.__cause__))
            why = (
                f"there is no '{unknown[1]}' there"
                if unknown
                else f"{error} {error.__cause__ or ''}".strip()
            )
            bad.append(UsageError(f"{override.input_line}: {why}"))
    return bad


def _explain_list(key: str, value: Any, config: DictConfig) -> UsageError:
    """A list as the value of a mapping: how one of its names is set, or for a mapping of parts how
    the list of the slot is taken.
    """
    slot = key.rpartition(".")[2]
    first = next(scalars_in(select(to_plain(config), key), key), (key, "{<name>:<value>}"))
    fix = f"{key}='${{{slot}}}'" if slot in schema.MANY else f"{first[0]}={spell(first[1])}"
    return ConfigError(key, value, "a mapping of names to values, not a list", fix=fix)


def to_plain(config: DictConfig) -> dict[str, Any]:
    """The settings of a composition as plain values, references as they stand, without Hydra's
    own.
    """
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(config)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items() if key != "hydra"}
