"""E-BERT's alignment against the map that made the vectors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.errors import DataError
from plmctl.distill.aligned import Aligned, align
from plmctl.distill.word_vectors import WordsToAdd
from plmctl.knowledge.vectors import GraphVectors
from plmctl.text.tokenizer import Tokenizer

D, W = 5, 8
TEXT = ["the red cat sat near a big dog under some old tree", "she saw his new blue hat"] * 30


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXT, kind="word", vocab_size=40)


@pytest.fixture
def model(tokenizer: Tokenizer) -> Any:
    torch.manual_seed(0)
    table = torch.nn.Embedding(64, W)
    return SimpleNamespace(backbone=SimpleNamespace(token_embedding=table))


@pytest.fixture
def hidden(tokenizer: Tokenizer, model: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A map, and vectors of words that it takes exactly to those of their tokens."""
    draws = np.random.default_rng(0)
    true = draws.standard_normal((D, W))
    vectors = {word: draws.standard_normal(D) for word in sorted(set(" ".join(TEXT).split()))}
    with torch.no_grad():
        for word, vector in vectors.items():
            row = tokenizer.encode(word)[0]
            model.backbone.token_embedding.weight[row] = torch.from_numpy(vector @ true)
    return true, vectors


def write(file: Path, vectors: dict[str, np.ndarray]) -> None:
    lines = [f"{name} {' '.join(map(repr, row.tolist()))}" for name, row in vectors.items()]
    file.write_text(f"{len(lines)} {D}\n" + "\n".join(lines), encoding="utf-8")


def test_the_map_is_found(tokenizer, model, hidden):
    true, vectors = hidden
    table = model.backbone.token_embedding.weight.detach().numpy()
    names = [*vectors, "unheard of"]
    given = np.stack([*vectors.values(), np.full(D, 99.0)])  # of several tokens: passed over
    assert np.allclose(align(names, given, tokenizer, table), true, atol=1e-4)
    with pytest.raises(DataError, match="no name is one token"):
        align(["unheard of"], given[:1], tokenizer, table)


def test_entities_of_a_text_file(tmp_path, tokenizer, model, hidden):
    true, vectors = hidden
    draws = np.random.default_rng(1)
    entities = {f"ENTITY/{name}": draws.standard_normal(D) for name in ("New_York", "Paris", "Ada")}
    write(tmp_path / "w2v.txt", {**vectors, **entities})
    settings: dict[str, Any] = {"path": str(tmp_path / "w2v.txt"), "most": 9, "seed": 0}
    part = Aligned(control="none", **settings)
    assert part.names() == ("New York", "Paris", "Ada")
    wanted = WordsToAdd(part.names(), {})
    made = part.make(model, tokenizer, wanted)
    rows = np.stack(list(entities.values()))
    assert np.allclose(made.numpy(), rows @ true, atol=1e-3)
    assert Aligned(control="none", **{**settings, "most": 2}).names() == ("New York", "Paris")
    shuffled = Aligned(control="shuffled", **settings).make(model, tokenizer, wanted)
    assert sorted(map(tuple, shuffled.tolist())) == sorted(map(tuple, made.tolist()))
    assert not torch.equal(shuffled, made)
    other = Aligned(control="random", **settings).make(model, tokenizer, wanted)
    assert other.shape == made.shape
    assert (other - made).abs().max() > 0.1
    with pytest.raises(DataError, match="no vector of 'London'"):
        part.make(model, tokenizer, WordsToAdd(("London",), {}))
    with pytest.raises(DataError, match=r"'London', and of 1 other words\n  fix: words=null"):
        part.check(WordsToAdd(("Paris", "London", "Rome"), {}))
    write(tmp_path / "w2v.txt", vectors)
    with pytest.raises(DataError, match="words and entities"):
        Aligned(control="none", **settings).names()


def test_entities_of_a_vectors_directory(tmp_path, tokenizer, model, hidden):
    true, vectors = hidden
    names = (*vectors, "big_tree")
    table = np.stack([*vectors.values(), np.ones(D)]).astype(np.float32)
    GraphVectors(names, ("r",), table, np.ones((1, D), np.float32)).write(tmp_path / "graph")
    part = Aligned(path=str(tmp_path / "graph"), most=99, control="none", seed=0)
    assert part.names()[-1] == "big tree"
    made = part.make(model, tokenizer, WordsToAdd(("big tree", "cat"), {}))
    assert np.allclose(made.numpy(), np.stack([np.ones(D), vectors["cat"]]) @ true, atol=1e-3)
