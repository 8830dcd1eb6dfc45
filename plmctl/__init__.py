"""plmctl: pretrain, fine-tune, evaluate and convert language models, by configuration.

The names in `__all__` are for programs and notebooks (docs/python.md); each is imported when it is
first used, so that `import plmctl` takes no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plmctl.api.analysis import analyse
    from plmctl.api.loading import load, load_adapters
    from plmctl.api.model import TrainedModel
    from plmctl.api.records import RowList
    from plmctl.api.runs import RunFolder, read_run, read_runs
    from plmctl.api.studies import StudyRecord, read_study
    from plmctl.api.training import ablate, perform, predict, train
    from plmctl.core.errors import ConfigError, DataError, PlmctlError, UsageError

__version__ = "0.3.0"

# where each name is defined
_PLACES = {
    "analyse": "plmctl.api.analysis",
    "load": "plmctl.api.loading",
    "load_adapters": "plmctl.api.loading",
    "TrainedModel": "plmctl.api.model",
    "train": "plmctl.api.training",
    "ablate": "plmctl.api.training",
    "perform": "plmctl.api.training",
    "predict": "plmctl.api.training",
    "read_run": "plmctl.api.runs",
    "read_runs": "plmctl.api.runs",
    "RunFolder": "plmctl.api.runs",
    "read_study": "plmctl.api.studies",
    "StudyRecord": "plmctl.api.studies",
    "RowList": "plmctl.api.records",
    "PlmctlError": "plmctl.core.errors",
    "UsageError": "plmctl.core.errors",
    "ConfigError": "plmctl.core.errors",
    "DataError": "plmctl.core.errors",
}

__all__ = [
    "ConfigError",
    "DataError",
    "PlmctlError",
    "RowList",
    "RunFolder",
    "StudyRecord",
    "TrainedModel",
    "UsageError",
    "__version__",
    "ablate",
    "analyse",
    "load",
    "load_adapters",
    "perform",
    "predict",
    "read_run",
    "read_runs",
    "read_study",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'plmctl' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
