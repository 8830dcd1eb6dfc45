"""`plmctl eval runtime=`: the same scores and predictions, and what is refused."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import plmctl
from tests.films import train_films


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_films(tmp_path_factory.mktemp("films"))


def scores(run: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plmctl("eval", f"checkpoint={run}", *words, "--json"))
    return found


@pytest.mark.slow  # tests/use/test_runtimes_of_uses.py evaluates by it
def test_onnx_gives_the_scores_and_predictions_of_pytorch(run: Path, tmp_path: Path) -> None:
    outs = [tmp_path / f"{name}.jsonl" for name in ("torch", "onnx")]
    plain, found = (
        scores(run, f"runtime={out.stem}", f"out={out}", "batch_size=5") for out in outs
    )
    assert found["metrics"]["dev"] == pytest.approx(plain["metrics"]["dev"], abs=1e-5)
    assert found["remarks"]["runtime"].startswith("ONNX Runtime ")
    assert "runtime" not in plain.get("remarks", {})
    lines = [[json.loads(line) for line in out.read_text().splitlines()] for out in outs]
    for one, other in zip(*lines, strict=True):
        assert one.keys() == other.keys()
        assert one["guess"] == other["guess"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


@pytest.mark.slow  # tests/use/test_runtimes_of_uses.py has it
def test_new_texts_are_answered_by_openvino(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("a fine film\na dull film indeed indeed\n" * 3)
    outs = [tmp_path / f"{name}.csv" for name in ("torch", "openvino")]
    for out in outs:
        words = [f"input={tmp_path / 'new.txt'}", f"out={out}", "batch_size=2"]
        plmctl("eval", f"checkpoint={run}", f"runtime={out.stem}", *words)
    one, other = (out.read_text().splitlines() for out in outs)
    assert len(one) == len(other) == 7
    assert [line.split(",")[:3] for line in one] == [line.split(",")[:3] for line in other]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["runtime=onx"], "did you mean 'onnx'"),
        (["runtime=onnx", "precision=bf16"], "fix: precision=fp32"),
        (["runtime=onnx", "task=lm", f"data.path={__file__}"], "fix: runtime=torch"),
        (["runtime=onnx", "runtime.int9=true"], "int8"),
        (["runtime=onnx", "by=task", "input=-"], "fix: runtime=torch"),
    ],
)
def test_what_is_refused(run: Path, words: list[str], answer: str) -> None:
    assert answer in plmctl("eval", f"checkpoint={run}", *words, code=2)


@pytest.mark.parametrize(
    ("name", "missing"), [("onnx", "onnxruntime"), ("onnx", "onnxscript"), ("openvino", "openvino")]
)
def test_a_missing_library_is_named_with_its_extra(
    run: Path, name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def refuse(module: str, *more: Any) -> Any:
        if module == missing:
            raise ImportError(module)
        return real(module, *more)

    monkeypatch.setattr("plmctl.core.extras.importlib.import_module", refuse)
    said = plmctl("eval", f"checkpoint={run}", f"runtime={name}", code=2)
    assert f"runtime={name} needs {missing}" in said
    assert "pip install" in said
    assert "runtime=torch" in said
