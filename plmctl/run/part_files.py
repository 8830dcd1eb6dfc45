"""The part files as Hydra reads them: what plmctl and Hydra ship is parsed once a process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.default_element import ConfigDefault, GroupDefault, InputDefault
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource

from plmctl.run.hydra_words import to_plain
from plmctl.run.usual_files import DefaultsEntry, PartFile, Unusual

# what was read; bytes, since a composition writes into what it gets
_PARSED: dict[tuple[str, str, str], bytes] = {}
_PLAIN: dict[tuple[str, str, str], PartFile] = {}  # which nobody changes


class PartFiles(ConfigRepository):
    """Hydra's repository, which parses shipped files once: they do not change while a process
    runs, as those of a user may.
    """

    def load_config(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path=config_path, object_type=ObjectType.CONFIG)
        if source is None or not _is_shipped(source, config_path):
            return super().load_config(config_path)
        key = source.provider, source.path, config_path
        if key not in _PARSED:
            _PARSED[key] = pickle.dumps(super().load_config(config_path))
        parsed: ConfigResult = pickle.loads(_PARSED[key])
        return parsed

    def read_plain(self, path: str) -> PartFile | None:
        """What the file at `group/option` states, as plain values; None where there is none.

        Raises:
            Unusual: It takes Hydra to read it.
        """
        source = self._find_object_source(config_path=path, object_type=ObjectType.CONFIG)
        if source is None:
            return None
        if not _is_shipped(source, path):
            return _simplify(super().load_config(path))
        key = source.provider, source.path, path
        if key not in _PLAIN:
            _PLAIN[key] = _simplify(super().load_config(path))
        return _PLAIN[key]

    def __deepcopy__(self, memo: dict[int, Any]) -> PartFiles:
        """A copy with the same sources, which nothing changes; Hydra copies the repository for
        every composition, to look for other sources.
        """
        return copy.copy(self)


def _is_shipped(source: ConfigSource, path: str) -> bool:
    """Whether what a source has at `path` stays the same while the process runs; the store of
    classes holds Hydra's own settings and our plumbing, and the recipes of each composition.
    """
    return source.provider in ("main", "hydra") or (
        source.provider == "schema" and path.startswith(("hydra/", "plumbing/"))
    )


def _simplify(read: ConfigResult | None) -> PartFile:
    """What Hydra read, if it is of the usual kind."""
    config: Any = read.config if read else None
    is_group = isinstance(config, Mapping)
    if read is None or not is_group or "hydra" in config:
        raise Unusual
    header = read.header["package"]
    if header is not None and not header.replace(".", "_").isidentifier():
        raise Unusual
    entries = [_simplify_entry(entry) for entry in read.defaults_list or ()]
    if entries.count(None) > 1:
        raise Unusual
    return PartFile(header, tuple(entries), to_plain(config))


def _simplify_entry(entry: InputDefault) -> DefaultsEntry | None:
    """One entry of a defaults list; None for `_self_`."""
    if isinstance(entry, ConfigDefault):
        group, _, name = str(entry.path).rpartition("/")
        if not name.isidentifier():
            raise Unusual
        return None if entry.is_self() else DefaultsEntry(group, entry.package, name, fixed=True)
    if not isinstance(entry, GroupDefault):
        raise Unusual
    options = entry.value if isinstance(entry.value, list) else [entry.value or "null"]
    if entry.optional or not all(option.isidentifier() for option in options):
        raise Unusual
    assert entry.group is not None
    return DefaultsEntry(entry.group, entry.package, entry.value, entry.override)
