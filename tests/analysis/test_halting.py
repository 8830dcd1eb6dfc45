"""The layers of each token on the page of a run: a loop over the inputs of all layers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.analysis.halting import TokenLayers
from plmctl.analysis.sample import HELD_OUT, PLAIN, batch_held_out
from plmctl.nn.halting import Halting
from plmctl.report.page import Chart, Heading, Paragraph, TableBlock
from plmctl.report.panels.halting import panel
from plmctl.report.subject import find_subject
from tests.analysis.tiny_run import pretrain

WORDS = ["size.width=16", "size.inner_width=32", "train.steps=1", "train.batch_size=2"]
WORDS += ["tokenizer=char", "size.num_heads=2", "data.valid_share=0.2", "eval.rows=4"]
WORDS += ["data.path=strings:copy:1-9:200", "data.fields=[source,target]", "size.num_layers=3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(tmp_path_factory.mktemp("halting"), "universal_transformer", *WORDS)


@torch.inference_mode()
def count_layers(unit: torch.nn.Linear, inputs: list[Any], row: int, place: int) -> int:
    """How many layers a token takes, one number after the other (Dehghani et al., 2019, sec.
    2.2).
    """
    halted = 0.0
    for layer, x in enumerate(inputs, 1):
        score = sum(
            w * v for w, v in zip(unit.weight[0].tolist(), x[row, place].tolist(), strict=True)
        )
        halted += 1 / (1 + math.exp(-score - float(unit.bias[0])))
        if halted > 0.99:
            return layer
    return len(inputs)


def test_layers_of_each_token(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = find_subject([run])
    loaded = subject.runs[0].loaded
    generator = torch.Generator().manual_seed(0)
    seen: dict[int, list[Any]] = {}
    step = Halting.step
    for part in loaded.model.backbone.halting.values():
        part.unit.weight.data = torch.randn(1, 16, generator=generator)
        part.unit.bias.data.fill_(-1.0)

    def watch(self: Halting, before: Any, x: Any, after: Any) -> Any:
        seen.setdefault(id(self), []).append(x)
        return step(self, before, x, after)

    monkeypatch.setattr(Halting, "step", watch)
    measured = TokenLayers.of(loaded)
    assert measured is not None
    found, about = measured.seqs, measured.about
    assert about == HELD_OUT
    assert [layers.seq for layers in found] == ["source", "target"]
    batch, _ = batch_held_out(loaded)
    different = set()
    for layers in found:
        part, seq = loaded.model.backbone.halting[layers.seq], batch.seqs[layers.seq]
        lengths = seq.length.tolist()
        assert layers.taken == [
            [count_layers(part.unit, seen[id(part)], row, place) for place in range(length)]
            for row, length in enumerate(lengths)
        ]
        assert layers.tokens[0] == loaded.tokenizer.pieces(seq.ids[0, : lengths[0]].tolist())
        firsts = [row[1] for row in layers.taken if len(row) > 1]
        assert layers.by_position()[1] == pytest.approx(sum(firsts) / len(firsts))
        different |= {number for row in layers.taken for number in row}
    assert len(different) > 2
    heading, text, picture, curve, table = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(text, Paragraph)
    assert HELD_OUT in text.text
    assert isinstance(picture, Chart)
    assert isinstance(curve, Chart)
    assert isinstance(table, TableBlock)
    taken = [number for row in found[1].taken for number in row]
    assert table.rows[1][0:2] == ["target", f"{len(taken)}"]
    assert table.rows[1][3] == f"{sum(taken) / len(taken):.2f}"


@pytest.mark.slow  # held-out ones stay
def test_sentences_where_nothing_was_held_out(trained: Path, tmp_path: Path) -> None:
    loaded = find_subject([trained]).runs[0].loaded
    assert batch_held_out(loaded)[1].startswith(HELD_OUT)
    loaded.config["data"]["path"] = str(tmp_path / "gone.txt")
    batch, about = batch_held_out(loaded)
    assert about.startswith(PLAIN)
    assert len(batch.text.ids) == 8


def test_a_report_tokenizes_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = find_subject([run]).runs[0].loaded
    assert batch_held_out(loaded)[1].startswith(HELD_OUT)
    monkeypatch.setenv("PLMCTL_CACHE", str(tmp_path))
    assert batch_held_out(loaded)[1].startswith(PLAIN)
    assert not list(tmp_path.iterdir())
