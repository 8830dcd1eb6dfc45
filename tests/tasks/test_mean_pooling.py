"""The mean of all tokens stands for a row, or the means of its two texts: against loops, of padded
and of packed rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plmctl.artifacts.model_facts import pooling
from plmctl.cli.app import make_app
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.heads.rows import average_rows, compare_texts


def batch(length: list[int], anchors: list[tuple[int, int]], document: object = None) -> Batch:
    ids = torch.zeros(len(length), 6, dtype=torch.long)
    tracks = {} if document is None else {"document": torch.tensor(document)}
    seq = Seq(ids, torch.tensor(length), tracks)
    return Batch(torch.arange(len(length)), {"text": seq}, anchors=torch.tensor(anchors))


def test_padding_does_not_count() -> None:
    features = torch.randn(3, 6, 4)
    found = average_rows(features, batch([6, 2, 4], [(0, 0), (1, 0), (2, 3)]))
    expected = [features[row, :size].mean(0) for row, size in enumerate([6, 2, 4])]
    torch.testing.assert_close(found, torch.stack(expected))


def test_a_packed_row_has_a_mean_for_each_document() -> None:
    features = torch.randn(2, 6, 4)
    document = [[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]]
    found = average_rows(features, batch([6, 5], [(0, 0), (0, 2), (1, 0), (1, 3)], document))
    parts = [features[0, :2], features[0, 2:], features[1, :3], features[1, 3:5]]
    torch.testing.assert_close(found, torch.stack([part.mean(0) for part in parts]))


def test_two_texts_are_compared() -> None:
    features = torch.randn(3, 6, 4)
    rows = batch([6, 5, 4], [(0, 0), (1, 0), (2, 0)])
    segment = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1], [0] * 6])
    found = compare_texts(features, with_segments(rows, segment))
    pairs = [
        (features[0, :2].mean(0), features[0, 2:].mean(0)),
        (features[1, :3].mean(0), features[1, 3:5].mean(0)),
        (features[2, :4].mean(0), features[2, :4].mean(0)),  # one text
    ]
    expected = [torch.cat([a, b, (a - b).abs(), a * b]) for a, b in pairs]
    torch.testing.assert_close(found, torch.stack(expected))


def test_a_packed_pair_reads_its_own_document() -> None:
    features = torch.randn(1, 6, 4)
    rows = batch([6], [(0, 0), (0, 3)], [[0, 0, 0, 1, 1, 1]])
    found = compare_texts(features, with_segments(rows, torch.tensor([[0, 1, 1, 0, 0, 1]])))
    x = features[0]
    pairs = [(x[0], x[1:3].mean(0)), (x[3:5].mean(0), x[5])]
    expected = [torch.cat([a, b, (a - b).abs(), a * b]) for a, b in pairs]
    torch.testing.assert_close(found, torch.stack(expected))


def with_segments(rows: Batch, segment: torch.Tensor) -> Batch:
    return replace(rows, seqs={"text": rows.text.with_tracks(segment=segment)})


def test_another_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mean'"):
        pooling({"model": {"classifier": {"pooling": "means"}}})
    words = ["pretrain", "modern_encoder", "data.path=builtin", "--dry-run"]
    done = CliRunner().invoke(make_app(), [*words, "model.classifier.pooling=comprae"])
    assert done.exit_code == 2
    assert "did you mean 'compare'" in done.output


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("recipe", "task", "names", "typed"),
    [
        ("modern_encoder", "classification", "text", "texts that you type, one a line,"),
        ("bert", "pair_classification", "text\ttext2", "one a line, a tab between its two texts"),
    ],
)
def test_embedding_and_evaluation_answer_alike(
    recipe: str, task: str, names: str, typed: str, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [f"{'good' if i % 2 else 'bad'} text of {i} words" for i in range(8)]
    rows = [row.replace(" of ", "\tof ") for row in rows] if "\t" in names else rows
    text = "".join(f"{row}\t{row.split()[0]}\n" for row in rows)
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text(f"{names}\tlabel\n{text}")
    (tmp_path / "rows.txt").write_text("\n".join(rows) + "\n")
    small = ["size=tiny", "size.width=32", "size.inner_width=64", "train.batch_size=4"]
    new = [*small, "train.steps=3", "train.precision=fp32"]
    run(
        "pretrain",
        recipe,
        f"data.path={tokens_of('wordpiece')}",
        "eval.rows=4",
        *new,
        f"run.dir={tmp_path / 'a'}",
    )
    told = run(
        "finetune",
        f"task={task}",
        f"task.path={tmp_path}",
        f"checkpoint={tmp_path / 'a'}",
        *new[3:],
        "optim.lr=1e-2",
        f"run.dir={tmp_path / 'b'}",
    )
    assert typed in told
    run("eval", f"checkpoint={tmp_path / 'b'}", f"out={tmp_path / 'e'}")
    run(
        "embed",
        f"checkpoint={tmp_path / 'b'}",
        f"input={tmp_path / 'rows.txt'}",
        "logits=true",
        f"out={tmp_path / 'v.npz'}",
    )
    vectors = np.load(tmp_path / "v.npz")
    wanted = [json.loads(line) for line in (tmp_path / "e/dev.jsonl").open()]
    for i, row in enumerate(wanted):
        shares = torch.from_numpy(vectors[f"logits_{i}"]).softmax(0)
        assert shares.tolist() == pytest.approx(list(row["probabilities"].values()), abs=1e-3)


def run(*words: str) -> str:
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    return done.output
