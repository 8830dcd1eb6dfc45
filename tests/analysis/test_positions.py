"""Maps of positions: cosines by loops, the published formulas of biases by distance."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plmctl.analysis.positions import PositionEffects, average_by_distance, average_cosines
from plmctl.artifacts.loading import Loaded
from plmctl.report.page import Chart, Heading, Paragraph, TableBlock
from plmctl.report.panels.positions import panel
from plmctl.report.subject import find_subject
from tests.analysis.built import build

SMALL = [
    "tokenizer.vocab_size=280",
    "format.max_length=32",
    "size.num_layers=2",
    "size.num_heads=2",
]


def measure(loaded: Loaded) -> PositionEffects:
    found = PositionEffects.of(loaded)
    assert found is not None
    return found


def cosine(u: list[float], v: list[float]) -> float:
    return sum(a * b for a, b in zip(u, v, strict=True)) / (math.hypot(*u) * math.hypot(*v))


def test_means_of_cosines_by_range_and_by_distance() -> None:
    vectors = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
    rows = vectors.tolist()
    ranges = [range(3), range(3, 6), range(6, 10)]
    wanted = [
        [
            sum(cosine(rows[p], rows[q]) for p in one for q in two) / (len(one) * len(two))
            for two in ranges
        ]
        for one in ranges
    ]
    assert average_cosines(vectors, 3).tolist() == [
        pytest.approx(line, abs=1e-6) for line in wanted
    ]
    found = average_by_distance(vectors)
    assert list(found) == [1, 2, 4, 8]
    for distance, mean in found.items():
        pairs = [cosine(rows[p], rows[p + distance]) for p in range(10 - distance)]
        assert mean == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)


def test_learned_positions_on_the_page(trained: Path) -> None:
    subject = find_subject([trained])
    backbone: Any = subject.runs[0].loaded.model.backbone
    (found,) = measure(subject.runs[0].loaded).likeness
    table = backbone.position.table.weight.tolist()
    assert found.length == 64 == len(table)
    wanted = sum(cosine(table[p], table[p + 4]) for p in range(60)) / 60
    assert found.by_distance[4] == pytest.approx(wanted, abs=1e-6)
    heading, text, picture, _, means = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(text, Paragraph)
    assert isinstance(picture, Chart)
    assert isinstance(means, TableBlock)
    assert means.rows == [
        ["added to the embeddings", *(f"{mean:.2f}" for mean in found.by_distance.values())]
    ]


def wave(position: int, width: int) -> list[float]:
    """The vector of a position (Vaswani et al., 2017, sec. 3.5)."""
    angles = [position / 10000 ** (2 * i / width) for i in range(width // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


@pytest.mark.parametrize(
    ("position", "place", "vector"),
    [
        ("sinusoidal", "added to the embeddings", lambda p: wave(p, 16)),
        # two positions differ by the angle of each pair of columns alone
        ("rotary", "turns queries and keys", lambda p: wave(p, 8)),
    ],
)
def test_positions_without_weights(
    position: str, place: str, vector: Callable[[int], list[float]]
) -> None:
    (found,) = measure(build("gpt2", f"position={position}")[0]).likeness
    assert found.place == place
    cosines = [[cosine(vector(p), vector(q)) for q in range(32)] for p in range(32)]
    assert found.cosines.tolist() == [pytest.approx(line, abs=1e-5) for line in cosines]


def test_vectors_of_every_layer() -> None:
    loaded: Any = build("gpt2", "position=learned_by_layer")[0]
    found = measure(loaded).likeness
    assert [each.place for each in found] == ["before layer 1", "before layer 2"]
    for each, table in zip(found, loaded.model.backbone.position.tables, strict=True):
        rows = table.weight.tolist()
        assert float(each.cosines[3, 9]) == pytest.approx(cosine(rows[3], rows[9]), abs=1e-6)


def test_alibi_by_distance_and_head() -> None:
    loaded, subject = build("gpt2", "position=alibi")
    (found,) = measure(loaded).biases
    assert found.offsets == list(range(-31, 1))
    # Press et al., 2022, sec. 3: of n heads, slopes from 2^(-8 / n) on, each by that factor
    wanted = [[2 ** (-4 * head) * offset for offset in found.offsets] for head in (1, 2)]
    assert found.added.tolist() == [pytest.approx(line) for line in wanted]
    heading, text, picture, table = panel(subject)
    assert isinstance(heading, Heading)
    assert isinstance(text, Paragraph)
    assert "is 1.94;" in text.text
    assert isinstance(picture, Chart)
    assert isinstance(table, TableBlock)
    assert table.head == ["key - query", "-16", "-8", "-4", "-2", "-1", "0"]
    added = ["-1.00", "-0.50", "-0.25", "-0.12", "-0.06", "0.00"]
    assert table.rows[0] == ["all layers, head 0", *added]


def test_relative_buckets_by_distance_in_both_stacks() -> None:
    loaded: Any = build("t5", "size.num_layers=1")[0]
    found = {bias.part: bias for bias in measure(loaded).biases}
    assert list(found) == ["encoder", "decoder"]
    backbone = loaded.model.backbone
    for part, bias in found.items():
        table = getattr(backbone, part).position.table.weight.T.tolist()
        assert max(bias.offsets) > 0 if part == "encoder" else max(bias.offsets) == 0
        for number, offset in enumerate(bias.offsets):
            if abs(offset) < 8:  # a bucket of its own (Raffel et al., 2020)
                row = abs(offset) + 16 * (offset > 0)
                assert bias.added[:, number].tolist() == pytest.approx([h[row] for h in table])


def test_distances_of_transformer_xl() -> None:
    loaded: Any = build("transformer_xl", "format.max_length=16")[0]
    found = measure(loaded).biases
    assert [bias.place for bias in found] == ["layer 1", "layer 2"]
    cells = [block.cell for block in loaded.model.backbone.stack.blocks["a"]]
    for bias, cell in zip(found, cells, strict=True):
        maps, v = cell.place.weight.tolist(), cell.place_bias[:, 0].tolist()
        for number in (0, 5, 15):
            table = wave(-bias.offsets[number], 16)  # of the distance query - key
            r = [sum(w * x for w, x in zip(line, table, strict=True)) for line in maps]
            for head in range(2):
                own = r[8 * head : 8 * head + 8]
                score = sum(a * b for a, b in zip(v[head], own, strict=True)) / math.sqrt(8)
                assert float(bias.added[head, number]) == pytest.approx(score, abs=1e-6)
