"""Every runtime gives the numbers of PyTorch, for batches of any size, or refuses the model."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from plmctl.core.errors import UsageError
from plmctl.runtime.auto import FastestRuntime
from plmctl.runtime.base import Program, Runtime
from plmctl.runtime.eager import EagerRuntime
from plmctl.runtime.fields import flatten, unflatten
from plmctl.runtime.graph import check, export
from plmctl.runtime.onnx import OnnxRuntime, write_onnx
from plmctl.runtime.openvino import OpenVinoRuntime
from plmctl.runtime.signature import Signature, find_anchors, name_published
from plmctl.tasks import inference
from tests.marks import mark_slow
from tests.runtime.cells import ALONE, CELLS, GRAPHS, PAGE, draw_table, make_cell

ONE_LAYER = "size.num_layers=1"  # where a trace takes the time
QUICK = {
    ("squad", "two_stream"),
    ("tagging", "encoder_decoder"),
    ("pair_classification", "modern_encoder"),
}
SLOW = [cell for cell in GRAPHS if cell not in QUICK]


@pytest.mark.sampled(4)  # one for each library
@pytest.mark.parametrize(("task", "backbone"), mark_slow(GRAPHS, SLOW))
@pytest.mark.parametrize("kind", [OnnxRuntime, OpenVinoRuntime])
def test_numbers_are_those_of_pytorch(
    kind: type[OnnxRuntime | OpenVinoRuntime], task: str, backbone: str, tmp_path: Path
) -> None:
    """A graph is written, with published names where it has some, and read again."""
    # tests/compress/test_compress_command.py writes two layers, the slow cells do, too
    cell = make_cell(task, backbone, *([ONE_LAYER] if (task, backbone) in QUICK else []))
    graph, library = export(cell.program, next(cell.batches()), name_published), kind()
    library.write(graph, tmp_path)
    answer = library.load(tmp_path, graph.signature)
    for batch in cell.batches():
        wanted, found = cell.program(batch), answer(batch)
        assert list(found) == list(wanted)
        for name, own in wanted.items():
            torch.testing.assert_close(found[name].to(own), own, rtol=1e-4, atol=1e-5)


def test_the_docs_say_what_can_be_exported() -> None:
    """`python -m tests.runtime.cells` writes the table."""
    assert draw_table() in PAGE.read_text(encoding="utf-8")


def test_a_program_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields that nothing reads are known before."""
    traced: list[int] = []
    real = torch.export.export

    def count_and_export(module: Any, inputs: Any, **how: Any) -> Any:
        traced.append(len(inputs))
        return real(module, inputs, **how)

    monkeypatch.setattr("torch.export.export", count_and_export)
    cell = make_cell("classification", "encoder", ONE_LAYER)
    batch = next(cell.batches())
    assert {"values.example", "values.cut"} <= flatten(batch).keys()
    fields = export(cell.program, batch).signature
    assert set(fields.inputs) == {"text.ids", "text.length", "text.tracks.segment", "anchors"}
    published = export(cell.program, batch, name_published).signature
    assert published.inputs == ("input_ids", "attention_mask", "token_type_ids")
    assert traced == [4, 3]


@pytest.mark.parametrize("rule", ["first", "last"])
def test_published_inputs_are_the_fields_of_a_batch(rule: str) -> None:
    batch = next(make_cell("classification", "encoder", ONE_LAYER).batches())
    batch = replace(batch, anchors=find_anchors(batch, rule))
    fields = ["text.ids", "text.length", "anchors"]
    signature = name_published(fields, ["class"], batch)
    assert signature == Signature(("input_ids", "attention_mask"), {"logits": "class"}, rule)
    fed = signature.feed(batch)
    assert fed["attention_mask"].sum(1).tolist() == batch.text.length.tolist()
    again = signature.read(map(torch.from_numpy, fed.values()))
    assert again.keys() == {*fields}
    assert all(torch.equal(again[name], flatten(batch)[name]) for name in fields)
    others = [
        (fields, replace(batch, anchors=torch.tensor([[0, 0], [1, 1]]))),  # no rule finds them
        ([*fields, "values.group"], batch),
    ]
    for own, other in others:
        assert name_published(own, ["class"], other).inputs == tuple(own)


