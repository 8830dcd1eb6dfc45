"""The part files as Hydra reads them: what plmctl and Hydra ship is parsed once a process."""

from __future__ import annotations

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource

from plmctl.storage.settings_file import refuse_bad_yaml

SHIPPED = ("main", "hydra")  # who provides the files of plmctl, and those of Hydra
# the parsed files; bytes, since a composition writes into its copy
_PARSED: dict[tuple[str, str, str], bytes] = {}
_SOURCES: dict[tuple[str, str], ConfigSource] = {}


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
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        owner = source.provider if source else None
        # the store of classes holds Hydra's own settings, and the recipes of each composition
        shipped = owner in SHIPPED or (owner == "schema" and config_path.startswith("hydra/"))
        if source is None or not shipped:
            place = source.path.removeprefix("file://") if source else ""
            with refuse_bad_yaml(Path(place, f"{config_path}.yaml")):
                return super().load_config(config_path)
        key = source.provider, source.path, config_path
        if key not in _PARSED:
            _PARSED[key] = pickle.dumps(super().load_config(config_path))
        parsed: ConfigResult = pickle.loads(_PARSED[key])
        return parsed

    def __deepcopy__(self, memo: dict[int, Any]) -> PartFiles:
        """A copy with the same sources, which nothing changes; Hydra copies the repository for
        every composition, to look for other sources.
        """
        return copy.copy(self)


def _remember(source: ConfigSource) -> ConfigSource:
    """The source of such files that looks for each of them once a process."""
    found = _SOURCES.setdefault((source.provider, source.path), source)
    if found is source:
        for question in ("is_config", "is_group", "list"):
            setattr(source, question, functools.cache(getattr(source, question)))
    return found
