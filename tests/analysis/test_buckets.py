"""Buckets on the page of a run: a loop over tokens, and how even they are by counting."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.analysis.buckets import TokenBuckets
from plmctl.analysis.sample import batch_held_out
from plmctl.report.page import Chart, Heading, Paragraph, TableBlock
from plmctl.report.panels.buckets import panel
from plmctl.report.subject import find_subject
from tests.analysis.tiny_run import pretrain

WORDS = ["size.width=16", "size.inner_width=32", "train.steps=1", "train.batch_size=2"]
WORDS += ["data.valid_share=0.2", "eval.rows=4"]
WORDS += ["format.max_length=32", "size.num_layers=1", "position.shape=[4,8]"]
WORDS += ["model.stack.cells.h.chunk=4", "model.stack.cells.h.rounds=2"]
WORDS += ["model.stack.cells.b.chunk=4", "model.stack.cells.h.buckets=6"]


def test_buckets_of_each_token(tmp_path: Path) -> None:
    subject = find_subject([pretrain(tmp_path, "reformer", *WORDS)])
    loaded = subject.runs[0].loaded
    backbone: Any = loaded.model.backbone
    cell = backbone.stack.blocks["h"][0].cell
    outputs: list[torch.Tensor] = []
    cell.qkv.register_forward_hook(lambda *given: outputs.append(given[2]))
    measured = TokenBuckets.of(loaded)
    assert measured is not None
    (hashed,), tokens = measured.layers, measured.tokens
    batch, _ = batch_held_out(loaded)
    assert tokens == loaded.tokenizer.pieces(batch.text.ids[0].tolist())
    heads, width = cell.num_heads, cell.head_width
    generator = torch.Generator().manual_seed(cell.hash_seed)
    rotations = torch.randn(heads, width, 2, 3, generator=generator).tolist()
    entropies: dict[int, list[float]] = {head: [] for head in range(heads)}
    largest, empty = [], []
    for row in range(len(batch.text.ids)):
        for head in range(heads):
            q = outputs[0][row, :, head * width : (head + 1) * width].tolist()
            for turn in range(2):
                found = []
                for vector in q:
                    turned = [
                        sum(vector[d] * rotations[head][d][turn][n] for d in range(width))
                        for n in range(3)
                    ]
                    turned += [-number for number in turned]
                    found.append(turned.index(max(turned)))
                if row == 0:
                    assert hashed.first[head, turn].tolist() == found
                sizes = Counter(found)
                largest.append(max(sizes.values()))
                empty.append((6 - len(sizes)) / 6)
                shares = [size / 32 for size in sizes.values()]
                entropies[head].append(-sum(p * math.log(p) for p in shares) / math.log(6))
    assert hashed.layer == 1
    assert hashed.buckets == 6
    assert hashed.largest == pytest.approx(sum(largest) / len(largest))
    assert hashed.empty == pytest.approx(sum(empty) / len(empty))
    assert hashed.evenness == [pytest.approx(sum(e) / len(e)) for e in entropies.values()]
    heading, reading, picture, _, table = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(reading, Paragraph)
    assert isinstance(picture, Chart)
    assert isinstance(table, TableBlock)
    assert table.rows[0][:4] == ["layer 1", "6", "5.3", f"{hashed.largest:.1f}"]
    cell.chunk = 32  # rows that are seen as a whole have no buckets
    assert panel(subject) == []
