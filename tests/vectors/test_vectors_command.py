"""`plmctl vectors`: what is written, what is refused, and vectors out of a model, as a loop over
words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plmctl.artifacts.loading import load
from plmctl.cli.app import make_app
from plmctl.knowledge.vector_files import read_static
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.static_embedding import average_words
from plmctl.use.vectors import make_batch
from plmctl.vectors.distilled import Distilled
from tests.vectors.tiny_text import draw_sentences, measure_purity


def plmctl(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text("\n".join(draw_sentences(count=300)) + "\n")
    return file


@pytest.fixture(scope="module")
def run(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "bert"
    words = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=48"]
    words += ["tokenizer.vocab_size=400", "train.steps=1", f"data.path={small_text}"]
    plmctl("pretrain", "bert", *words, f"run.dir={folder}", "eval.rows=8")
    return folder


def test_vectors_are_learned_and_written(text: Path, tmp_path: Path) -> None:
    given = ["split=spaces", "width=12", f"data.path={text}", "data.lines=sentence", "--json"]
    ngrams = ["method.most_ngram=4", "method.buckets=500", "method.row=8", "method.rows=8"]
    out = tmp_path / "new" / "v.safetensors"
    told = plmctl("vectors", *given, *ngrams, "method.epochs=10", f"out={out}")
    assert json.loads(told.splitlines()[-1])["words"] == 24
    read = read_static(out)
    assert measure_purity(read.words, read.table) == 1
    assert read.find("g1w99") is not None  # from its n-grams
    assert [file.name for file in out.parent.iterdir()] == ["v.safetensors"]
    assert "exists" in plmctl("vectors", *given, f"out={out}", code=2)
    told = plmctl("vectors", *given[:-1], *ngrams, "method.epochs=1", f"out={tmp_path / 'v.vec'}")
    assert "without the n-grams" in told
    assert len(read_static(tmp_path / "v.vec").words) == 24


def test_what_is_refused(text: Path, tmp_path: Path) -> None:
    given = ["vectors", f"data.path={text}"]
    assert "a file that ends with .safetensors" in plmctl(*given, "out=v.npz", code=2)
    out = f"out={tmp_path / 'v.vec'}"
    assert "which model makes the vectors?" in plmctl(*given, out, "method=distilled", code=2)
    assert "learns from the text alone" in plmctl(*given, out, "checkpoint=x", code=2)
    assert "a smaller least=" in plmctl(*given, out, "least=99999", code=3)
    assert not list(tmp_path.iterdir())


def test_components_and_weights() -> None:
    """Principal components by SVD, each word times a / (a + p)."""
    draw = np.random.default_rng(0)
    vectors, shares = draw.normal(size=(40, 6)) * [5, 4, 3, 2, 1, 0.5], draw.random(40)
    given: dict[str, Any] = dict(of="alone", layer=-1, contexts=1, words=40)
    made = Distilled(**given, reduce=True, sif=0.1).finish(vectors, shares, 3)
    centred = vectors - vectors.mean(0)
    _, _, directions = np.linalg.svd(centred)
    wanted = centred @ directions[:3].T * (0.1 / (0.1 + shares))[:, None]
    np.testing.assert_allclose(np.abs(made), np.abs(wanted), rtol=1e-4, atol=1e-5)
    plain = Distilled(**given, reduce=False, sif=None).finish(vectors, shares, 3)
    np.testing.assert_allclose(plain, vectors, rtol=1e-6)


def test_vectors_out_of_a_model(run: Path, small_text: Path, tmp_path: Path) -> None:
    """Each word read alone, the mean over its tokens."""
    given = ["vectors", "method=distilled", f"checkpoint={run}", f"data.path={small_text}"]
    given += ["least=1", "method.words=20"]
    out = tmp_path / "v.safetensors"
    plmctl(*given, "method.reduce=false", "method.sif=null", f"out={out}")
    read, loaded = read_static(out), load(run)
    assert 10 < len(read.words) <= 20
    for word in list(read.words)[:3]:
        row = [loaded.vocab.id("cls"), *loaded.tokenizer.encode(word), loaded.vocab.id("sep")]
        with torch.no_grad():
            batch = make_batch([EmbeddingLine(row)])
            hidden = loaded.model(batch, record=frozenset({"hidden"})).recorded["hidden"][-1][0]
        vector = read.find(word)
        assert vector is not None
        np.testing.assert_allclose(vector, hidden[1:-1].mean(0), atol=1e-5)
    small = tmp_path / "small.vec"
    told = plmctl(*given, "width=8", "method.of=input", f"out={small}")
    assert "valid: no text is held out" in told
    assert read_static(small).width == 8
    assert "at most 32" in plmctl(*given, f"out={tmp_path / 'wide.vec'}", code=2)


def test_words_of_chinese_lines(tmp_path: Path) -> None:
    file, lines, out = tmp_path / "zh.vec", tmp_path / "lines.txt", tmp_path / "bags.npz"
    file.write_text("2 2\n学习 3 4\n汉语 1 0\n")
    texts = ["学习学习。", "我们走吧！", "学习汉语。"]
    lines.write_text("\n".join(texts))
    said = plmctl("embed", f"checkpoint={file}", f"input={lines}", f"out={out}", code=3)
    assert "fix: segment=jieba" in said
    assert not out.exists()
    words = [f"checkpoint={file}", f"input={lines}", f"out={out}", "data.segment=jieba"]
    said = plmctl("embed", *words, code=2)  # the one problem: vectors are no wrong model
    assert "fix: segment=jieba" in said
    assert "problems" not in said
    made = average_words(texts, file, normalize=False, segment=cut_pairs)
    assert (made.covered, made.words, made.empty) == (4, 6, [2])  # marks are no words
    assert made.warnings == ["1 line without a vector, written as zeros: 2"]
    rows = [row[0].tolist() for _, row in made.arrays]
    assert rows == [[3, 4], [0, 0], [2, 2]]


def cut_pairs(text: str) -> Iterator[tuple[int, int]]:
    """Two characters a word."""
    return ((n, min(n + 2, len(text))) for n in range(0, len(text), 2))


def test_few_words_with_a_vector(tmp_path: Path) -> None:
    file, lines, out = tmp_path / "few.vec", tmp_path / "lines.txt", tmp_path / "bags.npz"
    file.write_text("1 2\nwords 3 4\n")
    lines.write_text("words of a line - here\n")
    said = plmctl("embed", f"checkpoint={file}", f"input={lines}", f"out={out}")
    assert "20% of the words have a vector" in said  # the dash is no word
    assert "1 of 5 words have a vector" in said
