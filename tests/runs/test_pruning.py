"""Pruning as a setting of each training: exact after a resumption, and saved as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from plmctl.artifacts.compacting import compact_source
from plmctl.artifacts.loading import load_source, open_source
from plmctl.core.batch import Batch, Seq
from plmctl.models.base import Model
from plmctl.nn.tables import count
from plmctl.storage.reading import read_tensors
from tests.command import plmctl

SMALL = [
    *("task=classification", "train.precision=fp32", "train.threads=1", "train.batch_size=8"),
    *("train.epochs=null", "train.steps=8", "task.max_length=32", "optim.lr=1e-2"),
]
TINY = ["size=tiny", "size.width=32", "size.inner_width=64"]
NEW = ["checkpoint=null", "tokenizer=char", *TINY]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    for split in ("train", "dev"):
        lines = [f"a {'fine' if n % 2 else 'dull'} film\t{n % 2}" for n in range(24)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return folder


@pytest.fixture(scope="module")
def base(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "base"
    plmctl("finetune", *SMALL, *NEW, f"task.path={table}", f"run.dir={run}")
    return run


def tune(run: Path, table: Path, base: Path, *words: str, code: int = 0) -> str:
    given = (f"task.path={table}", f"checkpoint={base}", f"run.dir={run}")
    return plmctl("finetune", *SMALL, *given, *words, code=code)


def share_of_zeros(run: Path, step: int = 8) -> float:
    tensors = read_tensors(run / f"checkpoints/step-{step}/model.safetensors")
    inside = [t for name, t in tensors.items() if ".blocks." in name and t.dim() == 2]
    return sum(int((t == 0).sum()) for t in inside) / sum(t.numel() for t in inside)


def logged(run: Path, name: str) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


WAYS = {
    "magnitude": ("pruning=[magnitude]", "pruning.magnitude.end_at=0.8"),
    "movement": ("pruning=[movement]", "pruning.movement.block=[2,2]"),
    "l0": ("pruning=[l0]", "pruning.l0.start=-2.38"),
    "budget": ("pruning=[budget]", "pruning.budget.lr=0.1"),
    "joint": ("pruning=[joint]", "pruning.joint.start=0"),
    "units": ("pruning=[heads,neurons]", "pruning.heads.every=4", "pruning.neurons.every=4"),
    "width": ("pruning=[width]", "pruning.width.every=4"),
}
STRUCTURED = {"budget", "joint", "units", "width"}  # whole heads, neurons or columns go


def logits_of(model: Model) -> torch.Tensor:
    """The logits of two rows of random tokens."""
    ids = torch.randint(0, 8, (2, 9), generator=torch.Generator().manual_seed(0))
    rows = Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([9, 6]))})
    with torch.no_grad():
        logits: torch.Tensor = model.heads["class"](model.backbone(rows).last[:, 0])
    return logits


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_bit_for_bit(way: str, table: Path, base: Path, tmp_path: Path) -> None:
    """Also where the run stops in the middle of the schedule, and of what is measured."""
    every = ("train.save_every=3", "train.keep_best=false", "seed=3", "train.keep_last=9")
    whole, half = tmp_path / "whole", tmp_path / "half"
    tune(whole, table, base, *WAYS[way], *every)
    shutil.copytree(whole, half)
    for step in (6, 8):  # the resumed run has reached update 3
        shutil.rmtree(half / f"checkpoints/step-{step}")
    plmctl("finetune", "--resume", f"run.dir={half}")
    for name in ("model", "objective", "optimizer"):
        one, other = (
            read_tensors(run / f"checkpoints/step-8/{name}.safetensors") for run in (whole, half)
        )
        assert set(one) == set(other)
        assert all(bool((one[n] == other[n]).all()) for n in one), name
    assert share_of_zeros(whole) > 0
    saved = open_source(whole)
    loaded = load_source(saved).model
    for name, weight in loaded.named_parameters():  # nothing is 0 but what was
        file = saved.tensors[name]  # without spare rows
        assert bool(((weight[: len(file)] == 0) == (file == 0)).all()), name
    if way in STRUCTURED:
        compact = load_source(compact_source(saved)[0]).model
        assert count(compact) < count(loaded)
        torch.testing.assert_close(logits_of(compact), logits_of(loaded), rtol=0, atol=1e-5)


def test_the_best_checkpoint_is_a_pruned_one(table: Path, base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    tune(run, table, base, "pruning=magnitude", "train.eval_every=1")
    assert logged(run, "sparsity/magnitude")[-1] == 0.5
    saved = [int(folder.name[5:]) for folder in (run / "checkpoints").glob("step-*")]
    assert min(saved) >= 6  # of eight, the first after end_at = 0.7
    assert all(share_of_zeros(run, step) == 0.5 for step in saved)


@pytest.mark.slow  # a fine-tuning is, above
def test_a_pretraining_and_a_distillation_are_pruned(tmp_path: Path, table: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"this is line {n} of a text. it is short.\n" for n in range(60)))
    usual = ["train.precision=fp32", "train.threads=1", "train.batch_size=4", "train.steps=4"]
    first = tmp_path / "first"
    words = ["bert", *TINY, "tokenizer=char", "format.max_length=32", f"data.path={text}", *usual]
    cut = ("pruning=[magnitude]", "pruning.magnitude.sparsity=0.75")
    plmctl("pretrain", *words, *cut, f"run.dir={first}")
    assert share_of_zeros(first, 4) == 0.75
    student = tmp_path / "student"
    more = [*words[:6], *usual, *cut, f"teacher={first}", f"run.dir={student}"]
    plmctl("distill", *more, "pruning.magnitude.scope=model")
    assert share_of_zeros(student, 4) == pytest.approx(0.75, abs=1e-4)


def test_a_ticket_begins_with_the_weights_that_survived(
    table: Path, base: Path, tmp_path: Path
) -> None:
    pruned, ticket = tmp_path / "pruned", tmp_path / "ticket"
    tune(pruned, table, base, "pruning=magnitude", "pruning.magnitude.sparsity=0.8")
    own = ("pruning=ticket", f"pruning.ticket.weights_from={pruned}", "optim.lr=0")
    tune(ticket, table, base, *own)
    first, last, found = (open_source(run).tensors for run in (base, pruned, ticket))
    for name, weight in found.items():
        masked = ".blocks." in name and weight.dim() == 2
        wanted = torch.where(last[name] == 0, 0, first[name]) if masked else first[name]
        assert bool((weight == wanted).all()), name


def test_mistakes_are_named_before_any_work(table: Path, base: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        return tune(tmp_path / "x", table, base, *words, code=2)

    said = refused("pruning=[magnitude]", "pruning.magnitude.sparsity=1.0")
    assert "pruning.magnitude.sparsity=1.0: must be 0 or more, and less than 1" in said
    said = refused("pruning=magnitude", "pruning.magnitude.only=['*.x.*']")
    assert "pruning.magnitude.only='*.x.*': matches no matrix of a layer" in said
    assert "fix: \"pruning.magnitude.only=['*']\"" in said
    assert "fix: 'peft=[]'" in refused("pruning=magnitude", "peft=lora")
    assert "fix: 'stabiliser=[]'" in refused("pruning=magnitude", "stabiliser=swa")
    said = refused("pruning=ticket", f"pruning.ticket.weights_from={base}")
    assert "this one has no pruned weights" in said
    said = refused("pruning=heads", "train.compile=true")
    assert "train.compile=True: false: heads measures" in said
    said = refused("pruning=l0", "stabiliser=quantised")
    assert "fix: 'stabiliser=[]'" in said
    assert "fix: 'pruning=[magnitude]'" in refused("pruning=[magnitud]")
    assert not (tmp_path / "x").exists()


def test_a_model_without_attention_has_no_heads(tmp_path: Path) -> None:
    words = ["elmo", *TINY, "pruning=heads", "train.steps=2", f"run.dir={tmp_path / 'x'}"]
    said = plmctl("pretrain", *words, "--dry-run", code=2)
    assert "pruning: needs a model with trained heads of attention" in said
    assert "fix: 'pruning=[]'" in said


def test_pruned_weights_have_codes_when_all_zeros_are_chosen(
    table: Path, base: Path, tmp_path: Path
) -> None:
    run, own = tmp_path / "run", ("pruning=[magnitude]", "stabiliser=[codebook]")
    tune(run, table, base, *own, "train.keep_best=false")
    assert share_of_zeros(run) == 0.5
    tensors = read_tensors(run / "checkpoints/step-8/model.safetensors")
    large = [t for t in tensors.values() if t.dim() == 2 and t.numel() >= 1024]
    assert large
    assert all(8 < len(t.unique()) <= 16 for t in large)
    said = tune(run, table, base, *own, "stabiliser.codebook.begin_at=0.4", code=2)
    assert "pruning.magnitude.end_at=0.7: at most 0.4, where codebook begins" in said
    fix = said.partition("fix: ")[2].splitlines()[0].split()
    assert fix == ["pruning.magnitude.begin_at=0", "pruning.magnitude.end_at=0.4"]
    words = [*own, "stabiliser.codebook.begin_at=0.4", *fix, "train.steps=1"]
    tune(tmp_path / "fixed", table, base, *words)
    joint = tune(run, table, base, "pruning=[joint]", "stabiliser=[codebook]", code=2)
    assert "its gates multiply the weights that codebook has fixed" in joint
