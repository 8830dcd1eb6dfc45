"""The targets on the page are those of the noise, with the probabilities of the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import plmctl
from plmctl.analysis.noised import WrittenRows
from plmctl.analysis.sample import batch_held_out, open_objective
from plmctl.report.page import Chart
from plmctl.report.panels.noised import written
from tests.analysis.tiny_run import pretrain


@pytest.mark.parametrize("recipe", ["bart", "t5"])
def test_targets_have_the_probabilities_of_a_forward_pass(recipe: str, tmp_path: Path) -> None:
    words = ["tokenizer=bpe", "tokenizer.vocab_size=200", "tokenizer.sentinels=20", "size=tiny"]
    words += ["size.width=32", "size.inner_width=64", "size.num_heads=2", "train.steps=1"]
    words += ["train.batch_size=4", "format.max_length=64", "eval.rows=8", "train.threads=1"]
    pretrain(tmp_path, recipe, *words)
    opened = plmctl.load(tmp_path / "run")
    found = WrittenRows.of(opened)
    assert found is not None
    batch, _ = batch_held_out(opened, open_objective(opened))
    target = batch.seqs["target"]
    for row in range(2):
        ids = target.ids[row, : int(target.length[row])]
        assert [token.original for token in found.targets[row]] == opened.tokenizer.show(
            ids.tolist()
        )
    with torch.no_grad():
        (targets,) = batch.targets.values()
        states = opened.model(batch).gather(targets.index)
        shares = opened.model.heads["seq2seq"](states).softmax(-1)
    for place, token in enumerate(found.targets[0]):
        assert token.share == pytest.approx(float(shares[place, targets.ids[place]]), rel=1e-3)
        assert [share for _, share in token.guesses] == sorted(
            (share for _, share in token.guesses), reverse=True
        )
    charts = [block.svg for block in written.draw(found) if isinstance(block, Chart)]
    assert len(charts) == 2
    assert "Source 1" in charts[0]
    assert "Target 1" in charts[0]


def test_an_encoder_writes_nothing(trained: Path) -> None:
    assert WrittenRows.of(plmctl.load(trained)) is None
