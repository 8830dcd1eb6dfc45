"""Waits of a GPU, counted on a CPU: breaks of compiled graphs, and reads of its results."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from plmctl.training.trainer import Trainer
from tests.command import plmctl

RECIPES = ["bert", "gpt2", "t5", "electra", "modern_encoder"]
SOME = [
    each if each == "electra" else pytest.param(each, marks=pytest.mark.slow) for each in RECIPES
]
SMALL = ("size=tiny", "size.num_layers=1", "size.width=32", "size.num_heads=2")
SMALL += ("size.inner_width=64", "tokenizer.vocab_size=300", "format.max_length=32")
SMALL += ("train.batch_size=8", "train.micro_batch_size=4", "train.precision=fp32")
SMALL += ("train.threads=1", "train.eval_every=0", "train.save_every=0")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that are compiled are traced, and run as they are: no compiler is needed."""
    monkeypatch.setattr("plmctl.training.device.compiling.find_compiler", lambda: "c++")
    whole: Callable[..., None] = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: whole(self, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    counters.clear()


def train(recipe: str, folder: Path, *words: str) -> None:
    """A short run."""
    plmctl("pretrain", recipe, *SMALL, *words, f"run.dir={folder / 'run'}")


def list_breaks() -> list[str]:
    """The reasons of all breaks, as torch 2.11 to 2.13 file them."""
    return [each for kind in ("graph_break", "unimplemented", "resumes") for each in counters[kind]]


@pytest.mark.parametrize("recipe", SOME)
def test_a_compiled_model_is_whole(recipe: str, traced: None, tmp_path: Path) -> None:
    """No graph of a pass breaks off, in training and in validation."""
    train(recipe, tmp_path, "train.steps=2", "train.compile=true")
    assert counters["stats"]["unique_graphs"] > 0
    assert list_breaks() == []
    assert counters["frames"]["total"] == counters["frames"]["ok"]


def test_a_break_is_counted(traced: None) -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x

    torch.compile(broken, backend="eager")(torch.ones(3))
    assert len(list_breaks()) == 2  # the reason, and the frame that goes on behind it


# operators whose result the processor reads, and for which it waits until a GPU is there
READS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.repeat_interleave.Tensor,
    torch.ops.aten.equal.default,
    torch.ops.aten.is_nonzero.default,
}
CHOSEN = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default}  # by bools: read, too
# on a CPU alone: seeds of its dropout, and labels without spare slots
OF_CPU = {"attention/kernels/keep.py", "heads/lm.py"}


class Reads(TorchDispatchMode):
    """Counts the files of plmctl that read a result."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_bools = func in CHOSEN and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if func in READS or by_bools:
            places = [f.filename for f in traceback.extract_stack() if "/plmctl/" in f.filename]
            self.found[places[-1].rpartition("/plmctl/")[2] if places else "?"] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("recipe", SOME)
def test_an_update_waits_once(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the norm of the gradient, whatever the number of passes."""
    updates: list[Counter[str]] = []
    step = Trainer._step

    def watch(self: Trainer) -> bool:
        with Reads() as reads:
            made = step(self)
        updates.append(reads.found)
        return made

    monkeypatch.setattr(Trainer, "_step", watch)
    train(recipe, tmp_path, "train.steps=3", "train.log_every=0")
    for found in updates:
        assert {place: n for place, n in found.items() if place not in OF_CPU} == {
            "training/trainer.py": 1
        }


def test_reads_are_counted() -> None:
    x = torch.arange(4.0)
    with Reads() as reads:
        x.sum().item()
        x[x > 1]
        x[x > 1] = 0.0
        x.nonzero()
        x[torch.tensor([0, 1])]
    assert sum(reads.found.values()) == 4
