"""Divided weights: every optimizer makes the step of one process, a process holds its share of the
bytes, and processes that run other cells are stopped.
"""

from __future__ import annotations

import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.training.optim.shards import list_rows
from plmctl.training.processes.launch import launch
from plmctl.training.processes.parallel import check_parallel, count_shares
from tests.forked import fork_processes
from tests.training.toy_shards import OPTIMIZERS


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The findings of each of two processes."""
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        fork_processes(patch)
        assert launch(2, [str(folder)], module="tests.training.toy_shards") == 0
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_makes_the_step_of_whole_weights(seen, name):
    """Also where a rule needs norms, means or whole matrices, of sizes that are no multiples."""
    for process in seen:
        found = process[name]
        assert found["divided"]
        torch.testing.assert_close(found["shares"], found["whole"], rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(*map(torch.tensor, found["norms"]), rtol=1e-9, atol=0)


def test_a_process_holds_half_of_the_bytes(seen):
    for name in ("adamw", "lamb", "muon", "momentum", "stable_adamw"):
        whole = seen[0][name]["bytes"][0]
        parts = [process[name]["bytes"][1] for process in seen]
        assert sum(parts) == whole
        assert max(parts) <= 0.65 * whole  # the first process has the longer halves


def test_processes_that_run_other_cells_are_stopped(seen):
    for process in seen:
        assert "ran different cells" in process["apart"]
        assert "fix: train.parallel=replicated" in process["apart"]


@pytest.mark.parametrize(("rows", "processes"), [(7, 2), (9, 4), (1, 2), (8, 4)])
def test_rows_lie_as_torch_divides_them(rows, processes):
    parts = [len(part) for part in torch.arange(rows).chunk(processes)]
    assert list_rows(rows, processes) == parts + [0] * (processes - len(parts))


@pytest.mark.parametrize(
    ("parallel", "processes", "more", "said"),
    [
        ("sharded", 1, {}, "train.parallel"),
        ("hybrid", 3, {"shard_size": 2}, "train.parallel"),
        ("hybrid", 6, {"shard_size": 4}, "train.shard_size"),
        ("hybrid", 4, {"shard_size": None}, "train.shard_size"),
        ("sharded", 4, {"shard_size": 2}, "train.shard_size"),
        ("replicated", 2, {"offload": "cpu"}, "train.offload"),
    ],
)
def test_what_cannot_be_divided_is_refused(parallel, processes, more, said):
    with pytest.raises(ConfigError) as error:
        check_parallel(parallel, processes, **{"shard_size": None, **more})
    assert error.value.path == said
    assert error.value.fix


@pytest.mark.parametrize("parallel", ["replicated", "sharded", "hybrid"])
@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("shard_size", [None, 2, 3, 8])
@pytest.mark.parametrize("offload", ["none", "cpu"])
def test_fixes_of_divisions_end(parallel, processes, shard_size, offload):
    words = {
        "train.parallel": parallel,
        "train.processes": str(processes),
        "train.shard_size": "null" if shard_size is None else str(shard_size),
        "train.offload": offload,
    }
    for _ in range(4):
        size = words["train.shard_size"]
        try:
            check_parallel(
                words["train.parallel"],
                int(words["train.processes"]),
                shard_size=None if size == "null" else int(size),
                offload=words["train.offload"],
            )
        except ConfigError as error:
            words |= dict(word.split("=") for word in error.fix.split())
        else:
            return
    raise AssertionError(f"the fixes lead in a circle: {words}")


def test_shares_are_counted():
    assert count_shares("replicated", 8, None) == 1
    assert count_shares("sharded", 8, None) == 8
    assert count_shares("hybrid", 8, 4) == 4
