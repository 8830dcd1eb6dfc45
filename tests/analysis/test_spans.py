"""The picture of learned spans on the page of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from plmctl.analysis.spans import HeadSpans
from plmctl.nn.spans import AdaptiveSpan, DynamicSpan
from plmctl.report.page import Chart, Heading, Paragraph, TableBlock
from plmctl.report.panels.attention import spans as panel
from plmctl.report.subject import find_subject
from tests.analysis.tiny_run import pretrain

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
    assert HeadSpans.of(loaded) == HeadSpans([[16.0, 32.0], [64.0, 0.0]], longest=64, ramp=32)
    heading, _, table, _ = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(table, TableBlock)
    assert table.rows == [["layer 1", "16", "32", "24"], ["layer 2", "64", "0", "32"]]
    assert table.shade == [[0.0, 0.25, 0.5], [0.0, 1.0, 0.0]]


def test_dynamic_spans_are_shown_by_token_too(tmp_path: Path) -> None:
    words = ["model.stack.cells.a.dynamic=true", "model.stack.cells.a.start=0.25"]
    subject = find_subject([pretrain(tmp_path, "adaptive_span", *WORDS, *words)])
    loaded = subject.runs[0].loaded
    soft = [part for part in loaded.model.modules() if isinstance(part, DynamicSpan)]
    for part in soft:
        part.start(torch.Generator())
    soft[0].unit.weight.data.normal_(std=0.5, generator=torch.Generator().manual_seed(0))
    states: list[torch.Tensor] = []
    hook = soft[0].register_forward_hook(lambda part, args, spans: states.append(args[0]))
    found = HeadSpans.of(loaded)
    hook.remove()
    assert found is not None
    assert found.row is not None
    # sigmoid(b) = 0.25 of 64 in the second layer, whose v is 0
    assert found.layers[1] == pytest.approx([16.0, 16.0])
    v, x = soft[0].unit.weight.detach(), states[0]
    shares = torch.stack([torch.sigmoid((x * v[h]).sum(-1) - math.log(3)) for h in range(2)])
    assert found.layers[0] == pytest.approx((64 * shares).mean((1, 2)).tolist(), rel=1e-4)
    by_token = (64 * shares[:, 0].sum(0) + 32) / 4
    assert found.row.spans == pytest.approx(by_token.tolist(), rel=1e-4)
    assert len(found.row.tokens) == 16
    _, text, _, _, tokens = panel(subject)
    assert isinstance(text, Paragraph)
    assert "held-out rows" in text.text
    assert isinstance(tokens, Chart)
    assert all(f">{span:.0f}<" in tokens.svg for span in found.row.spans)


def test_evaluation_logs_the_mean_and_the_longest(run: Path) -> None:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    valid = [record for record in records if "valid/loss" in record]
    assert all(
        {"valid/mean_span", "valid/longest_span", "valid/loss/span"} <= set(r) for r in valid
    )
    assert valid
