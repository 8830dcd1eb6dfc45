"""A data set of the `datasets` library, on the Hugging Face hub or in a folder, read row by row
without a full download.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from plmctl.core.errors import DataError
from plmctl.core.extras import require_library


@dataclass(frozen=True)
class DataSet:
    """The data set `hf:<name>[:config][:split]`; a single further part is a config if the data set
    has one of that name, else a split.
    """

    PREFIX: ClassVar[str] = "hf:"
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
        name, *parts = self.path.removeprefix(self.PREFIX).split(":")
        if len(parts) > 2 or not name:
            raise DataError(
                "a data set is named hf:<name>[:config][:split]",
                file=self,
                fix="data.path=hf:wikitext:train",
            )
        try:
            if len(parts) == 1 and parts[0] not in datasets.get_dataset_config_names(name):
                parts = [None, *parts]  # type: ignore[list-item]
            config, split = [*parts, None, None][:2]
            return datasets.load_dataset_builder(name, config), split or "train"
        except (OSError, ValueError) as error:
            raise self._unread(error) from error

    def _unread(self, error: Exception) -> DataError:
        message = " ".join(str(error).split())
        return DataError(
            f"cannot be read ({message})",
            file=self,
            fix="data.path=hf:<name>[:config][:split], or a file",
        )
