"""`runtime=` of embed, attack and Python: the numbers of PyTorch, by another library."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plmctl as face
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import UsageError
from plmctl.runtime.base import KEPT, Answer, Program, Runtime
from plmctl.runtime.eager import EagerRuntime
from tests.command import plmctl
from tests.commands.test_predict_command import run, write_texts

__all__ = ["run"]  # the fixture


@pytest.mark.parametrize(
    "words",
    [
        ["pooling=mean", "layers=[0,-1]"],
        ["pooling=none", "layers=-1", "logits=true"],
        ["pooling=idf", "normalize=true"],
    ],
)
@pytest.mark.sampled(6)  # Python computes by the other library, below
@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_vectors_are_those_of_pytorch(
    run: Path, tmp_path: Path, name: str, words: list[str]
) -> None:
    texts = write_texts(tmp_path / "new.txt", 9)
    texts.write_text(texts.read_text() + "\n")  # an empty line
    asked = ["embed", f"checkpoint={run}", f"input={texts}", "batch_size=4", *words]
    plmctl(*asked, f"out={tmp_path / 'torch.npz'}")
    said = json.loads(plmctl(*asked, f"out={tmp_path / 'other.npz'}", f"runtime={name}", "--json"))
    assert said["runtime"].lower().startswith(("onnx", "openvino"))
    with np.load(tmp_path / "torch.npz") as one, np.load(tmp_path / "other.npz") as other:
        assert sorted(one) == sorted(other)
        for key in one:
            if one[key].dtype.kind == "f":
                np.testing.assert_allclose(other[key], one[key], atol=1e-5)
            else:
                assert (other[key] == one[key]).all()


def test_embed_says_which_library_was_chosen(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # tests/runtime/test_runtimes.py chooses between them
    for name in ("OnnxRuntime", "OpenVinoRuntime"):
        monkeypatch.setattr(f"plmctl.runtime.auto.{name}", EagerRuntime)
    texts = write_texts(tmp_path / "new.txt", 3)
    asked = ["embed", f"checkpoint={run}", f"input={texts}", "pooling=mean", "layers=-1"]
    plmctl(*asked, f"out={tmp_path / 'a.npz'}", "runtime=auto")
    assert ", the fastest here, in rows/s: " in caplog.messages[-1]
    plmctl(*asked, f"out={tmp_path / 'b.npz'}")
    assert "b.npz: 3 lines" in caplog.messages[-1]


@pytest.mark.slow  # a program is prepared once for each set of fields, below
def test_padding_inside_a_row_makes_another_graph(run: Path, tmp_path: Path) -> None:
    """Batches with unlike fields have graphs of their own."""
    lines = [{"input_ids": [5, 6, 7]}, {"input_ids": [5, 6, 7, 8], "padding": [0, 1, 0, 0]}]
    (tmp_path / "ids.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    asked = ["embed", f"checkpoint={run}", f"input={tmp_path}/ids.jsonl", "batch_size=1"]
    for name in ("torch", "onnx"):
        plmctl(*asked, "pooling=mean", f"out={tmp_path}/{name}.npz", f"runtime={name}")
    with np.load(tmp_path / "torch.npz") as one, np.load(tmp_path / "onnx.npz") as other:
        for n in range(2):
            np.testing.assert_allclose(other[f"hidden_{n}"], one[f"hidden_{n}"], atol=1e-5)


@pytest.mark.slow  # embed and Python compute by the same runtimes, here
def test_attacks_change_the_same_words(run: Path, tmp_path: Path) -> None:
    found = {}
    for name in ("torch", "onnx"):
        words = ["attack", f"checkpoint={run}", "attack_candidates=letters", "constraint=[]"]
        words += ["rows=6", f"out={tmp_path}/{name}.jsonl", f"runtime={name}", "--json"]
        said = json.loads(plmctl(*words))
        assert ("runtime" in said.get("remarks", {})) == (name == "onnx")
        rows = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        found[name] = [{**json.loads(row), "before": 0, "after": 0} for row in rows]
    assert found["torch"] == found["onnx"]


def test_python_computes_by_a_library(run: Path, tmp_path: Path) -> None:
    texts = ["a fine film", "a dull film indeed", "not a plot"]
    plain, other = face.load(run), face.load(run, runtime="openvino")
    rows = [model.predict(texts) for model in (plain, other)]
    for one, same in zip(*rows, strict=True):
        assert one["guess"] == same["guess"]
        assert one["probabilities"] == pytest.approx(same["probabilities"], abs=1e-5)
    assert other.evaluate() == {"dev": pytest.approx(plain.evaluate()["dev"], abs=1e-5)}
    with pytest.raises(UsageError, match="did you mean 'onnx'"):
        face.load(run, runtime="onx")
    int8 = face.load(run, runtime="onnx", runtime_options={"int8": True})
    assert int8.runtime is not None
    assert int8.runtime.describe().endswith("int8")


def test_python_labels_files(run: Path, tmp_path: Path) -> None:
    files = [write_texts(tmp_path / name, 5) for name in ("a.txt", "b.csv")]
    (said,) = face.predict(run, files[0], tmp_path / "a.csv")
    assert (said["rows"], said["predictions"]) == (5, str(tmp_path / "a.csv"))
    both = face.predict(run, files, tmp_path / "out", {"batch_size": 2})
    assert [each["rows"] for each in both] == [5, 5]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"a.jsonl", "b.jsonl"}
    with pytest.raises(UsageError, match="exists"):
        face.predict(run, files[0], tmp_path / "a.csv")


class Counted(Runtime):
    """PyTorch, and how often it is prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared = 0

    def prepare(self, program: Program, sample: Batch) -> Answer:
        self.prepared += 1
        return program


def test_a_program_is_prepared_once_for_each_set_of_fields() -> None:
    ids = np.ones((1, 2), dtype=np.int64)

    def batch(*tracks: str) -> Any:
        text = Seq(ids, np.full(1, 2), dict.fromkeys(tracks, ids))
        return Batch(key=np.zeros(1), seqs={"text": text})

    runtime, program = Counted(), Program(None, lambda model, batch: {})  # type: ignore[arg-type]
    for fields in ([], ["segment"], [], ["segment"]):
        runtime.answer(program, batch(*fields))
    assert runtime.prepared == 2
    other = Program(None, lambda model, batch: {})  # type: ignore[arg-type]
    for each in (other, program, other):
        runtime.answer(each, batch())
    assert runtime.prepared == 3
    for _ in range(KEPT):
        runtime.answer(Program(None, lambda model, batch: {}), batch())  # type: ignore[arg-type]
    assert len(runtime._ready) == KEPT


def test_python_prepares_a_runtime_once(run: Path) -> None:
    runtime = Counted()
    model = replace(face.load(run), runtime=runtime)
    for text in ("a fine film", "a dull film"):
        model.predict([text])
    assert runtime.prepared == 1
    for text in ("a fine film", "a dull film"):
        for how in ({}, {"pooling": "first"}, {"pooling": "first", "normalize": True}):
            model.embed([text], **how)  # type: ignore[arg-type]
    assert runtime.prepared == 4
    both = ["a fine film", "a dull film indeed"]
    plain = face.load(run).embed(both, pooling="idf")
    for _ in range(2):  # the weights of tokens are numbers of the graph
        np.testing.assert_allclose(model.embed(both, pooling="idf"), plain, atol=1e-5)
        model.embed([*both, "a plot"], pooling="idf")
