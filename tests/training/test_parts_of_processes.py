"""Tensors that are divided among processes: each writes its blocks, any number reads them."""

import json

import pytest
import torch

from plmctl.training import checkpoint
from plmctl.training.checkpoint import Checkpoints
from plmctl.training.processes.launch import launch
from tests.forked import fork_processes
from tests.training.toy_parts import DIVIDED, ROWS, whole_of


@pytest.fixture
def run(tmp_path, monkeypatch):
    fork_processes(monkeypatch)

    def start(processes, *verb):
        words = [str(tmp_path), *verb]
        assert launch(processes, words, module="tests.training.toy_parts") == 0

    return start


@pytest.mark.parametrize(
    ("saving", "loading"),
    [
        # saved by these processes themselves: each other one would import torch
        ((2, "here"), []),
        pytest.param((2, "beside"), [2, 3], marks=pytest.mark.slow),
        pytest.param((4, "beside"), [2, 4], marks=pytest.mark.slow),
        pytest.param((3, "beside"), [1], marks=pytest.mark.slow),
    ],
)
def test_what_some_processes_save_others_load(tmp_path, run, saving, loading):
    """Bit for bit, and never whole on one of them; here one process reads all."""
    saving, where = saving
    run(saving, "save", where)
    newest = Checkpoints(tmp_path / "checkpoints").newest()
    assert newest.name == "step-2"
    files = json.loads((newest / "manifest.json").read_text())["files"]
    parts = {f"shards/__{rank}_0.distcp" for rank in range(saving)}
    assert set(files) == {*parts, "shards/.metadata", "trainer.json"}
    saved = checkpoint.read(newest)
    for name in DIVIDED:
        wanted = whole_of(name) + (100 if name == "uneven" else 0)
        wanted = wanted[:ROWS] if name == "table" else wanted
        for found in (saved.model[name], saved.optimizer[f"exp_avg/{name}"]):
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted)
    assert {name: int(t) for name, t in saved.random.items()} == {
        f"{rank}/cpu": rank for rank in range(saving)
    }
    for processes in loading:
        run(processes, "load")
    (newest / "shards/__1_0.distcp").unlink()
    said = []
    assert Checkpoints(tmp_path / "checkpoints", say=said.append).newest().name == "step-1"
    assert "shards/__1_0.distcp is missing" in said[0]
