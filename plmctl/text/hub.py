"""A data set of the `datasets` library, in a folder or in the local cache of the Hugging Face hub,
read row by row.

Nothing is downloaded, except with HF_HUB_OFFLINE=0: rows then come from the hub as they are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from plmctl.core.errors import DataError, UsageError
from plmctl.core.extras import require_library
from plmctl.storage.hub import PREFIX, HubName

OFFLINE = "HF_HUB_OFFLINE"  # the library's own switch
FORM = "hf:<name>[@revision][:config][:split]"
EXAMPLE = "data.path=hf:Salesforce/wikitext:train"


@dataclass(frozen=True)
class DataSet:
    """The data set `hf:<name>[@revision][:config][:split]`; a single further part is a config if
    the data set has one of that name, else a split. The name may be a folder.
    """

    PREFIX: ClassVar[str] = PREFIX
    path: str

    def __str__(self) -> str:
        return self.path

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (number, fields) of each row, as it arrives."""
        builder, split = self._builder
        try:
            yield from enumerate(builder.as_streaming_dataset(split=split), 1)
        except (OSError, ValueError) as error:
            raise self._unread(error) from error

    def state(self) -> dict[str, Any]:
        """The version of the data, without reading it: revision, or times of files."""
        builder, split = self._builder
        files = (builder.config.data_files or {}).get(split)
        return {
            "bytes": 0,
            "changed": [
                builder.hash,
                [list(map(str, x)) for x in getattr(files, "origin_metadata", [])],
            ],
        }

    @cached_property
    def _builder(self) -> tuple[Any, str]:
        datasets = require_library("datasets", "datasets", str(self))
        named, *parts = self.path.removeprefix(PREFIX).split(":")
        if len(parts) > 2 or not named:
            raise DataError(f"a data set is named {FORM}", file=self, fix=EXAMPLE)
        name, more = self._locate(named)
        try:
            if len(parts) == 1 and parts[0] not in datasets.get_dataset_config_names(name, **more):
                parts = [None, *parts]  # type: ignore[list-item]
            config, split = [*parts, None, None][:2]
            return datasets.load_dataset_builder(name, config, **more), split or "train"
        except (OSError, ValueError) as error:
            raise self._unread(error) from error

    def _locate(self, named: str) -> tuple[str, dict[str, str]]:
        """The name by which the library opens it, and its revision where that is on the hub."""
        if Path(named).expanduser().exists():
            return str(Path(named).expanduser()), {}
        try:
            wanted = replace(HubName.parse(named), kind="dataset")
        except UsageError as error:
            what = f"there is no such folder, and a data set of the hub is named {FORM}"
            raise DataError(what, file=self, fix=EXAMPLE) from error
        if os.environ.get(OFFLINE) == "0" and wanted.folder is None:
            return wanted.name, {"revision": wanted.revision}
        try:
            return str(wanted.find()), {}
        except DataError as error:
            fix = f"{wanted.download}, or export {OFFLINE}=0, which reads its rows from the hub"
            raise DataError(error.message, file=self, fix=fix, exact=True) from error

    def _unread(self, error: Exception) -> DataError:
        message = " ".join(str(error).split())
        return DataError(
            f"cannot be read ({message})", file=self, fix=f"data.path={FORM}, or a file"
        )
