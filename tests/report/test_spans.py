"""The picture of learned spans on the page of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from plmctl.nn.spans import AdaptiveSpan
from plmctl.report.page import Heading, TableBlock
from plmctl.report.panels.spans import panel
from plmctl.report.spans import measure_spans
from plmctl.report.subject import find_subject
from tests.report.tiny_run import pretrain

WORDS = ["size.width=16", "size.inner_width=32", "format.max_length=16", "train.steps=2"]
WORDS += ["train.batch_size=4", "data.valid_share=0.2", "train.log_every=1", "eval.rows=4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(tmp_path_factory.mktemp("spans"), "adaptive_span", *WORDS)


def test_a_table_of_layers_and_heads(run: Path) -> None:
    subject = find_subject([run])
    loaded = subject.runs[0].loaded
    soft = [part for part in loaded.model.modules() if isinstance(part, AdaptiveSpan)]
    for part, shares in zip(soft, ([0.25, 0.5], [1.0, 0.0]), strict=True):
        part.share.data = torch.tensor(shares)
    layers, longest, ramp = measure_spans(loaded)
    assert layers == [[16.0, 32.0], [64.0, 0.0]]
    assert (longest, ramp) == (64, 32)
    heading, _, table, _ = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(table, TableBlock)
    assert table.rows == [["layer 1", "16", "32", "24"], ["layer 2", "64", "0", "32"]]
    assert table.shade == [[0.0, 0.25, 0.5], [0.0, 1.0, 0.0]]


def test_evaluation_logs_the_mean_and_the_longest(run: Path) -> None:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [record for record in records if "valid/loss" in record]
    assert all({"valid/span", "valid/longest_span", "valid/loss/span"} <= set(r) for r in valid)
    assert valid