@pytest.mark.sampled(2)  # the export, which they share, finds it out
@pytest.mark.parametrize("kind", [OnnxRuntime, OpenVinoRuntime])
@pytest.mark.parametrize(
    ("task", "backbone"),
    mark_slow(
        [(task, name) for task, name in CELLS if name in ALONE or task == "translation"],
        [cell for cell in CELLS if cell != ("classification", "bilm")],
    ),
)
def test_others_are_refused(kind: type[Runtime], task: str, backbone: str) -> None:
    cell = make_cell(task, backbone)
    with pytest.raises(UsageError, match=r"(?s)runs in PyTorch only: .*fix: runtime=torch"):
        kind().answer(cell.program, next(cell.batches()))
    before = cell.program(next(cell.batches()))  # the attempt leaves the model as it was
    again = make_cell(task, backbone).program(next(cell.batches()))
    for name, own in again.items():
        torch.testing.assert_close(before[name], own)


@pytest.mark.slow  # tests/use/test_deploying.py counts them in a folder
def test_attention_is_one_operator_of_each_layer(tmp_path: Path) -> None:
    cell = make_cell("classification", "encoder")
    graph = export(cell.program, next(cell.batches()))
    model = onnx.load(write_onnx(graph, tmp_path / "model.onnx"))
    kinds = Counter(node.op_type for node in model.graph.node)
    assert kinds["Attention"] == 2
    assert kinds["Softmax"] == 0
    assert {each.name for each in model.graph.input} == set(graph.signature.inputs)
    assert {"text.ids", "text.length", "anchors"} <= set(graph.signature.inputs)
    assert [each.name for each in model.graph.output] == ["class"]


@pytest.mark.slow  # tests/use/test_deploying.py writes and scores them
def test_eight_bits_are_near_and_smaller(tmp_path: Path) -> None:
    cell = make_cell("classification", "encoder", ONE_LAYER)
    runtime = OnnxRuntime(int8=True)
    for batch in cell.batches():
        wanted, found = cell.program(batch)["class"], runtime.answer(cell.program, batch)["class"]
        assert not torch.equal(found, wanted)
        torch.testing.assert_close(found, wanted, rtol=0.1, atol=0.05)
    assert runtime.describe().endswith(", int8")


def test_a_wrong_graph_is_refused() -> None:
    """The numbers of a runtime are compared before it answers anything."""
    cell = make_cell("classification", "encoder", ONE_LAYER)

    passes = count()
    program = Program(
        cell.program.model,
        lambda model, batch: {"class": cell.program.compute(model, batch)["class"] + next(passes)},
    )
    with pytest.raises(UsageError, match="its 'class' differ from those of PyTorch"):
        OpenVinoRuntime().answer(program, next(cell.batches()))


@pytest.mark.parametrize("kind", [OnnxRuntime, OpenVinoRuntime])
def test_a_number_of_rows_in_the_graph_is_refused_by_name(kind: type[Runtime]) -> None:
    """`len` makes a number of a size, in the middle of a trace whose inputs had a symbol."""
    cell = make_cell("classification", "encoder", ONE_LAYER)

    def compute(model: Any, batch: Any) -> dict[str, torch.Tensor]:
        found = cell.program.compute(model, batch)["class"]
        return {"class": found + found.new_zeros(len(found), 1)}

    with pytest.raises(UsageError, match=r"(?s)reads anchors of one size, 4 x .*fix: runtime="):
        kind().answer(Program(cell.program.model, compute), next(cell.batches()))


