"""The numbers of small runs are those that are stored: of some always, of all in a slow test."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

SCRIPT = Path(__file__).with_name("fingerprints.py")
CHEAP = ("recipe/bert",)  # with its tokens


@pytest.fixture(scope="module")
def results() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "results", SCRIPT.parent / "fingerprint/results.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_of(folder: Path, tensors: dict[str, torch.Tensor], **record: Any) -> Path:
    """A folder with a checkpoint of `tensors` and `record` as the last line of its curve."""
    (folder / "checkpoints/step-1").mkdir(parents=True)
    save_file(tensors, folder / "checkpoints/step-1/model.safetensors")
    save_file({"m": torch.rand(3)}, folder / "checkpoints/step-1/optimizer.safetensors")
    lines = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5, "seconds": 1.0} | record]
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(each) for each in lines))
    return folder


WEIGHTS = {"a": torch.arange(6.0), "b": torch.ones(2)}
CHANGES: dict[str, tuple[dict[str, torch.Tensor], dict[str, Any], list[str]]] = {
    "the clock": (WEIGHTS, {"seconds": 2.0, "tokens_per_second": 9}, []),
    "names of tensors": ({"x": WEIGHTS["b"], "y": WEIGHTS["a"]}, {}, []),
    "a bit of a weight": (WEIGHTS | {"b": torch.tensor([1.0, 1.0 + 2**-23])}, {}, ["weights"]),
    "one tensor less": ({"a": WEIGHTS["a"]}, {}, ["weights"]),
    "a digit of the loss": (WEIGHTS, {"loss": 1.500001}, ["curve"]),
    "a metric more": (WEIGHTS, {"valid/loss": 1.0}, ["curve"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_fingerprint_changes_with_numbers_alone(
    change: str, results: ModuleType, tmp_path: Path
) -> None:
    tensors, record, expected = CHANGES[change]
    one = results.fingerprint(run_of(tmp_path / "one", WEIGHTS), ())
    other = results.fingerprint(run_of(tmp_path / "other", tensors, **record), ())
    assert [part for part in results.PARTS if one.get(part) != other.get(part)] == expected
    assert one["loss"] == 1.5


@pytest.mark.parametrize(
    ("write", "same"),
    [
        (lambda file: file.write_text('{"checkpoint": "there", "accuracy": 0.5}'), True),
        (lambda file: file.write_text('{"checkpoint": "here", "accuracy": 0.4}'), False),
        (lambda file: file.write_text("{}"), False),
    ],
)
def test_an_output_is_what_files_say_wherever_they_stand(
    write: Callable[[Path], object], same: bool, results: ModuleType, tmp_path: Path
) -> None:
    for folder in ("one/x", "other/y"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "one/x/result.json").write_text('{"accuracy": 0.5, "checkpoint": "here"}')
    write(tmp_path / "other/y/result.json")
    one, other = (
        results.output(tmp_path / folder, ["*/result.json"]) for folder in ("one", "other")
    )
    assert (one == other) == same
    with pytest.raises(OSError, match=r"none of \*\.npz"):
        results.output(tmp_path / "one", ["*.npz"])


def compared(*words: str) -> list[str]:
    """What the script prints, one line a case; a skip where nothing is stored for this platform."""
    command = [sys.executable, str(SCRIPT), *words]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.stdout.startswith("no fingerprints are stored"):
        pytest.skip(done.stdout.splitlines()[0])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_some_runs_compute_what_they_did() -> None:
    lines = compared(*(word for name in CHEAP for word in ("--only", name)))
    assert lines[-1] == f"{len(CHEAP)} equal"


@pytest.mark.slow
def test_all_runs_compute_what_they_did() -> None:
    lines = compared()
    assert not [line for line in lines if line.endswith("not stored")], "fingerprints.py --write"
