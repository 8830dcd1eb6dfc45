"""Controls: where there is nothing to learn but frequencies, no objective learns more."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.data.shards import Shards

WORDS = [a + b for a in "bcdfghjk" for b in "aeiou"]  # 40 words; each becomes one token


@pytest.fixture(scope="module")
def independent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words drawn independently, in Zipf's proportions: a text without any context."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, len(WORDS) + 1)
    lines = [" ".join(rng.choice(WORDS, 12, p=share / share.sum())) for _ in range(3000)]
    file = tmp_path_factory.mktemp("independent") / "text.txt"
    file.write_text(
        "".join(f"{line}\n" + "\n" * (place % 10 == 9) for place, line in enumerate(lines)),
        encoding="utf-8",
    )
    return file


# who sees what is hidden is found by tests/runs/test_leaks.py, too
RECIPES = ("bert", "gpt", "roberta", "gpt2")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_nothing_beats_the_unigram_entropy_of_independent_words(
    recipe: str, independent: Path, tmp_path: Path
) -> None:
    """All chosen tokens are masked here: a token that is asked but shown (10% in BERT) could be
    guessed from itself.
    """
    masks = (
        ["noise.token_mask.mask_share=1.0", "noise.token_mask.random_share=0.0"]
        if "gpt" not in recipe
        else []
    )
    masks += [f"eval.{word}" for word in masks]
    size = [
        "size=tiny",
        "size.width=32",
        "size.inner_width=64",
        "format.max_length=32",
        "tokenizer=wordpiece",
        "tokenizer.vocab_size=63",
    ]
    train = [
        "train.steps=250",
        "train.batch_size=32",
        "optim.lr=3e-3",
        "train.eval_every=0",
        "eval.rows=null",
        "data.valid_share=0.2",
    ]
    words = [
        "pretrain",
        recipe,
        *size,
        *train,
        *masks,
        f"data.path={independent}",
        f"run.dir={tmp_path / 'run'}",
    ]
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 0, result.output
    records = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    name = "clm" if "gpt" in recipe else "mlm"
    reached = next(
        record[f"valid/loss/{name}"] for record in records if f"valid/loss/{name}" in record
    )
    entropy = _entropy(independent)
    if name == "clm":  # the end of a document is a target too, and costs -log2 of its share
        words_a_document = 120
        share = 1 / (words_a_document + 1)
        entropy = (1 - share) * (entropy - np.log(1 - share)) - share * np.log(share)
    assert entropy - 0.03 < reached < entropy + 0.15


def _entropy(text: Path) -> float:
    counts = np.unique(text.read_text().split(), return_counts=True)[1]
    share = counts / counts.sum()
    return float(-(share * np.log(share)).sum())


def test_each_word_is_one_token(independent: Path, tokens_of: object, tmp_path: Path) -> None:
    """What the test above stands on."""
    words = [
        "tokenize",
        "tokenizer=wordpiece",
        "tokenizer.vocab_size=63",
        f"data.path={independent}",
        f"out={tmp_path / 'tokens'}",
    ]
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 0, result.output
    assert (
        len(Shards.open(tmp_path / "tokens").ids)
        + len(Shards.open(tmp_path / "tokens", "valid").ids)
        == 3000 * 12
    )
