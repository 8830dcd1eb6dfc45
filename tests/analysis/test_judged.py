"""Replaced tokens on the page are those of the generator, and the verdicts those of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.analysis.judged import JudgedRows, JudgedToken
from plmctl.analysis.sample import batch_held_out
from plmctl.cli.app import make_app
from plmctl.report.page import Paragraph
from plmctl.report.panels.judged import panel
from plmctl.report.subject import Subject

KINDS = {
    "electra": ["electra"],
    "masked": ["electra", "objective.electra.all_tokens=false"],
    "noise": ["modern_encoder", "objective=[rtd]", "noise=[token_replace]"],
}


@pytest.fixture(scope="module", params=KINDS)
def run(
    request: pytest.FixtureRequest,
    tokens_of: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    words = [*KINDS[request.param], f"data.path={tokens_of('unigram')}", "size=tiny"]
    words += ["size.width=32", "size.inner_width=64", "size.num_heads=2", "train.steps=1"]
    words += ["train.batch_size=4", "format.max_length=64", f"run.dir={folder}", "eval.rows=8"]
    made = CliRunner().invoke(make_app(), ["pretrain", *words, "train.threads=1"])
    assert made.exit_code == 0, made.output
    return request.param, folder


def test_tokens_differ_from_the_text_where_they_are_replaced(run: tuple[str, Path]) -> None:
    kind, folder = run
    opened = plmctl.load(folder)
    found = JudgedRows.of(opened)
    assert found is not None
    tokens = [token for row in found.rows for token in row]
    assert any(token.replaced for token in tokens)
    for token in tokens:
        assert token.share is None or 0 < token.share < 1
        assert not token.original or (token.token != token.original) == token.replaced
    asked = sum(token.share is not None for token in tokens)
    assert (asked == len(tokens)) == (kind == "electra")
    assert any(token.original for token in tokens) == (kind != "noise")
    assert JudgedRows.of(opened) == found  # drawn by the rows alone
    if kind == "noise":  # the definition: the head on the states of the rows, as they are
        batch, _ = batch_held_out(opened)
        with torch.no_grad():
            logits = opened.model.heads["discriminator"](opened.model(batch).last)
        shares = logits.sigmoid().flatten(1)[0].tolist()
        for token, share in zip(found.rows[0], shares, strict=False):
            assert token.share is None or token.share == pytest.approx(share, abs=1e-4)


def test_others_have_no_such_rows(trained: Path) -> None:
    assert JudgedRows.of(plmctl.load(trained)) is None


def test_hits_misses_and_false_alarms_are_counted() -> None:
    row = [JudgedToken("a", "b", True, 0.9), JudgedToken("c", "d", True, 0.1)]
    row += [JudgedToken("e", "e", False, 0.8), JudgedToken("f", "f", False, 0.2)]
    row += [JudgedToken("g", "", False, None)]
    (reading, chart) = panel.draw(JudgedRows([row], "rows"))
    assert isinstance(reading, Paragraph)
    assert "finds 1 of 2 replaced tokens here, with 1 false alarms" in reading.text
    assert "a, replaced for b. The model: replaced (0.90 replaced)" in chart.svg
    assert panel(Subject()) == []
