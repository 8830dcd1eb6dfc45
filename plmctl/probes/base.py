"""The interface of probes: questions to a trained model, with files and scores of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from plmctl.artifacts.loading import Loaded
from plmctl.config.uses import Evaluate
from plmctl.core.parts import base_of
from plmctl.training.device.precision import Precision
from plmctl.use.predict import ScoreTable


@dataclass(frozen=True)
class Opened:
    """A trained model with the settings of a command.

    Args:
        loaded: The model with its tokenizer, on the device of `precision`.
        precision: The device, and the numbers of the computation.
        asked: The settings of the command: the split, the text, the rows of a batch.
    """

    loaded: Loaded
    precision: Precision
    asked: Evaluate

    @property
    def folder(self) -> str:
        """The folder of the checkpoint."""
        return str(self.loaded.source.folder)


@base_of("probe")
class Probe(Protocol):
    """A question to a trained model; `plmctl eval task=<its name>` asks it.

    A probe reads its own files, and gives its scores by column and name.
    """

    def measure(self, opened: Opened) -> ScoreTable:
        """The scores of a model."""
        ...


@runtime_checkable
class VectorProbe(Protocol):
    """A probe that scores files of word vectors, too."""

    def measure_vectors(self, file: Path) -> ScoreTable:
        """The scores of a file of word vectors."""
        ...
