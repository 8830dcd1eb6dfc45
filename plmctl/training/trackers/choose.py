"""The trackers by their names."""

from __future__ import annotations

from collections.abc import Iterable

from plmctl.training.trackers.base import Tracker
from plmctl.training.trackers.mlflow import MLflow
from plmctl.training.trackers.wandb import WeightsAndBiases

TRACKERS: dict[str, type[Tracker]] = {each.name: each for each in (WeightsAndBiases, MLflow)}


def open_trackers(names: Iterable[str]) -> list[Tracker]:
    """A tracker of each name; UsageError for one whose library is not installed."""
    return [TRACKERS[name]() for name in dict.fromkeys(names)]
