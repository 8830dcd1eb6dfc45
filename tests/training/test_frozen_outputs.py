"""`train.frozen_outputs`: layers that are not trained run once on every row, with the same numbers
to the bit as once an epoch, and with those of each batch but for rounding.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.loading import load
from plmctl.core.batch import Rows, Seq
from plmctl.core.errors import ConfigError
from plmctl.models.encoder import Encoder
from plmctl.storage.reading import read_tensors
from plmctl.tasks.batches import collate
from plmctl.training.device.precision import choose
from plmctl.training.freezing import apply_freezing
from plmctl.training.frozen_outputs import FrozenOutputs, FrozenPart
from plmctl.training.processes.world import World
from tests.command import plmctl
from tests.marks import mark_slow

SMALL = [
    *("task=classification", "size=tiny", "size.width=32", "size.inner_width=64", "tokenizer=char"),
    *("train.precision=fp32", "train.threads=1", "train.batch_size=6", "train.epochs=3"),
    *("task.max_length=32", "optim.lr=1e-2", "checkpoint=null", "schedule=constant"),
]
WHOLE = "train.frozen=[backbone]"
LOWER = "train.frozen=[backbone.embedding,backbone.position,backbone.stack.blocks.*.0.*]"
MIX = ("features=mix", "head_encoder=cnn", "heads.encoder.hidden_width=8")
WAYS = {
    "all layers": (WHOLE,),
    "a mix of all layers": (WHOLE, *MIX),
    "lower layers": (LOWER,),
    "lower layers in a mix": (LOWER, *MIX),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    for split, count in (("train", 40), ("dev", 35)):
        lines = [
            f"a {'fine' if n % 2 else 'dull'} film{' so' * (n % 5)}\t{n % 2}" for n in range(count)
        ]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return folder


def tune(run: Path, table: Path, *words: str, code: int = 0) -> str:
    return plmctl("finetune", *SMALL, f"task.path={table}", f"run.dir={run}", *words, code=code)


def results(run: Path) -> tuple[list[dict[str, Any]], bytes, dict[str, torch.Tensor]]:
    """What a run logged, but for times; what it predicts; its last weights."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [
        {k: v for k, v in line.items() if k.startswith(("valid/", "loss", "step", "grad_norm"))}
        for line in lines
    ]
    newest = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    predicted = (run / "predictions/dev.jsonl").read_bytes()
    return kept, predicted, read_tensors(newest / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return set(one) == set(other) and all(bool((one[n] == other[n]).all()) for n in one)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", mark_slow(WAYS, {"all layers", "lower layers in a mix"}))
def test_epochs_read_what_was_computed_once_bit_for_bit(
    way: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, begun = {}, list[int]()
    read = Encoder.read

    def watch(self: Encoder, *given: Any, first: int = 0, **named: Any) -> Any:
        begun.append(first)
        return read(self, *given, first=first, **named)

    monkeypatch.setattr(Encoder, "read", watch)
    calls = {}
    for often in ("batch", "epoch", "once"):
        begun.clear()
        tune(tmp_path / often, table, *WAYS[way], f"train.frozen_outputs={often}")
        runs[often], calls[often] = results(tmp_path / often), begun.count(0)
    once, epoch, batch = (runs[often] for often in ("once", "epoch", "batch"))
    assert once[0] == epoch[0]
    assert once[1] == epoch[1]
    assert same(once[2], epoch[2])
    # the same training but for rounding, which Adam makes larger
    assert set(batch[2]) == set(once[2])
    for name, tensor in batch[2].items():
        torch.testing.assert_close(tensor, once[2][name], rtol=0, atol=2e-3)
    # of 40 rows 7 batches an epoch, of 35 two for each of 3 validations, and 2 at the end; kept are
    # two of each split
    assert calls["batch"] == 3 * 7 + 3 * 2 + 2
    assert calls["epoch"] == 3 * 2 + 3 * 2 + 2
    assert calls["once"] == 2 + 2 + 2
    assert not (tmp_path / "once/frozen").exists()


@pytest.mark.slow  # test_finetune_command.py resumes
def test_a_resumed_run_goes_on_bit_for_bit(table: Path, tmp_path: Path) -> None:
    words = [LOWER, "train.frozen_outputs=once", "train.epochs=null", "train.save_every=9"]
    tune(tmp_path / "whole", table, *words, "train.steps=12", "train.keep_best=false")
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts/checkpoints/step-12")
    plmctl("finetune", "--resume", f"run.dir={tmp_path / 'parts'}")
    assert same(results(tmp_path / "whole")[2], results(tmp_path / "parts")[2])


def make_rows(count: int) -> Rows:
    length = np.arange(count) % 7 + 3
    ids = np.where(np.arange(9) < length[:, None], np.arange(9) % 5 + 4, 0).astype(np.int32)
    track = {"segment": np.zeros(ids.shape, np.uint8)}
    return Rows(key=np.arange(count), seqs={"text": Seq(ids, length, track)})


@pytest.fixture(scope="module")
def trained(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "plain"
    tune(run, table, "train.epochs=null", "train.steps=1")
    return run


def keep(trained: Path, folder: Path, rows: Rows, said: list[str], **more: Any) -> FrozenOutputs:
    model = load(trained).model
    apply_freezing(model, frozen=["backbone"])
    cpu = torch.device("cpu")
    given = {"often": "once", "limit": 1e9, "batch_size": 32, "say": said.append, **more}
    outputs = FrozenOutputs(
        model=model,
        part=FrozenPart.of(model, "once"),
        splits={"train": rows},
        folder=folder / "frozen",
        precision=choose("fp32", cpu),
        world=World(0, 1, cpu),
        **given,
    )
    model.kept = outputs
    return outputs


def test_kept_states_are_those_of_the_model_and_serve_a_second_sitting(
    trained: Path, tmp_path: Path
) -> None:
    rows, said = make_rows(40), list[str]()
    outputs = keep(trained, tmp_path, rows, said)
    outputs.before_epoch(0)
    model = outputs.model
    index = np.array([9, 3, 30])
    batch = collate(rows, index)
    with torch.no_grad():
        wanted = model.backbone(batch).last
    found = model(batch).last
    for row, length in enumerate(rows.seqs["text"].length[index]):
        torch.testing.assert_close(found[row, :length], wanted[row, :length])
        assert not found[row, length:].any()
    ids = batch.text.ids.clone()
    ids[0, 0] += 1  # other tokens under the same number are computed
    other = replace(batch, seqs={"text": replace(batch.text, ids=ids)})
    with torch.no_grad():
        assert bool((model(other).last == model.backbone(other).last).all())
    again = keep(trained, tmp_path, rows, said)
    again.before_epoch(0)
    assert "outputs of frozen layers: those of train are in" in said[-1]
    assert bool((again.model(batch).last == found).all())
    with torch.no_grad():
        next(again.model.backbone.parameters()).add_(1)
    third = keep(trained, tmp_path, rows, said)
    third.model.backbone.load_state_dict(again.model.backbone.state_dict())
    third.before_epoch(0)  # of other weights: nothing is believed
    assert not bool((third.model(batch).last == found).all())


def test_mistakes_are_named_before_any_work(table: Path, trained: Path, tmp_path: Path) -> None:
    once = "train.frozen_outputs=once"
    said = tune(tmp_path / "x", table, once, code=2)
    assert "train.frozen_outputs=once: batch: backbone.embedding" in said.replace("'", "")
    assert "train.frozen=[backbone]" in said
    said = tune(tmp_path / "x", table, once, "train.frozen=[backbone.stack.blocks.*.1.*]", code=2)
    assert "is trained, below which no layer is frozen" in said
    said = tune(tmp_path / "x", table, "train.frozen_outputs=onc", WHOLE, code=2)
    assert "once" in said
    said = tune(tmp_path / "x", table, once, WHOLE, "train.frozen_limit=1e-6", code=2)
    assert "train.frozen_limit" in said
    assert "train.frozen_outputs=batch" in said
    # the network of the prefixes changes all layers
    words = ["peft=[prefix]", "peft.prefix.inner_width=4", "checkpoint=" + str(trained)]
    fine = [word for word in SMALL if not word.startswith(("size", "tokenizer", "checkpoint"))]
    given = [f"task.path={table}", f"run.dir={tmp_path}/x", once]
    said = plmctl("finetune", *fine, *given, *words, code=2)
    assert "has to be frozen as a whole" in said
    assert not (tmp_path / "x").exists()
    two = replace(make_rows(4), seqs={n: make_rows(4).seqs["text"] for n in ("source", "target")})
    with pytest.raises(ConfigError, match="more than one text"):
        keep(trained, tmp_path, two, [])
