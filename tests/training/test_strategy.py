"""The contract of every strategy: the same updates as one process, which holds all rows, makes.

A new strategy is one line in `toy_strategy.STRATEGIES`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from plmctl.training.processes.launch import launch
from plmctl.training.strategy import choose
from tests.forked import fork_processes
from tests.marks import mark_slow
from tests.training import toy_strategy
from tests.training.toy_strategy import (
    LARGEST,
    ROWS,
    STRATEGIES,
    UPDATES,
    loss_of,
    make_module,
    optimizer_of,
)


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """The folder with what a number of processes left; all strategies of that number run together,
    once.
    """
    folder = tmp_path_factory.mktemp("strategy")

    @cache
    def run(processes):
        words = [
            str(folder),
            *(name for name, (each, _) in STRATEGIES.items() if each == processes),
        ]
        if processes == 1:
            toy_strategy.main(*words)
            return folder
        with pytest.MonkeyPatch.context() as patch:
            fork_processes(patch)
            assert launch(processes, words, module="tests.training.toy_strategy") == 0
        return folder

    return run


# two processes make the same run in tests/commands/test_pretrain_command.py
SEVERAL = [name for name, (processes, _) in STRATEGIES.items() if processes > 1]


@pytest.fixture(scope="module", params=mark_slow(STRATEGIES, SEVERAL))
def seen(request, left):
    """What each process of the strategy left, by rank."""
    processes = STRATEGIES[request.param][0]
    folder = left(processes)
    return [torch.load(folder / f"{request.param}-{rank}.pt") for rank in range(processes)]


@pytest.fixture(scope="module")
def expected():
    """Update by update, literally: the gradient of the sum over all rows, its norm, and what is
    left of it.
    """
    torch.manual_seed(0)
    module, updates = make_module(), []
    optimizer = optimizer_of(module)
    for cells_of in UPDATES:
        for row in range(ROWS):
            used = [name for name, users in cells_of.items() if row in users]
            if used:
                loss_of(module, row, used).backward()
        grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        norm = sum((g**2).sum() for g in grads.values()).sqrt()
        kept = {name: g * min(1, LARGEST / norm.item()) for name, g in grads.items()}
        whole = {name: g.clone() for name, g in grads.items()}
        updates.append({"norm": norm, "whole": whole, "clipped": kept})
        for name, p in module.named_parameters():
            p.grad = kept.get(name)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return updates, module


def test_gradients_are_those_of_all_rows(seen, expected):
    """Also where a process has no row that uses a weight; a weight that no row uses has none."""
    for process in seen:
        for found, wanted in zip(process["updates"], expected[0], strict=True):
            torch.testing.assert_close(found["norm"], wanted["norm"])
            for kind in ("whole", "clipped"):
                live = {name: g for name, g in found[kind].items() if g is not None}
                # 1e-6: torch adds that to the norm that it divides by
                torch.testing.assert_close(live, wanted[kind], rtol=1e-5, atol=1e-12)


def test_every_process_has_the_same(seen):
    for process in seen[1:]:
        torch.testing.assert_close(process["updates"], seen[0]["updates"], rtol=0, atol=0)


def test_a_second_run_is_the_same_to_the_bit(seen):
    for process in seen:
        for first, second in zip(process["updates"], process["again"], strict=True):
            torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_counts_are_summed_and_compared(seen):
    size = len(seen)
    for process in seen:
        found = process["counts"]
        assert found["sums"] == {"rows": sum(range(1, size + 1)), "updates": size}
        if size > 1:
            assert "disagree about what this update counts" in found["refused"]


def test_a_checkpoint_is_that_of_one_process(seen, expected):
    """Whole tensors under their own names, on the main process; what is loaded is what was
    saved.
    """
    module = expected[1]
    wanted = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    saved = seen[0]["saved"]
    torch.testing.assert_close(saved["module"], wanted, rtol=1e-6, atol=1e-9)
    assert set(saved["without"]) == {name for name in wanted if not name.startswith("stem")}
    trained = [name for name, p in module.named_parameters() if p.requires_grad]
    kinds = ("step", "exp_avg", "exp_avg_sq")
    assert set(saved["optimizer"]) == {f"{kind}/{name}" for name in trained for kind in kinds}
    torch.testing.assert_close(seen[0]["loaded"], saved, rtol=0, atol=0)


def test_nobody_else_asks_how_many_processes_there_are():
    """What depends on it is a matter of the strategy; `World` and the start of processes apart."""
    training = Path(choose.__file__).parents[1]
    files = [
        path for path in training.rglob("*.py") if path.parent.name not in ("strategy", "processes")
    ]
    asking = [
        path.name for path in files if re.search(r"\bsize\s*[<>=!]=?\s*1\b", path.read_text())
    ]
    assert len(files) > 20
    assert asking == []
