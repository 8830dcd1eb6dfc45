"""Sums between layers in bf16: the norms against fp32, the memory, and training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from plmctl.nn.narrow import NarrowLayerNorm, NarrowRMSNorm, narrow_streams
from plmctl.training.log import read_metrics
from tests.command import plmctl

SMALL = ("size=tiny", "size.num_layers=2", "size.width=64", "size.num_heads=2")
SMALL += ("size.inner_width=128", "train.batch_size=8", "tokenizer.vocab_size=300")
SMALL += ("train.threads=1", "train.eval_every=0", "format.max_length=32", "train.precision=bf16")
NARROW = "train.stream=bf16"


@pytest.mark.parametrize(
    ("norm", "narrow"),
    [(nn.LayerNorm(64), NarrowLayerNorm), (nn.RMSNorm(64), NarrowRMSNorm)],
    ids=["layer", "rms"],
)
def test_statistics_are_those_of_fp32(
    norm: nn.LayerNorm | nn.RMSNorm, narrow: type[nn.Module]
) -> None:
    """States lie far from 0, and bf16 cannot sum their squares."""
    torch.manual_seed(0)
    x = (torch.randn(32, 64) + 8).to(torch.bfloat16)
    nn.init.normal_(norm.weight, 1, 0.1)
    own = narrow(norm)
    assert own.weight is norm.weight
    wanted = norm(x.float())
    assert torch.equal(own(x.float()), wanted)  # without autocast, the norm itself
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = own(x)
    assert found.dtype == torch.bfloat16
    # two roundings to 8 bits, of the result and of the weights
    assert (found - wanted).abs().max() <= wanted.abs().max() * 2**-7


def test_names_and_weights_stay() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ModuleList([nn.RMSNorm(4)]))
    shared = nn.ModuleDict({"a": model[1], "b": model[1], "c": model})
    before = {name: id(p) for name, p in shared.named_parameters()}
    narrow_streams(shared)
    assert {name: id(p) for name, p in shared.named_parameters()} == before
    assert shared["a"] is shared["b"]


@pytest.mark.parametrize(
    ("recipe", "share"), [("gpt2", 0.95), pytest.param("t5", 1.0, marks=pytest.mark.slow)]
)
def test_it_trains_as_well_and_keeps_less(
    recipe: str, share: float, small_text: Path, tmp_path: Path
) -> None:
    losses, kept = [], []
    for words in ((), (NARROW,)):
        run = tmp_path / str(len(words))
        train = ("pretrain", recipe, f"data.path={small_text}", *SMALL, *words)
        train += ("train.steps=2", "train.log_every=1")
        kept.append(json.loads(plmctl(*train, "--dry-run", "--json"))["memory"]["activations"])
        plmctl(*train, f"run.dir={run}")
        losses.append([r["loss"] for r in read_metrics(run / "metrics.jsonl") if "loss" in r])
    wide, narrow = losses
    assert narrow != wide
    assert narrow == pytest.approx(wide, rel=5e-3)
    assert kept[1] < share * kept[0]  # on a CPU, RMS norms keep what they compute in fp32


def test_a_run_in_fp32_has_no_narrow_stream(tmp_path: Path) -> None:
    words = ("train.precision=fp32", NARROW, f"run.dir={tmp_path / 'run'}")
    wrong = ("train.parallel=sharded", "train.micro_batch_size=3")
    said = plmctl("pretrain", "bert", *SMALL[:-1], *words, *wrong, "--dry-run", code=2)
    assert "3 problems" in said
    assert "train.stream='bf16': fp32: this run computes in fp32" in said
    assert "fix: train.stream=fp32" in said


def test_a_fine_tuning_is_refused_with_its_other_mistakes(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tlabel\nGood.\tyes\nBad.\tno\n", encoding="utf-8")
    task = ("task=classification", f"task.path={tmp_path / 'a.tsv'}", "checkpoint=absent")
    more = ("train.steps=1", "train.precision=fp32", "train.parallel=sharded", NARROW)
    said = plmctl("finetune", *task, *more, code=2)
    assert "3 problems" in said
    for problem in ("train.stream='bf16'", "train.parallel='sharded'", "absent: there is no such"):
        assert problem in said
