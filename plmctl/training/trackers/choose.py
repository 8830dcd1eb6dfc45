"""The trackers by their names, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from plmctl.core.errors import ConfigError, find_meant, nearest
from plmctl.core.locate import locate, refuse_foreign
from plmctl.core.parts import declared
from plmctl.training.trackers.base import Tracker
from plmctl.training.trackers.mlflow import MLflow
from plmctl.training.trackers.trackio import Trackio
from plmctl.training.trackers.wandb import WeightsAndBiases

TRACKERS: dict[str, type[Tracker]] = {
    each.name: each for each in (WeightsAndBiases, MLflow, Trackio)
}


def open_trackers(names: Iterable[str], plugins: Sequence[str] = ()) -> list[Tracker]:
    """A tracker of each name.

    Args:
        names: Our names, or `<module>.<class>` of a plug-in, which declares itself by
            `@part_of("trackers")`.

    Raises:
        UsageError: There is no such tracker, or its library is not installed.
    """
    return [_find(name, plugins)() for name in dict.fromkeys(names)]


def _find(name: str, plugins: Sequence[str]) -> type[Tracker]:
    if name in TRACKERS:
        return TRACKERS[name]
    allowed = f"{', '.join(TRACKERS)}, or <module>.<class> of a --plugin package"
    package, dot, _ = name.partition(".")
    if not dot:
        meant = find_meant(name, TRACKERS)
        fix = f"run.trackers=[{meant}]" if meant else "leave it out"
        raise ConfigError("run.trackers", name, f"{allowed}{nearest(name, TRACKERS)}", fix=fix)
    if package not in plugins:
        kinds: Any = {"slot": "trackers", "known": [*TRACKERS], "several": True}
        raise refuse_foreign("run.trackers", name, allowed, **kinds)
    try:
        kind = locate(name, plugins)
    except ValueError as error:
        raise ConfigError("run.trackers", name, str(error)) from None
    if declared(kind) != "trackers" or not issubclass(kind, Tracker):  # type: ignore[arg-type]
        what = 'a subclass of Tracker with @part_of("trackers") above it'
        raise ConfigError("run.trackers", name, what)
    return kind  # type: ignore[return-value]
