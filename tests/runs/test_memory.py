"""Memory: predicted and measured, divided by processes, and the advice where it is too little."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException

from plmctl.artifacts import activations
from plmctl.models.base import Model
from plmctl.training.processes.launch import launch
from plmctl.training.trainer import Trainer
from plmctl.training.update import Update
from tests.command import plmctl

ROOT = Path(__file__).parents[2]
SMALL = ("size=tiny", "size.num_layers=2", "size.width=64", "size.num_heads=2")
SMALL += ("size.inner_width=256", "train.batch_size=8", "tokenizer.vocab_size=400")
SMALL += ("train.threads=1", "train.steps=1", "train.eval_every=0")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes of a first update, by a count of every tensor."""
    found: dict[str, int] = {}
    gradient, end = Update.gradient, Update.end

    def watch(self: Update, *given: Any, **named: Any) -> Any:
        weights = {*self.model.parameters(), *self.objective.parameters()}
        fixed = [*weights, *self.model.buffers(), *self.objective.buffers()]
        held = {tensor.untyped_storage().data_ptr() for tensor in fixed}
        saved: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in held:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            result = gradient(self, *given, **named)
        found["activations"] = sum(saved.values())
        found["weights"] = sum(w.numel() * w.element_size() for w in weights)
        found["gradients"] = sum(w.grad.nbytes for w in weights if w.grad is not None)
        return result

    def note(self: Update) -> None:
        states = [v for state in self.optimizer.state.values() for v in state.values()]
        found["optimizer"] = sum(v.nbytes for v in states if isinstance(v, Tensor))
        end(self)

    monkeypatch.setattr(Update, "gradient", watch)
    monkeypatch.setattr(Update, "end", note)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("bert", "train.precision=fp32"),
        ("gpt2", "train.precision=bf16", "format.max_length=128"),
        pytest.param(("t5", "train.precision=fp32"), marks=pytest.mark.slow),
        pytest.param(("electra", "train.precision=bf16"), marks=pytest.mark.slow),
        pytest.param(("modern_encoder", "train.precision=fp32"), marks=pytest.mark.slow),
        pytest.param(("bert", "optim=adafactor"), marks=pytest.mark.slow),
        pytest.param(("modern_encoder", "optim=muon"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_predicted_within_a_tenth(
    words: tuple[str, ...], measured: dict[str, int], tmp_path: Path
) -> None:
    said = plmctl("pretrain", *words, *SMALL, "--dry-run", "--json")
    predicted = json.loads(said)["memory"]
    plmctl("pretrain", *words, *SMALL, f"run.dir={tmp_path / 'run'}")
    assert predicted.keys() == measured.keys()
    for name, size in measured.items():
        assert predicted[name] == pytest.approx(size, rel=0.1), name
    assert sum(predicted.values()) == pytest.approx(sum(measured.values()), rel=0.1)


def test_layers_that_run_again_keep_less() -> None:
    both = [
        json.loads(plmctl("pretrain", "bert", *SMALL, *more, "--dry-run", "--json"))["memory"]
        for more in ((), ("size.num_layers=8",), ("size.num_layers=8", AGAIN))
    ]
    two, eight, again = (memory["activations"] for memory in both)
    assert again < two < eight


AGAIN = "train.checkpoint_activations=true"


def test_a_model_of_one_stack_reads_source_and_target_as_one_text() -> None:
    one, two = (
        activations.make_full_batch(SimpleNamespace(needs=needs), 2, (5, 3))
        for needs in ({"text", "text.group"}, {"source.group"})
    )
    assert {name: seq.ids.shape for name, seq in one.seqs.items()} == {"text": (2, 8)}
    sizes = {name: seq.ids.shape for name, seq in two.seqs.items()}
    assert sizes == {"source": (2, 5), "target": (2, 3)}


@pytest.mark.parametrize(
    ("error", "hidden"), [(DataDependentOutputException("aten.item"), True), (KeyError("x"), False)]
)
def test_only_what_needs_values_has_no_count(
    error: Exception, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trace(*given: object) -> int:
        raise error

    monkeypatch.setattr(activations, "_trace", trace)
    model = Model(backbone=nn.Identity(), heads={})  # type: ignore[arg-type]
    known = {"rows": 2, "lengths": (5, 0), "predicted": {}, "precision": "fp32"}
    with contextlib.nullcontext() if hidden else pytest.raises(KeyError):
        assert activations.count_activations(model, None, **known) is None


def test_processes_divide_all_but_activations() -> None:
    said = plmctl("pretrain", "bert", *SMALL, "train.processes=4", "--dry-run", "--json")
    report = json.loads(said)
    whole, own = report["memory"], report["divided"]
    assert own["processes"] == 4
    for name in ("weights", "gradients", "optimizer"):
        assert own[name] == round(whole[name] / 4)
    assert own["activations"] == whole["activations"]
    # beside its share: the tables and heads, and the widest cell with its gradients
    cell = 4 * (2 * 64 * 256 + 256 + 64)  # feed-forward
    cells = 2 * (cell + 4 * (4 * 64 * 64 + 4 * 64))
    outside = whole["weights"] - cells
    assert outside < 2 * cell
    assert own["gathered"] == outside + 2 * cell


@pytest.mark.slow  # two processes of a run; the formula is above
@pytest.mark.parametrize("words", [("gpt2",), ("gpt2", "tokenizer.vocab_size=3000")])
def test_a_share_is_predicted_within_a_tenth(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small table the widest cell decides what is whole, with a large one the table."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    more = ("train.precision=fp32", "train.parallel=sharded", "train.steps=2")
    small = [word for word in SMALL if word.partition("=")[0] not in str((words, more))]
    line = ("pretrain", words[0], *small, *words[1:], *more)
    said = plmctl(*line, "train.processes=2", "--dry-run", "--json")
    predicted = json.loads(said)["memory"]
    run = [str(tmp_path / "rank"), *line, f"run.dir={tmp_path / 'run'}"]
    assert launch(2, run, module="tests.runs.sharded_memory") == 0
    for rank in range(2):
        measured = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert predicted.keys() == measured.keys()
        for name in ("weights", "gradients", "optimizer", "gathered"):
            assert predicted[name] == pytest.approx(measured[name], rel=0.1), name
        assert sum(predicted.values()) == pytest.approx(sum(measured.values()), rel=0.1)


def test_a_team_divides_its_cells() -> None:
    words = ("pretrain", "bert", *SMALL, "--dry-run", "--json")
    whole = json.loads(plmctl(*words))["memory"]
    team = json.loads(plmctl(*words, "train.processes=2", "train.tensor_parallel=2"))
    # all but the biases by which cells end
    cells = 2 * (3 * 64 * 64 + 3 * 64 + 64 * 64 + 2 * 64 * 256 + 256)
    own = team["memory"]
    assert own["weights"] == own["gradients"] == whole["weights"] - 4 * cells / 2
    share = own["weights"] / whole["weights"]
    assert own["optimizer"] == pytest.approx(share * whole["optimizer"], abs=1)
    assert own["gathered"] > 0
    assert team["divided"]["processes"] == 16
    assert team["divided"]["weights"] == own["weights"] / 8


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Memory of so many bytes, in which a pass of more than two rows finds no room."""
    size = [1e6]
    monkeypatch.setattr("plmctl.runs.out_of_memory.find_memory", lambda: int(size[0]))
    gradient = Update.gradient

    def fail(self: Update, micro_batches: Any, *given: Any, **named: Any) -> Any:
        if len(micro_batches[0].key) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return gradient(self, micro_batches, *given, **named)

    monkeypatch.setattr(Update, "gradient", fail)
    return size


def predict(*words: str) -> int:
    report = json.loads(plmctl("pretrain", "bert", *SMALL, *words, "--dry-run", "--json"))
    return sum(report["memory"].values())


def test_the_advice_fits_and_can_be_pasted(full: list[float], tmp_path: Path) -> None:
    run = f"run.dir={tmp_path / 'run'}"
    full[0] = 1.3 * predict("train.micro_batch_size=2")
    said = plmctl("pretrain", "bert", *SMALL, run, code=1)
    assert "out of memory on cpu in update 1: a pass of 8 rows takes about" in said
    assert "Traceback" not in said
    (fix,) = [line for line in said.splitlines() if line.startswith("  fix: ")]
    words = fix.removeprefix("  fix: ").partition("  #")[0].split()
    assert words == ["train.micro_batch_size=2"]
    assert predict(*words) <= 0.9 * full[0]
    plmctl("pretrain", "bert", *SMALL, *words, run)  # the folder is free again


def test_where_nothing_fits_a_smaller_model_is_meant(full: list[float], tmp_path: Path) -> None:
    full[0] = 1e5
    said = plmctl("pretrain", "bert", *SMALL, f"run.dir={tmp_path / 'run'}", code=1)
    assert "fix: train.micro_batch_size=1 train.checkpoint_activations=true" in said
    assert "a smaller model" in said


def test_a_run_with_a_checkpoint_goes_on(
    full: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    words = ("pretrain", "bert", *SMALL, "train.micro_batch_size=2", f"run.dir={run}")
    plmctl(*words)
    full[0] = 1.3 * predict("train.micro_batch_size=2")
    more = ("train.steps=2", "train.micro_batch_size=8")
    said = plmctl("pretrain", "--resume", f"run.dir={run}", *more, code=1)
    assert f"fix: plmctl pretrain --resume run.dir={run} train.micro_batch_size=2" in said
    monkeypatch.undo()
    plmctl("pretrain", "--resume", f"run.dir={run}", "train.steps=2", "train.micro_batch_size=2")


@pytest.mark.parametrize(
    ("error", "code"),
    [(RuntimeError("DefaultCPUAllocator: can't allocate memory: 4 bytes"), 1), (MemoryError(), 1)],
    ids=["torch", "python"],
)
def test_memory_of_the_host(
    error: Exception, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Trainer) -> None:
        raise error

    monkeypatch.setattr(Trainer, "fit", fail)
    said = plmctl("pretrain", "bert", *SMALL, f"run.dir={tmp_path / 'run'}", code=code)
    assert "out of memory on cpu" in said


def test_other_errors_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Trainer) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(Trainer, "fit", fail)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        plmctl("pretrain", "bert", *SMALL, f"run.dir={tmp_path / 'run'}")
