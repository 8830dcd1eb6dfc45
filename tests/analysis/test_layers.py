"""Distances and angles between a layer's input and output against a loop, and on the page of a
run.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import plmctl
from plmctl.analysis.layers import LayerMoves, measure_moves
from plmctl.analysis.sample import OF_DEV, PLAIN, SENTENCES, batch_held_out, choose_sentences
from plmctl.cli import app as cli
from plmctl.report.page import Chart, Paragraph
from plmctl.report.panels.layers import panel
from plmctl.report.subject import find_subject


def test_moves_are_means_over_the_real_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(2, 4, 3, generator=generator, dtype=torch.float64) for _ in range(3)]
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    states[1][1, 2:] = math.nan  # padding may hold anything
    found = measure_moves(states, real)
    for layer in range(2):
        distances, angles = [], []
        for row in range(2):
            for place in range(4):
                if not real[row, place]:
                    continue
                x, y = states[layer][row, place].tolist(), states[layer + 1][row, place].tolist()
                distances.append(math.sqrt(sum((b - a) ** 2 for a, b in zip(x, y, strict=True))))
                cosine = sum(a * b for a, b in zip(x, y, strict=True)) / (
                    math.hypot(*x) * math.hypot(*y)
                )
                angles.append(math.degrees(math.acos(cosine)))
        assert found[layer].distance == pytest.approx(sum(distances) / 6, abs=1e-10)
        assert found[layer].angle == pytest.approx(sum(angles) / 6, abs=1e-10)


def test_a_layer_that_turns_a_right_angle_and_one_that_does_nothing() -> None:
    x, y = torch.tensor([[[3.0, 0.0]]]), torch.tensor([[[0.0, 4.0]]])
    turn, still = measure_moves([x, y, y], torch.ones(1, 1, dtype=torch.bool))
    assert (turn.distance, turn.angle) == (pytest.approx(5.0), pytest.approx(90.0))
    assert (still.distance, still.angle) == (0.0, 0.0)


def test_the_page_of_a_run_shows_them(trained: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(
        cli.make_app(), ["report", str(trained), "--out", str(tmp_path / "r.md")]
    )
    assert made.exit_code == 0, made.output
    text = (tmp_path / "r.md").read_text()
    assert "(<r_files/layer_distance.svg>)" in text
    assert "(<r_files/layer_angle.svg>)" in text
    loaded = plmctl.load(trained)
    measured = LayerMoves.of(loaded)
    found, tokens = measured.moves, measured.tokens
    assert len(found) == 4
    assert tokens == int(batch_held_out(loaded)[0].text.real.sum())
    assert (
        f"Means over the tokens of a text. run: step-2, {tokens:,} tokens of held-out rows" in text
    )


def test_a_run_without_a_checkpoint_is_said(trained: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    shutil.copy(trained / "config.yaml", new)
    text, *charts = panel(find_subject([new, trained]))[1:]
    assert isinstance(text, Paragraph)
    assert "new: not measured" in text.text
    assert "this run has no checkpoint yet" in text.text
    assert [chart.name for chart in charts if isinstance(chart, Chart)] == [
        "layer_distance",
        "layer_angle",
    ]
    assert len(panel(find_subject([new]))) == 2  # and no empty charts


@pytest.mark.parity
def test_the_exported_model_and_tokenizer_are_those_of_the_run(
    trained: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    made = CliRunner().invoke(
        cli.make_app(), ["convert", str(trained), str(tmp_path / "hf"), "--to", "hf"]
    )
    assert made.exit_code == 0, made.output
    assert "library_name: transformers" in (tmp_path / "hf" / "README.md").read_text()
    theirs = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "hf").eval()
    given = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")(
        list(SENTENCES), padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        states = theirs(**given, output_hidden_states=True).hidden_states
    measured = LayerMoves.of(plmctl.load(trained), SENTENCES)
    found, tokens = measured.moves, measured.tokens
    wanted = measure_moves(states, given["attention_mask"].bool())
    assert int(given["attention_mask"].sum()) == tokens
    assert [(move.distance, move.angle) for move in found] == [
        (pytest.approx(move.distance, abs=1e-4), pytest.approx(move.angle, abs=1e-3))
        for move in wanted
    ]


def test_a_fine_tuned_model_is_measured_on_its_dev_texts(trained: Path, tmp_path: Path) -> None:
    loaded = plmctl.load(trained)
    (tmp_path / "train.csv").write_text("文本,标签\n甲,a\n乙,b\n", encoding="utf-8")
    (tmp_path / "dev.csv").write_text("文本,标签\n今天下雨,a\n股市大涨,b\n", encoding="utf-8")
    columns = {"text": "文本", "label": "标签"}
    target = "plmctl.tasks.classification.Classification"
    splits = {name: [f"{name}.*"] for name in ("train", "dev", "test")}
    reader = {"_target_": "plmctl.tasks.readers.tables.Table", "splits": splits}
    node = {"_target_": target, "path": str(tmp_path), "columns": columns, "reader": reader}
    loaded.config["task"] = node | {"max_length": 8, "name": "t", "metrics": ["accuracy"]}
    assert choose_sentences(loaded) == (["今天下雨", "股市大涨"], OF_DEV)
    (tmp_path / "dev.csv").unlink()
    assert choose_sentences(loaded)[1] == PLAIN
