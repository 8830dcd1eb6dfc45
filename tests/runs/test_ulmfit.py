"""`tuning=ulmfit` (Howard and Ruder, 2018): rates by layer, a slanted triangle, concatenated pools,
and one layer more in each epoch.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from plmctl.artifacts.loading import load
from plmctl.config.compose import compose
from plmctl.config.groups import TrainOnTask
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.heads.rows import concatenate_pools
from plmctl.runs.unfreezing import check_unfreezing, group_layers
from plmctl.storage.reading import read_tensors
from plmctl.training.optim.schedule import SlantedTriangular
from tests.command import plmctl

SMALL = [
    *("task=classification", "size=tiny", "size.width=32", "size.inner_width=64", "tokenizer=char"),
    *("train.precision=fp32", "train.threads=1", "train.batch_size=8", "task.max_length=32"),
    *("checkpoint=null", "optim.lr=1e-2", "train.log_every=1", "train.keep_last=9"),
]


def slant(t: int, total: int, cut_frac: float, ratio: float) -> float:
    """Eq. 3 of the paper, word for word."""
    cut = math.floor(total * cut_frac)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio


def test_the_slanted_triangle_is_that_of_the_paper() -> None:
    schedule = SlantedTriangular(warmup_share=0.1)
    rates = [schedule(t, 200) for t in range(1, 201)]
    assert rates == pytest.approx([slant(t, 200, 0.1, 32) for t in range(1, 201)])
    assert max(rates) == rates[19] == 1
    assert rates[-1] == pytest.approx(1 / 32)
    assert all(1 / 32 <= SlantedTriangular(warmup_share=0.1)(t, 7) <= 1 for t in range(1, 8))
    with pytest.raises(ConfigError, match=r"schedule\.ratio=0\.5"):
        SlantedTriangular(ratio=0.5)


def test_pools_are_the_last_state_the_maximum_and_the_mean() -> None:
    states = torch.randn(3, 5, 4)
    length = torch.tensor([5, 2, 1])
    text = Seq(torch.ones(3, 5, dtype=torch.int64), length, {})
    anchors = torch.tensor([[0, 0], [1, 0], [2, 0]])
    found = concatenate_pools(states, Batch(torch.arange(3), {"text": text}, anchors=anchors))
    for row, count in enumerate(length.tolist()):
        own = states[row, :count]
        wanted = torch.cat([own[-1], own.max(0).values, own.mean(0)])
        torch.testing.assert_close(found[row], wanted)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    for split in ("train", "dev"):
        lines = [f"a {'fine' if n % 2 else 'dull'} film\t{n % 2}" for n in range(24)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return folder


def tune(run: Path, table: Path, *words: str, code: int = 0) -> str:
    return plmctl("finetune", *SMALL, f"task.path={table}", f"run.dir={run}", *words, code=code)


@pytest.fixture(scope="module")
def tuned(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "ulmfit"
    every = ("train.epochs=5", "train.save_every=3", "train.eval_every=0")
    tune(run, table, "tuning=ulmfit", *every)
    return run


def test_each_epoch_trains_one_more_layer(tuned: Path) -> None:
    groups = group_layers(load(tuned).model)
    assert len(groups) == 4  # heads, two layers, embeddings
    assert all(name.startswith("heads.") for name in groups[0] if "final_norm" not in name)
    steps = [
        read_tensors(tuned / f"checkpoints/step-{3 * n}/model.safetensors") for n in range(1, 6)
    ]
    for epoch in range(1, 5):  # from the end of an epoch to that of the next
        before, after = steps[epoch - 1], steps[epoch]
        changed = {name for name in after if not bool((before[name] == after[name]).all())}
        trained = {name for group in groups[: epoch + 1] for name in group}
        assert changed <= trained
        for group in groups[: epoch + 1]:
            assert changed & set(group), (epoch, group)
    states = read_tensors(tuned / "checkpoints/step-3/optimizer.safetensors")
    assert {name.partition("/")[2] for name in states} <= set(groups[0])


def test_the_whole_toolbox_is_one_setting(tuned: Path, table: Path, tmp_path: Path) -> None:
    spec = compose("finetune", None, [*SMALL, f"task.path={table}", "tuning=ulmfit"])
    assert spec.optim.layer_decay == pytest.approx(1 / 2.6, abs=1e-4)
    assert spec.schedule["_target_"].endswith("SlantedTriangular")
    assert load(tuned).model.heads["class"].dense.in_features == 3 * 32
    lines = [json.loads(line) for line in (tuned / "metrics.jsonl").read_text().splitlines()]
    rates = [line["lr"] for line in lines if "lr" in line]
    wanted = [1e-2 * SlantedTriangular(warmup_share=0.1)(t, 15) for t in range(1, 16)]
    np.testing.assert_allclose(rates, wanted, rtol=1e-4)
    saved = json.loads((tuned / "result.json").read_text())
    found = json.loads(plmctl("eval", f"checkpoint={tuned}", "--json"))
    assert found["metrics"] == saved["metrics"]


def test_mistakes_are_named_before_any_work(table: Path, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        return tune(tmp_path / "x", table, *words, code=2)

    unfreeze = "train.unfreeze=true"
    with pytest.raises(ConfigError, match="trains the layers themselves"):
        check_unfreezing(SimpleNamespace(train=TrainOnTask(), peft={"lora": {}}))
    said = refused(unfreeze, "train.frozen=[backbone]", "train.frozen_outputs=once")
    assert "train.frozen_outputs=once" in said.replace("'", "")
    assert "train.trainable" in refused(unfreeze, "train.trainable=[heads]")
    assert "fix: row_pooling=concat" in refused("row_pooling=conct")
    assert not (tmp_path / "x").exists()