def test_answers_of_another_shape_are_refused() -> None:
    cell = make_cell("classification", "encoder", ONE_LAYER)

    def double_rows(batch: Any) -> dict[str, torch.Tensor]:
        return {name: own.repeat(2, 1) for name, own in cell.program(batch).items()}

    said = "its 'class' are 4 x 2, and those of PyTorch 2 x 2"
    for exact in (True, False):
        with pytest.raises(UsageError, match=said):
            check(double_rows, cell.program, next(cell.batches()), exact=exact)

    class Doubled(Runtime):
        def prepare(self, program, sample):
            return double_rows

    task = cell.program.compute.__self__
    how = {"batch_size": 2, "device": torch.device("cpu"), "runtime": Doubled()}
    with pytest.raises(UsageError, match=r"'class' has 4 rows of answers to 2 rows"):
        inference.run(cell.program.model, task, cell.rows, **how)


def test_a_batch_is_made_again_of_its_tensors() -> None:
    batch = next(make_cell("squad", "encoder").batches())
    named = flatten(batch)
    again = flatten(unflatten(named, batch))
    assert again.keys() == named.keys()
    assert all(again[name] is tensor for name, tensor in named.items())


def test_a_program_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, other = (
        make_cell("classification", "encoder", ONE_LAYER),
        make_cell("regression", "encoder"),
    )
    made: list[Program] = []

    class Counted(EagerRuntime):
        def prepare(self, program, sample):
            made.append(program)
            return super().prepare(program, sample)

    runtime = Counted()
    for program in (cell.program, Program(cell.program.model, cell.program.compute)):
        for batch in cell.batches():
            runtime.answer(program, batch)
    assert len(made) == 1
    runtime.answer(other.program, next(other.batches()))
    assert len(made) == 2


def test_the_fastest_is_chosen_and_its_rate_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two installed runtimes, of which the second is said to be faster; a third cannot compute."""
    monkeypatch.setattr("plmctl.runtime.auto.find_cache_folder", lambda: tmp_path)
    rates = {"slow": 10.0, "fast": 30.0}
    measured: list[str] = []

    class Named(EagerRuntime):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def prepare(self, program, sample):
            if self.name == "none":
                raise UsageError("it cannot\n  fix: runtime=torch")
            return _Named(self.name, super().prepare(program, sample))

    class _Named:
        def __init__(self, name, answer):
            self.name, self.answer = name, answer

        def __call__(self, batch):
            return self.answer(batch)

    def measure(answer, sample):
        measured.append(answer.name)
        return rates[answer.name]

    monkeypatch.setattr("plmctl.runtime.auto.measure_rate", measure)
    cell = make_cell("classification", "encoder", ONE_LAYER)
    for _ in range(2):
        runtime = FastestRuntime()
        runtime.candidates = {name: Named(name) for name in ("slow", "fast", "none")}
        batch = next(cell.batches())
        found = runtime.answer(cell.program, batch)["class"]
        assert torch.equal(found, cell.program(batch)["class"])
        assert runtime.chosen == "fast"
        said = "fast, the fastest here, in rows/s: slow 10, fast 30; none: it cannot"
        assert runtime.describe() == said
    assert measured == ["slow", "fast"]


def test_rates_are_those_of_the_clock() -> None:
    from plmctl.runtime import auto

    cell = make_cell("classification", "encoder", ONE_LAYER)
    batch = next(cell.batches())
    assert 1 < auto.measure_rate(cell.program, batch) < 1e7
    assert np.isfinite(auto.measure_rate(cell.program, batch))


# the engine gives a thread a stack for signals, and would take it back in another one
DROPPED = """
import signal, threading
import numpy as np, openvino as ov
from plmctl.runtime.openvino import OpenVinoRuntime
array = ov.opset13.parameter([2, 4], np.float32)
held = [OpenVinoRuntime(threads=1)._compile(ov.Model([ov.opset13.relu(array)], [array]), None)]
thread = threading.Thread(target=held.clear)
thread.start()
thread.join()
signal.signal(signal.SIGTERM, lambda *_: print("heard"))
signal.raise_signal(signal.SIGTERM)
"""


def test_a_signal_is_heard_after_a_model_of_openvino_was_dropped_in_a_thread() -> None:
    pytest.importorskip("openvino")
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr
