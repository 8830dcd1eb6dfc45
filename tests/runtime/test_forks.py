"""A forked process ends, whatever libraries have threads in the process before it."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plmctl.runtime.base  # noqa: F401  what forks do is decided there
from plmctl.data import encoding
from plmctl.runtime.openvino import open_core
from plmctl.text.annotate import Wanted
from plmctl.text.document import Document
from tests.runtime.cells import make_tokenizer

WAIT = 10  # seconds until a process that does not end is killed
INPUT = np.ones((2, 4), np.float32)


class Ring:
    """A reference to itself, which only the collection of garbage finds."""

    def __init__(self, held: Any) -> None:
        self.held, self.itself = held, self


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """The objects that other tests left are looked through once, not by each collection."""
    gc.collect()
    gc.freeze()


def open_onnx(folder: Path) -> Any:
    """A session that has added two arrays."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    array = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 4])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4])
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    graph = onnx.helper.make_graph([node], "graph", [array], [out])
    opset = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model.SerializeToString(), options)
    session.run(["y"], {"x": INPUT})
    return session


def open_openvino(folder: Path) -> Any:
    """A compiled model that has computed."""
    ov = pytest.importorskip("openvino")
    ops = ov.opset13
    array = ops.parameter([2, 4], np.float32)
    model = ov.Model([ops.relu(array)], [array])
    compiled = open_core().compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 2})
    compiled([INPUT])
    return compiled


def open_ctranslate2(folder: Path) -> Any:
    """A translator with an own thread."""
    library = pytest.importorskip("ctranslate2")
    specs = library.specs.transformer_spec
    decoder = specs.TransformerDecoderSpec(1, 2, with_encoder_attention=False)
    spec = specs.TransformerDecoderModelSpec(decoder)
    sizes = {"linear_0": (8, 4), "linear_1": (4, 8), "embeddings": (3, 4), "projection": (3, 4)}
    spec.register_vocabulary(["<unk>", "<s>", "</s>"])

    def fill(own: Any, name: str, value: Any) -> None:
        if value is None:
            part, last = name.split("/")[-2:]
            shape = (
                (12, 4) if part == "linear_0" and "attention" in name else sizes.get(part, (4, 4))
            )
            setattr(own, last, np.ones(shape if last == "weight" else 4, np.float32))

    library.specs.model_spec.visit_spec(spec, fill)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    generator = library.Generator(str(folder), intra_threads=1)
    generator.generate_batch([["<s>"]], max_length=2)
    return generator


def run_in_child(do: Callable[[], object]) -> int:
    """The exit code of a forked process, -SIGALRM for one that does not end."""
    if not (child := os.fork()):
        signal.alarm(WAIT)
        try:
            do()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("open_library", [open_onnx, open_openvino, open_ctranslate2])
def test_a_child_collects_no_garbage_of_its_parent(
    open_library: Callable[[Path], Any], tmp_path: Path
) -> None:
    """It has none of the threads for which the model of a library would wait."""
    gc.disable()  # no collection between here and the fork
    try:
        Ring(open_library(tmp_path))
        frozen = gc.get_freeze_count()
        assert run_in_child(gc.collect) == 0
        assert gc.get_freeze_count() <= frozen  # some of them end meanwhile
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.collect()


def test_a_fork_leaves_the_collector_as_it_was() -> None:
    """Frozen objects, such as the imports, stay frozen: a search of them takes long."""
    gc.freeze()
    frozen = gc.get_freeze_count()
    assert run_in_child(lambda: os._exit(0 if gc.isenabled() else 2)) == 0
    assert gc.get_freeze_count() > 0.9 * frozen > 0  # some of them end meanwhile
    assert gc.isenabled()


def test_documents_are_encoded_by_processes_beside_a_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 1 << 8)
    Ring(open_openvino(tmp_path))
    make_tokenizer().save(tmp_path / "tokenizer")
    documents = [(Document(("one small cat sat here " * 40,), "text"), "train")] * 12
    found = []
    for processes in (1, 2):
        chunks = encoding.encode_documents(documents, tmp_path / "tokenizer", Wanted(), processes)
        found.append(sum(len(each["train"].ids) for each in chunks))
    assert found[0] == found[1] > 0
