"""Rows whose numbers are usual: how they are drawn, and texts that are no such rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plmctl.artifacts.loading import load
from plmctl.tasks import inference
from plmctl.tasks.task import as_task
from plmctl.use import usual_rows
from plmctl.use.asked_task import open_task
from plmctl.use.usual_rows import MOST, choose_usual, measure_agreement
from tests.command import plmctl
from tests.films import train_films

WORDS = ["a dull film", "a fine film indeed", "a dull film indeed indeed"] * 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_films(tmp_path_factory.mktemp("films"))


def test_a_file_that_is_sorted_by_label_gives_rows_of_each(run: Path, tmp_path: Path) -> None:
    loaded = load(run)
    task: Any = as_task(open_task(loaded.source, None, (), checkpoint=run))
    rows = [f"a {word} film\t{label}" for label, word in enumerate(("dull", "fine"))]
    lines = [*[rows[0]] * 400, *[rows[1]] * 400]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]))
    examples = task.splits.read_file(tmp_path / "train.tsv", task.columns)
    task.read = lambda split: examples
    split = inference.encode_split(task, "dev", examples[:1], loaded.tokenizer)
    batches, again = (choose_usual(task, loaded, split) for _ in range(2))
    ids = np.concatenate([batch.text.ids.numpy() for batch in batches])
    counts = Counter(map(tuple, ids.tolist()))
    assert len(counts) == 2
    assert sum(counts.values()) == MOST
    assert min(counts.values()) > MOST / 3
    for one, other in zip(batches, again, strict=True):
        assert (one.text.ids == other.text.ids).all()


def test_agreement_is_the_common_share_of_tokens() -> None:
    draws = np.random.default_rng(0)
    one, other = draws.integers(0, 9, 50), draws.integers(3, 12, 20)
    wanted = 0.0
    for token in range(12):
        shares = [sum(each == token for each in ids) / len(ids) for ids in (one, other)]
        wanted += min(shares)
    assert measure_agreement(one, other) == pytest.approx(wanted)
    assert measure_agreement(one, one[::-1]) == pytest.approx(1)
    assert measure_agreement(one, one + 20) == 0
    assert measure_agreement(one, one[:0]) == 0


def choose(run: Path, file: Path) -> list[Any]:
    loaded = load(run)
    task: Any = as_task(open_task(loaded.source, None, (), checkpoint=run))
    dev = inference.encode_split(task, "dev", task.read("dev"), loaded.tokenizer)
    return choose_usual(task, loaded, dev, str(file))


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (WORDS, ""),
        (["a dull pelicula"] * 40, ""),  # words of training, and some others
        (["una nueva pelicula film"] * 40, "another language, or another kind of text"),
    ],
)
def test_texts_unlike_training_are_said(
    run: Path, tmp_path: Path, lines: list[str], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(usual_rows, "remark", lambda text, level: said.append(text))
    (tmp_path / "own.txt").write_text("\n".join(lines))
    assert sum(len(batch.key) for batch in choose(run, tmp_path / "own.txt")) == len(lines)
    assert len(said) == bool(answer)
    assert answer in "".join(said)


def test_texts_that_cannot_calibrate_are_refused(run: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "own.txt", tmp_path / "out"
    words = ["--to", "openvino", "--int8", "--calibrate", str(file), "--out", str(out)]
    assert "own.txt: no such file" in plmctl("convert", str(run), *words, code=3)
    file.write_text("\n".join(WORDS[:31]))
    told = plmctl("convert", str(run), *words, code=3)
    assert "31 rows to calibrate with: at least 32 are needed" in told
    assert not out.exists()


def test_calibration_is_of_ranges_that_are_fixed(run: Path, tmp_path: Path) -> None:
    for words in (["--to", "onnx", "--int8"], ["--to", "openvino"], ["--to", "hf"]):
        more = [*words, "--calibrate", "own.txt", "--out", str(tmp_path / "out")]
        said = plmctl("convert", str(run), *more, code=2)
        assert "--to openvino --int8 --calibrate own.txt" in said
