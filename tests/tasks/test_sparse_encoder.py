"""Sparse encoders: weights and penalties as loops over tokens, and an inverted index against
products of whole vectors.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from plmctl.core.errors import ConfigError
from plmctl.heads.sentences import pool_text
from plmctl.heads.term_weights import weigh_terms
from plmctl.models.base import Model
from plmctl.storage.arrays import write_npz
from plmctl.tasks.search import search_vectors
from plmctl.tasks.term_vectors import TermVectors, search_terms
from plmctl.text.tokenizer import Tokenizer
from plmctl.use.semantic_search import Manner, VectorFile, shorten
from tests.objectives.contrastive import encoder
from tests.tasks.test_ranking import ROWS, make_task, read_batch, tokenizer, write_rows

__all__ = ["tokenizer"]


def draw(rows: int, columns: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 4, (rows, columns)) * (rng.random((rows, columns)) < 0.3)).astype(
        np.float32
    )


def test_weights_are_the_largest_of_the_real_tokens() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(4, 6).requires_grad_(False)
    states = torch.randn(3, 5, 4)
    real = torch.arange(5) < torch.tensor([[5], [2], [0]])
    found = weigh_terms(head, states, real)
    for row in range(3):
        for column in range(6):
            logits = [float(head(states[row, t])[column]) for t in range(5) if real[row, t]]
            wanted = max([math.log(1 + max(0.0, logit)) for logit in logits], default=0.0)
            assert float(found[row, column]) == pytest.approx(wanted, abs=1e-6)
    assert not found[2].any()


@pytest.mark.parametrize(("share", "risen"), [(0.0, 0.0), (0.1, 0.25), (0.2, 1.0), (0.9, 1.0)])
def test_penalties_are_squares_of_means(
    share: float, risen: float, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    file, words = write_rows(tmp_path / "a.jsonl", ROWS), ["task.rise=0.2", "task.query_flops=0.5"]
    task = make_task("sparse_encoder", file, "task.dev_share=0", "task.negatives=2", *words)
    batch, examples = read_batch(task, tokenizer)
    kind = batch.values["kind"].tolist()
    weights = torch.rand(len(kind), 7) * (torch.rand(len(kind), 7) < 0.5)
    task.before_step(None, None, share)
    terms = task.loss({"sentence": weights}, batch).terms
    for name, weight, own in (("query_flops", 0.5, {0}), ("text_flops", 3e-5, {1, 2})):
        rows = [w for w, k in zip(weights.tolist(), kind, strict=True) if k in own]
        wanted = sum((sum(row[v] for row in rows) / len(rows)) ** 2 for v in range(7))
        assert float(terms[name].total) == pytest.approx(wanted, rel=1e-5)
        assert terms[name].weight == pytest.approx(weight * risen)
    dense = make_task("bi_encoder", file, "task.dev_share=0", "task.negatives=2")
    wanted = dense.loss({"sentence": weights}, batch).terms["sentence"].total
    assert float(terms["sentence"].total) == pytest.approx(float(wanted))
    found = task.predict({"sentence": weights.numpy()}, task.encode(examples, tokenizer), examples)
    other = dense.predict({"sentence": weights.numpy()}, task.encode(examples, tokenizer), examples)
    assert [each["guess"] for each in found] == [each["guess"] for each in other]


def test_an_inverted_index_finds_what_products_find() -> None:
    queries, documents = draw(9, 12, seed=1), draw(40, 12, seed=2)
    documents[7] = 0
    names = [f"d{n}" for n in range(40)]
    terms = TermVectors.of(documents)
    joined = TermVectors.join([terms[range(25)], terms[range(25, 40)]], 12)
    exact = search_vectors(queries, documents, names, top=10)
    for found, wanted in zip(
        search_terms(TermVectors.of(queries), joined, names, top=10), exact, strict=True
    ):
        assert found.numbers.tolist() == wanted.numbers.tolist()
        assert found.scores.tolist() == wanted.scores.tolist()
    products = TermVectors.of(documents[:9]).multiply(TermVectors.of(queries))
    assert products == pytest.approx((documents[:9] * queries).sum(1))
    taken = terms[[7, 3, 3]]
    assert [len(taken), taken.row(0)[0].tolist()] == [3, []]
    assert taken.row(1)[1].tolist() == documents[3][documents[3] > 0].tolist()


def test_a_file_without_zeros_has_the_same_vectors(tmp_path: Path) -> None:
    whole = draw(5, 8, seed=3)
    arrays = dict(shorten(((f"hidden_{n}", row[None]) for n, row in enumerate(whole)), "sparse"))
    made = Manner("x", "splade", "all", False, ["a"] * 5, numbers="sparse")
    write_npz(tmp_path / "v.npz", [*arrays.items(), *made.write()])
    vectors = VectorFile.read(tmp_path / "v.npz").vectors
    assert isinstance(vectors, TermVectors)
    for row, wanted in enumerate(whole):
        columns, values = vectors.row(row)
        assert columns.tolist() == np.flatnonzero(wanted).tolist()
        assert values.tolist() == wanted[wanted > 0].tolist()


def test_settings_and_models_that_cannot_be(tmp_path: Path, tokenizer: Tokenizer) -> None:
    for word in ("+task.index=int8", "+task.matryoshka=[4]", "+task.likeness=cosine"):
        with pytest.raises(ConfigError, match="searched whole"):
            make_task("sparse_encoder", "x", word)
    with pytest.raises(ConfigError, match=r"pooling=splade"):
        make_task("sparse_encoder", "x", "task.pooling=mean")
    task = make_task("sparse_encoder", write_rows(tmp_path / "a.jsonl", ROWS), "task.dev_share=0")
    batch, _ = read_batch(task, tokenizer)
    with pytest.raises(ConfigError, match="has no mlm"):
        pool_text(Model(backbone=encoder(0.0).backbone, heads={}), batch, "splade")
