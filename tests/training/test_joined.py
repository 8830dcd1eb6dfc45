"""A run whose weights are divided: any number of processes goes on from its checkpoints."""

import pytest
import torch

from plmctl.training.checkpoint import Checkpoints, read
from plmctl.training.processes.launch import launch
from plmctl.training.processes.world import World
from tests.forked import fork_processes
from tests.training.toy_joined import make, state_of


@pytest.fixture
def run(tmp_path, monkeypatch):
    fork_processes(monkeypatch)

    def start(processes, *words):
        argv = [str(tmp_path), *map(str, words)]
        assert launch(processes, argv, module="tests.training.toy_joined") == 0

    return start


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow  # the parts of it are in test_parts_of_processes and test_strategy
@pytest.mark.parametrize("processes", [2, 4])
def test_a_divided_run_goes_on_anywhere_bit_for_bit(tmp_path, run, processes):
    """Model, optimizer and update, in one process and in two; nothing was gathered to save."""
    run(processes, "sharded", 4)
    saved = torch.load(tmp_path / "4.pt")
    newest = Checkpoints(tmp_path / "checkpoints").newest()
    found = read(newest)
    assert {p.name for p in (newest / "shards").iterdir()} == {
        ".metadata",
        *(f"__{rank}_0.distcp" for rank in range(processes)),
    }
    assert equal({**found.model, **found.objective, **found.optimizer}, saved)
    alone = make(str(tmp_path), "replicated", 4, World())
    assert alone.resume(newest).step == 4
    assert equal(state_of(alone), saved)
    for other, parallel in ((2, "sharded"), (2, "replicated"), (4, "sharded")):
        run(other, parallel, 4, "resume")
        assert equal(torch.load(tmp_path / "loaded.pt"), saved)
