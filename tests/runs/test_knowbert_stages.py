"""KnowBERT in one run of two stages (Peters et al., 2019, sec. 3.4): the linker learns alone, then
its way back begins as an inverse, and everything learns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.commands.test_pretrain_command import pretrain, state

SMALL = ["size=tiny", "size.width=32", "size.inner_width=48", "size.num_heads=4", "seed=1"]
SMALL += ["format.max_length=32", "train.batch_size=4", "eval.rows=4", "train.log_every=1"]
SMALL += ["model.entities.entity_width=8", "model.stack.cells.k.entity_inner=16"]
SMALL += ["train.steps=4", "train.save_every=1", "train.keep_last=9", "optim.weight_decay=0.1"]
CELL = "model/backbone.stack.blocks.k.0."
STAGED = (
    "train.stages=[{share:0.5,trainable:[backbone.stack.blocks.k],losses:[entity_linking]},"
    "{share:0.5,refit:[backbone.stack.blocks.k.*.maps]}]"
)
# what psi is made of: equations 1 to 3 of the paper
LINKER = ("cell.maps.there", "cell.pool", "cell.norm.", "cell.among", "cell.hidden", "cell.score")


def run(tokens_of: Callable[..., Path], folder: Path, *words: str) -> str:
    data = f"data.path={tokens_of('wordpiece', spans=('entity',))}"
    return pretrain("knowbert", *SMALL, data, f"run.dir={folder}", *words)


def changed(before: Path, after: Path) -> set[str]:
    one, other = state(before), state(after)
    return {name for name in one if name.startswith("model/") and not one[name].equal(other[name])}


def test_the_linker_learns_alone_first(tokens_of: Callable[..., Path], tmp_path: Path) -> None:
    still, folder = tmp_path / "still", tmp_path / "run"
    run(tokens_of, still, "optim.lr=0", "train.steps=1")
    said = run(tokens_of, folder, STAGED)
    assert "stage 2 of 2 begins after update 2" in said
    first, second, last = (folder / f"checkpoints/step-{n}" for n in (1, 2, 4))
    start = still / "checkpoints/step-1"
    for before, after in ((start, first), (first, second)):
        names = changed(before, after)
        assert names
        assert all(name.removeprefix(CELL).startswith(LINKER) for name in names)
    moved = changed(start, second)  # every part of the linker learns
    assert all(any(part in name for name in moved) for part in LINKER)
    everything = changed(second, last)
    assert "model/backbone.embedding.token.weight" in everything
    assert {f"{CELL}cell.reader.q.weight", f"{CELL}cell.maps.back.weight"} <= everything


def test_the_way_back_is_the_inverse_where_the_second_stage_begins(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """Seen in a second stage that stands still."""
    words = [STAGED.replace("{share:0.5,refit", "{share:0.5,rate:0,refit"), "optim.lr=0.05"]
    run(tokens_of, tmp_path, *words)
    before, after = (state(tmp_path / f"checkpoints/step-{n}") for n in (2, 4))
    there, back = (f"{CELL}cell.maps.{name}" for name in ("there", "back"))
    assert after[f"{there}.weight"].equal(before[f"{there}.weight"])
    wanted = torch.linalg.pinv(after[f"{there}.weight"])
    torch.testing.assert_close(after[f"{back}.weight"], wanted)
    torch.testing.assert_close(after[f"{back}.bias"], -wanted @ after[f"{there}.bias"])
    assert not before[f"{back}.weight"].allclose(wanted, atol=1e-3)
    assert after[f"{there}.bias"].any()


@pytest.mark.parametrize(
    ("stage", "answer"),
    [
        (
            "losses:[entity_link]",
            "train.stages.0.losses=['entity_link']: one of entity_linking, mlm",
        ),
        (
            "refit:[backbone.embedding]",
            "train.stages.0.refit='backbone.embedding': one of backbone.",
        ),
        ("losses:mlm", "train.stages.0.losses='mlm': must be a list"),
        ("losses:[nsp],trainable:[heads.mlm]", "depend on what the stage trains"),
    ],
)
def test_what_is_refused(
    stage: str, answer: str, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    data = f"data.path={tokens_of('wordpiece', spans=('entity',))}"
    stages = f"train.stages=[{{share:0.5,{stage}}},{{share:0.5}}]"
    said = pretrain("knowbert", *SMALL, data, f"run.dir={tmp_path}", stages, code=2)
    assert answer in " ".join(said.split())
    assert "fix: " in said


@pytest.mark.slow  # test_the_linker_learns_alone_first stays
def test_two_bases_learn_side_by_side(linked_text: Path, tmp_path: Path) -> None:
    rows = map(json.loads, linked_text.read_text(encoding="utf-8").splitlines())
    both = [
        {"text": row["text"], "entity": row["entity"], "meaning": row["entity"]} for row in rows
    ]
    text = tmp_path / "both.jsonl"
    text.write_text("".join(json.dumps(row) + "\n" for row in both), encoding="utf-8")
    data = f"data.path={text}"
    width = "model.further.meaning.entities.entity_width=4"
    words = ["model=knowbert_two", width, "model.stack.cells.w.entity_inner=8", "train.steps=2"]
    words += ["noise=[token_mask,entity_drop,meaning_drop]", "data.spans=[entity,meaning]"]
    words += ["objective=[mlm,entity_linking,meaning_linking]", "tokenizer.vocab_size=300"]
    small = [word for word in SMALL if not word.startswith("train.steps")]
    folder = tmp_path / "run"
    said = pretrain("knowbert", *small, data, f"run.dir={folder}", *words)
    for term in ("entity_linking", "meaning_linking"):
        assert f"  {term} " in said
    first, second = (folder / f"checkpoints/step-{n}" for n in (1, 2))
    moved = changed(first, second)
    for letter in "kw":
        assert f"model/backbone.stack.blocks.{letter}.0.cell.reader.q.weight" in moved
    assert "model/backbone.further.meaning.entities.fingerprint" in state(second)
