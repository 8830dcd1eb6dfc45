"""The interface of probes: questions to a trained model, with files and scores of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from plmctl.artifacts.loading import Loaded
from plmctl.config.groups import Data
from plmctl.config.spec import Provenance
from plmctl.core.parts import base_of
from plmctl.storage.atomic import refuse_existing
from plmctl.tasks.predictions import is_file
from plmctl.text.unknown import KNOWING, describe_unknown, refuse_unknown, unknown_share
from plmctl.text.vocab import Vocab
from plmctl.training.device.precision import Precision
from plmctl.use.predict import ScoreTable, Told
from plmctl.use.rehearsal import Rehearsal


@dataclass(frozen=True)
class Opened:
    """A trained model with the settings of a command that probes use.

    Args:
        loaded: The model with its tokenizer, on the device of `precision`.
        precision: The device, and the numbers of the computation.
        checkpoint: The model, as the command line names it.
        split: The split to score.
        data: The text to read, and how it is read.
        batch_size: The number of rows at the same time.
        format: Rows instead of those of the model's own run; None: those of the run.
        noise: The noise of these rows; None: that of the run.
        out: The file that a probe writes; None: none.
        overwrite: Whether to replace it.
        given: The command line: the settings that it names, its plug-ins and folders.
    """

    loaded: Loaded
    precision: Precision
    checkpoint: str
    split: str = "dev"
    data: Data = field(default_factory=Data)
    batch_size: int = 32
    format: Any = None
    noise: Any = None
    out: str | None = None
    overwrite: bool = False
    given: Provenance = field(default_factory=lambda: Provenance("eval"))

    @property
    def folder(self) -> str:
        """The folder of the checkpoint."""
        return str(self.loaded.source.folder)

    @property
    def plugins(self) -> tuple[str, ...]:
        """The packages outside plmctl whose parts may be named."""
        return self.given.plugins

    def claim_file(self, name: str) -> Path | None:
        """The file of `out`, `name` in a folder; None without `out`; UsageError if it exists and is
        not to be replaced.
        """
        if self.out is None:
            return None
        out = Path(self.out)
        file = out if is_file(out) else out / name
        refuse_existing(file, self.overwrite)
        return file


def tell_unknown(ids: Iterable[int], vocab: Vocab, file: object) -> dict[str, Told]:
    """The remark `unknown` on the share of unknown tokens; empty where all are known.

    Args:
        ids: The tokens that a language model scores, or reads before these.
        file: The file that has their text.

    Raises:
        DataError: More than half of the tokens are unknown.
    """
    return tell_share(unknown_share(list(ids), vocab), file)


def tell_share(share: float, file: object) -> dict[str, Told]:
    """As `tell_unknown`, of a known share of unknown tokens."""
    refuse_unknown(share, file=file, fix=KNOWING)
    said = describe_unknown(share)
    return {"unknown": Told(said, share)} if said else {}


@base_of("probe")
class Probe(Protocol):
    """A question to a trained model; `plmctl eval task=<its name>` asks it.

    A probe reads its own files, and gives its scores by column and name.
    """

    def measure(self, opened: Opened) -> ScoreTable:
        """The scores of a model."""
        ...


@runtime_checkable
class NamedScores(Protocol):
    """A probe that knows the names of its scores before there is a model."""

    def list_scores(self) -> Collection[str]:
        """The names of all scores that its settings and files yield."""
        ...


@runtime_checkable
class RehearsedProbe(Protocol):
    """A probe that can say how long it takes."""

    def rehearse(self, opened: Opened) -> Rehearsal:
        """The rows and the time of a model."""
        ...


@runtime_checkable
class VectorProbe(Protocol):
    """A probe that scores files of word vectors, too."""

    def measure_vectors(self, file: Path) -> ScoreTable:
        """The scores of a file of word vectors."""
        ...
