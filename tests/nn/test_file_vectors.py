"""First vectors from a file: rows of whole words, scaled or not; what is refused; and the command
that fine-tunes a new model from them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError
from plmctl.knowledge.static_vectors import StaticVectors
from plmctl.knowledge.vector_files import write_static
from plmctl.nn.file_vectors import FileVectors, find_words
from plmctl.nn.tables import TokenTable

PIECES = ["[PAD]", "[CLS]", "the", "Film", "##s", "dull", "film"]
SPECIAL = np.array([True, True, False, False, False, False, False])
NONE = np.zeros(0, np.int64)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    write_static(StaticVectors(["the", "film", "##s", "[CLS]"], table), tmp_path / "v.bin")
    return tmp_path / "v.bin"


def start(file: Path, *, scale: bool, width: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows before, rows after)."""
    torch.manual_seed(0)
    table = TokenTable(vocab_size=len(PIECES), width=width)
    before = table.weight.detach().clone()
    FileVectors(path=str(file), scale=scale).start(table, NONE, SPECIAL, PIECES)
    return before, table.weight.detach()


def test_rows_of_words_are_those_of_the_file(file: Path) -> None:
    """`Film` has the vector of `film`; inner pieces and special tokens are no words."""
    before, after = start(file, scale=False)
    read = {"the": 2, "film": 3, "also": 6}
    table = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    for row, n in ((read["the"], 0), (read["film"], 1), (read["also"], 1)):
        np.testing.assert_array_equal(after[row], table[n])
    kept = [0, 1, 4, 5, *range(7, len(before))]
    assert torch.equal(after[kept], before[kept])


def test_scaled_rows_are_as_long_as_the_drawn_ones(file: Path) -> None:
    before, after = start(file, scale=True)
    _, plain = start(file, scale=False)
    rows = [2, 3, 6]
    assert after[rows].square().mean() == pytest.approx(float(before[rows].square().mean()))
    assert torch.allclose(torch.cosine_similarity(after[rows], plain[rows]), torch.ones(3))


def test_words_of_vocabularies_with_marks() -> None:
    found = find_words(["<s>", "▁the", "film", "▁", "▁a"], np.array([True, *[False] * 4]))
    assert found == {1: "the", 4: "a"}


def test_another_width_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"these have 8\n  fix: size.width=8"):
        start(file, scale=False, width=6)


def plmctl(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", ["lf", "kf", "af"])  # recurrence, convolution, attention
def test_a_new_model_starts_from_them(file: Path, tmp_path: Path, layout: str) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "the film\t1\nthe dull\t0\n" * 8)
    run = tmp_path / "run"
    words = ["finetune", "task=classification", f"task.path={tmp_path}", "checkpoint=null"]
    words += ["tokenizer=word", "tokenizer.vocab_size=20", "size=tiny", "size.width=8"]
    words += ["size.inner_width=8", "size.num_heads=2", f"model.stack.layout={layout}"]
    words += ["train.epochs=null", "train.steps=1", "optim.lr=1e-9", "train.batch_size=2"]
    words += ["first_vectors=words", f"first_vectors.path={file}", f"run.dir={run}"]
    assert "2 of 4 tokens start from their vectors" in plmctl(*words)
    saved = load_file(run / "checkpoints/step-1/model.safetensors")
    rows = saved["backbone.embedding.token.weight"]
    table = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32))
    for wanted in table[:2]:
        assert (rows - wanted).abs().max(1).values.min() < 1e-6
    if layout == "af":
        again = plmctl(*words[:3], f"checkpoint={run}", *words[-3:-1], code=2)
        assert "the checkpoint brings the vectors of its tokens" in again
        pairs = plmctl(*words[:-3], "first_vectors=pairs", code=2)
        assert "words or none" in pairs
