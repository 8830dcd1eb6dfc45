"""A graph in a folder, computed by the library of its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.core.errors import DataError, UsageError, list_problems
from plmctl.generation.writer import Writer
from plmctl.models.base import Model
from plmctl.runtime.base import Answer, Program, Runtime
from plmctl.runtime.ctranslate2 import CTranslate2Runtime, equip
from plmctl.runtime.graph import TensorGraph
from plmctl.runtime.onnx import OnnxRuntime
from plmctl.runtime.openvino import OpenVinoRuntime
from plmctl.runtime.signature import Signature


class GraphLibrary(Protocol):
    """A library that writes graphs to files, and computes them from there."""

    def write(self, graph: TensorGraph, folder: Path) -> None:
        """Write a graph into a folder."""

    def shrink(self, folder: Path, signature: Signature, batches: Sequence[Batch]) -> None:
        """Round the numbers of a graph in a folder to 8 bits; `batches` have the usual ones."""

    def load(self, folder: Path, signature: Signature) -> Answer:
        """The graph in a folder as a function from batches to logits."""
        ...

    def describe(self) -> str:
        """The library and its version, for people."""
        ...


LIBRARIES: Mapping[str, Callable[..., GraphLibrary]] = {
    "onnx": OnnxRuntime,
    "openvino": OpenVinoRuntime,
}
WRITERS: Mapping[str, Callable[..., CTranslate2Runtime]] = {"ctranslate2": CTranslate2Runtime}


class StoredRuntime(Runtime):
    """The graph in a folder, whatever the weights of a model are.

    Args:
        library: The library that computes it.
        folder: The folder.
        signature: The names of its inputs and outputs.
        positions: The most tokens of a row; None: any number.
    """

    def __init__(
        self, library: GraphLibrary, folder: Path, signature: Signature, positions: int | None
    ) -> None:
        super().__init__()
        self.library, self.folder, self.signature = library, folder, signature
        self.positions = positions

    def prepare(self, program: Program, sample: Batch) -> Answer:
        with _blame(self.folder):
            answer = self.library.load(self.folder, self.signature)

        def check_and_answer(batch: Batch) -> Mapping[str, Tensor]:
            longest = max(seq.ids.shape[1] for seq in batch.seqs.values())
            if self.positions is not None and longest > self.positions:
                what = f"a row of {longest} tokens: this model has {self.positions} positions"
                raise UsageError(f"{what}\n  fix: shorter texts, or a model that reads longer rows")
            return answer(batch)

        return check_and_answer

    def describe(self) -> str:
        return self.library.describe()


class StoredWriter(Runtime):
    """A model in a folder that writes texts, whatever the weights of another model are.

    Args:
        library: The library that computes it.
        folder: The folder.
    """

    def __init__(self, library: CTranslate2Runtime, folder: Path) -> None:
        super().__init__()
        self.library, self.folder = library, folder

    def prepare(self, program: Program, sample: Batch) -> Answer:
        return Program(self.let_write(program.model), program.compute)

    def let_write(self, model: Model) -> Model:
        return equip(model, self.open_writer(model))

    def open_writer(self, model: Model) -> Writer:
        """The model as this library holds it."""
        with _blame(self.folder):
            return self.library.load(self.folder)

    def describe(self) -> str:
        return self.library.describe()


@contextmanager
def _blame(folder: Path) -> Iterator[None]:
    """Raise an error of a library about a file as one about a folder."""
    try:
        yield
    except UsageError as error:
        what = f"damaged, or of another version of its library: {list_problems(error)}"
        raise DataError(what, file=folder, fix="convert its run again") from error
