"""The files of a model, and what answers from them: a graph of a library, or packed weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from safetensors.torch import save_file

from plmctl.artifacts.convert import convert
from plmctl.artifacts.deployed import make_runtime
from plmctl.artifacts.loading import CARD, Source, load, load_source
from plmctl.artifacts.packing import pack
from plmctl.compress.bench import Bench
from plmctl.compress.form import PACKED, Form
from plmctl.compress.memory import Open, open_exported, open_file
from plmctl.models.base import Model
from plmctl.runtime.base import Answer, Program
from plmctl.runtime.graph import export
from plmctl.runtime.signature import name_published
from plmctl.runtime.stored import LIBRARIES
from plmctl.storage.gate import admit
from plmctl.storage.reading import read_json
from plmctl.training.checkpoint import tensors_of
from plmctl.use.deploying import deploy


class WrittenModel(NamedTuple):
    """A written model.

    Args:
        model: The model.
        answer: Computes it.
        opening: Opens it in another process, where its memory is measured.
        score: Its score on dev; None: not measured.
    """

    model: Model
    answer: Answer
    opening: Callable[[], Open] | None = None
    score: float | None = None


class ModelFiles(Protocol):
    """A way to write models."""

    def write_cut(self, source: Source, folder: Path) -> WrittenModel:
        """Write a model that nobody has trained, for its costs alone."""
        ...

    def write(self, source: Path, folder: Path) -> WrittenModel:
        """Write a trained model as a folder to answer from."""
        ...


class GraphFiles:
    """A graph in the file of a library."""

    def __init__(self, bench: Bench, form: Form) -> None:
        self.bench, self.library, self.int8 = bench, form.library, form.bits == 8

    def write_cut(self, source: Source, folder: Path) -> WrittenModel:
        bench, loaded = self.bench, load_source(source)
        graph = export(Program(loaded.model, bench.task.logits), bench.longest, name_published)
        library = LIBRARIES[self.library](int8=self.int8)
        library.write(graph, folder)
        if self.int8:
            library.shrink(folder, graph.signature, bench.batches[:2])
        answer = library.load(folder, graph.signature)
        how: Any = {"int8": self.int8}
        opening = partial(open_file, self.library, folder, graph.signature, **how)
        return WrittenModel(loaded.model, answer, opening)

    def write(self, source: Path, folder: Path) -> WrittenModel:
        bench = self.bench
        how: Any = {"int8": self.int8, "keep": 0.0, "plugins": bench.plugins}
        deploy(source, folder, to=self.library, **how)
        card = read_json(folder / CARD)
        answer = partial(make_runtime(folder, card).answer, bench.program)
        model = load(source, plugins=bench.plugins).model
        score = card["scores"]["after"][bench.metric]
        return WrittenModel(model, answer, partial(open_exported, folder, bench.plugins), score)


class PackedFiles:
    """Weights in few bits each, which PyTorch unpacks and computes in fp32."""

    def __init__(self, bench: Bench, form: Form) -> None:
        self.bench, self.packing = bench, partial(pack, form.bits, 0)

    def write_cut(self, source: Source, folder: Path) -> WrittenModel:
        loaded = load_source(source)
        packed, _ = self.packing(tensors_of(loaded.model))
        save_file(packed, admit(folder / "model.safetensors"))
        return WrittenModel(loaded.model, Program(loaded.model, self.bench.task.logits))

    def write(self, source: Path, folder: Path) -> WrittenModel:
        bench = self.bench
        convert(source, folder, to="plmctl", packing=self.packing, plugins=bench.plugins)
        loaded = load(folder, plugins=bench.plugins)
        answer = Program(loaded.model, bench.task.logits)
        return WrittenModel(loaded.model, answer, score=bench.score(loaded))


def files_of(bench: Bench, form: Form) -> ModelFiles:
    """The way to write models in a form."""
    return {PACKED.library: PackedFiles}.get(form.library, GraphFiles)(bench, form)
