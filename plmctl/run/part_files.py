"""The part files as Hydra reads them: what plmctl and Hydra ship is parsed once a process."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

from hydra._internal import defaults_list
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf

from plmctl.run.merging import UnusualMerge, embed, merge

SHIPPED = ("main", "hydra")  # who provides the files of plmctl, and those of Hydra
Key = tuple[str, str, str]  # provider, its place, path of the file
# what was read; bytes, since a composition of Hydra writes into what it gets
_PARSED: dict[Key, bytes] = {}
_SOURCES: dict[tuple[str, str], ConfigSource] = {}
_SHARED: dict[Key, ConfigResult] = {}
_PLAIN: dict[Key, dict[str, Any]] = {}


class PartFiles(ConfigRepository):
    """Hydra's repository, which parses shipped files once: they do not change while a process
    runs, as those of a user may.
    """

    def __init__(self, search: ConfigSearchPath) -> None:
        super().__init__(search)
        self.sources = [
            _remember(source) if source.provider in SHIPPED else source for source in self.sources
        ]

    def load_config(self, config_path: str) -> ConfigResult | None:
        key = self.find_shipped(config_path)
        if key is None:
            return super().load_config(config_path)
        if key not in _PARSED:
            _PARSED[key] = pickle.dumps(super().load_config(config_path))
        parsed: ConfigResult = pickle.loads(_PARSED[key])
        return parsed

    def find_shipped(self, config_path: str) -> Key | None:
        """What a shipped file is known by; None for one of a user."""
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        owner = source.provider if source else None
        # the store of classes holds Hydra's own settings, and the recipes of each composition
        shipped = owner in SHIPPED or (owner == "schema" and config_path.startswith("hydra/"))
        return (source.provider, source.path, config_path) if source and shipped else None

    def __deepcopy__(self, memo: dict[int, Any]) -> PartFiles:
        """A copy with the same sources, which nothing changes; Hydra copies the repository for
        every composition, to look for other sources.
        """
        return copy.copy(self)


class SharedFiles(PartFiles):
    """The files of one composition that writes into none of them: shipped ones are not copied."""

    def __init__(self, files: PartFiles) -> None:
        self.sources = files.sources
        self._read: dict[str, ConfigResult | None] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._read:
            key = self.find_shipped(config_path)
            found = _SHARED.get(key) if key else None
            if found is None and (found := super().load_config(config_path)) is not None:
                found.defaults_list = _Defaults(found.defaults_list or ())
                if key:
                    _SHARED[key] = found
            self._read[config_path] = found
        return self._read[config_path]

    def compose(self, files: list[ResultDefault]) -> dict[str, Any]:
        """The settings of all files, each written over those before it; UnusualMerge where Hydra
        has to do it.
        """
        settings: dict[str, Any] = {}
        for file in files:
            assert file.config_path is not None
            found = self.load_config(file.config_path)
            assert found is not None
            package = found.header["package"] if file.package is None else file.package
            merge(settings, embed(package, self._settings_in(file.config_path, found)))
        return settings

    def _settings_in(self, config_path: str, found: ConfigResult) -> dict[str, Any]:
        key = self.find_shipped(config_path)
        if key and key in _PLAIN:
            return _PLAIN[key]
        config = found.config
        if not isinstance(config, DictConfig) or config._is_typed():
            raise UnusualMerge
        # Hydra would check it by what the store has under its name
        if not found.is_schema_source and self.get_schema_source().is_config(config_path):
            raise UnusualMerge
        plain = OmegaConf.to_container(config)
        if not isinstance(plain, dict) or "hydra" in plain:
            raise UnusualMerge
        settings = {str(name): value for name, value in plain.items()}
        if key:
            _PLAIN[key] = settings
        return settings


class _Defaults(list[Any]):
    """The choices that a file states; Hydra copies them for every composition, and changes which
    choice each is, but nothing inside.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [copy.copy(choice) for choice in self]


def _remember(source: ConfigSource) -> ConfigSource:
    """The source of such files that looks for each of them once a process."""
    found = _SOURCES.setdefault((source.provider, source.path), source)
    if found is source:
        for question in ("is_config", "is_group", "list"):
            setattr(source, question, functools.cache(getattr(source, question)))
    return found


def _know_choices(overrides: Any, defaults: Any, self_added: bool) -> DictConfig:
    """The choices that others refer to. Hydra makes them for every file, half of a composition,
    and reads them where a file has such a reference.
    """
    if any(choice.is_interpolation() for choice in defaults):
        return _all_choices(overrides, defaults, self_added)
    return OmegaConf.create()


_all_choices = defaults_list._create_interpolation_map
defaults_list._create_interpolation_map = _know_choices  # type: ignore[assignment]
