"""The sensitivity of matrices to few bits, against models that are changed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.analysis.sensitivity import BitSensitivity, find_matrices
from plmctl.artifacts.loading import load
from plmctl.report.decided import read_task
from plmctl.report.panels.sensitivity import panel
from plmctl.report.subject import Wishes, find_subject
from plmctl.tasks import inference
from tests.films import train_films


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_films(tmp_path_factory.mktemp("films"))


def round_by_hand(weight: Tensor, bits: int) -> Tensor:
    most, rows = 2 ** (bits - 1) - 1, []
    for row in weight.tolist():
        scale = max(map(abs, row)) / most
        rows.append([scale * round(value / scale) if scale else 0.0 for value in row])
    return torch.tensor(rows)


def score_by_hand(opened: Any, task: Any) -> tuple[float, float]:
    """The mean cross-entropy and the accuracy, one row at a time."""
    examples = task.read("dev")
    losses, right = [], 0
    for example in examples:
        rows = inference.encode_split(task, "dev", [example], opened.tokenizer).rows
        (_, batch), *_ = inference.list_batches(rows, 1)
        (logits,) = task.logits(opened.model, batch).values()
        label = torch.tensor([task.label_names.index(example.label)])
        losses.append(float(F.cross_entropy(logits, label)))
        right += int(logits.argmax() == label)
    return sum(losses) / len(losses), right / len(losses)


@torch.no_grad()
def test_one_matrix_at_a_time_is_rounded(run: Path) -> None:
    opened, task = load(run), read_task(run)
    assert task is not None
    dict(opened.model.named_parameters())["heads.class.linear.weight"].mul_(50)  # of 3 updates
    before = {name: own.clone() for name, own in opened.model.named_parameters()}
    found = BitSensitivity.of(opened, task, [8, 3])
    assert all(bool((before[n] == own).all()) for n, own in opened.model.named_parameters())
    assert (found.bits, found.metric) == ([8, 3], "accuracy")
    assert (found.examples, found.split) == (12, "dev")
    assert (found.loss, found.score) == pytest.approx(score_by_hand(opened, task), abs=1e-6)
    named = dict(opened.model.named_parameters())
    matrices = {name for name, own in named.items() if own.dim() == 2}
    assert {own.name for own in found.matrices} == matrices
    for own in found.matrices:
        assert own.weights == named[own.name].numel()
        for bits, loss, score in zip(found.bits, own.losses, own.scores, strict=True):
            named[own.name].copy_(round_by_hand(before[own.name], bits))
            assert (loss, score) == pytest.approx(score_by_hand(opened, task), abs=1e-5), own.name
        named[own.name].copy_(before[own.name])
    assert sum(abs(own.losses[1] - found.loss) > 1e-3 for own in found.matrices) > 3


def test_matrices_have_the_layers_that_compute_with_them(run: Path) -> None:
    found = {name: (layer, kind) for name, layer, kind, _ in find_matrices(load(run).model)}
    blocks = "backbone.stack.blocks"
    assert found[f"{blocks}.a.1.cell.out.weight"] == (2, "a.out")
    assert found[f"{blocks}.f.0.cell.up.weight"] == (1, "f.up")
    assert found["heads.class.linear.weight"] == (0, "heads.class.linear")


def test_a_page_shows_curves_and_differences(run: Path) -> None:
    assert panel(find_subject([run])) == []
    heading, reading, _, chart, words, table, *folded = panel(find_subject([run], Wishes(bits=[4])))
    shown: Any = (heading, reading, chart, words, table)
    assert shown[0].text == "Sensitivity to few bits"
    assert "One matrix in 4 bits" in shown[2].svg
    assert "12 examples of dev" in shown[3].text
    assert shown[4].head == ["matrix", "weights", "loss, 4 bits", "accuracy, 4 bits"]
    rises = [float(row[2]) for row in shown[4].rows]
    assert rises == sorted(rises, reverse=True)
    assert folded
