"""Fact completion: ranks as a loop over candidates, the answers without a model, and what two kinds
of model score, name by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plmctl.artifacts.loading import Loaded, load
from plmctl.cli.app import make_app
from plmctl.core.errors import DataError
from plmctl.probes.fact_completion import (
    FactCompletion,
    Query,
    Relation,
    Scorer,
    rank,
    score_relation,
)
from plmctl.training.device.precision import choose
from plmctl.use.embedding_lines import EmbeddingLine
from plmctl.use.vectors import make_batch
from tests.knowledge.tables import ENTITIES, write_knowledge

TRIPLES = [
    ("Paris", "in", "France"),
    ("Rome", "in", "Italy"),
    ("Seine", "in", "France"),
    ("Seine", "in", "Paris"),
    ("Paris", "near", "London"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_knowledge(tmp_path / "known", ENTITIES, triples=TRIPLES)


def test_every_fact_is_a_query(folder: Path) -> None:
    inside, near = FactCompletion(path=str(folder)).read()
    assert (inside.name, near.name) == ("in", "near")
    assert inside.candidates == [("Paris",), ("France",), ("Italy",)]
    assert inside.counts.tolist() == [1, 2, 1]
    assert inside.queries == [
        Query("Paris", "Paris in ", "", (1,)),
        Query("Rome", "Rome in ", "", (2,)),
        Query("Seine", "Seine in ", "", (0, 1)),
    ]
    (few,) = FactCompletion(path=str(folder), queries=2).read()[:1]
    assert len(few.queries) == 2


def test_templates_say_how_a_fact_is_asked(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "templates.tsv"
    file.write_text("in\tIt is [Y] where [X] lies.\n")
    (relation,) = FactCompletion(path=str(folder), templates=str(file), aliases=True).read()
    assert relation.queries[0] == Query("Paris", "It is ", " where Paris lies.", (1,))
    assert relation.candidates[0] == ("Paris", "City of Light")
    for text, what in (
        ("in\t[X] lies.\n", r"templates.tsv:1: .*does not have \[X\] and \[Y\] once each"),
        ("on\t[X] is in [Y]\n", r"templates.tsv:1: there is no relation 'on'"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=what):
            FactCompletion(path=str(folder), templates=str(file)).read()


def test_ranks_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 6, (20, 15)).astype(float)
    answers = [tuple(rng.choice(15, rng.integers(1, 4), replace=False)) for _ in range(20)]
    expected = []
    for row, true in zip(scores, answers, strict=True):
        for answer in true:
            place = 1.0
            for other, score in enumerate(row):
                if other not in true:
                    place += 1.0 if score > row[answer] else 0.5 if score == row[answer] else 0
            expected.append(place)
    assert rank(scores, answers).tolist() == expected


def test_answers_without_a_model_stand_beside() -> None:
    queries = [
        Query("Apple Watch", "Apple Watch is by ", "", (0,)),
        Query("Golf", "Golf is by ", "", (1,)),
        Query("Polo", "Polo is by ", "", (1,)),
    ]
    candidates = [("Apple",), ("Volkswagen",), ("Ford",)]
    relation = Relation("made by", queries, candidates, np.array([1, 2, 0]))
    scores = np.array([[0.0, 1.0, 2.0], [0.0, 9.0, 1.0], [3.0, 2.0, 1.0]])
    found = FactCompletion(path=".", top=1).score(relation, scores)
    assert found == {
        "hits@1": pytest.approx(1 / 3),
        "mrr": pytest.approx((1 / 3 + 1 + 1 / 2) / 3),
        "no leaks hits@1": 0.5,
        "frequency hits@1": pytest.approx(2 / 3),
        "names hits@1": pytest.approx(1 / 3),
        "chance hits@1": pytest.approx(1 / 3),
        "queries": 3,
        "candidates": 3,
    }


def test_a_directory_without_triples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no triples.*\n  fix: plmctl data link"):
        FactCompletion(path=str(write_knowledge(tmp_path))).read()


@pytest.fixture(scope="module")
def run(tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "wklm"
    words = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=48"]
    words += [f"data.path={tokens_of('wordpiece', spans=('entity',))}", "train.steps=1"]
    done = CliRunner().invoke(
        make_app(), ["pretrain", "wklm", *words, f"run.dir={folder}", "eval.rows=8"]
    )
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def loaded(run: Path) -> Loaded:
    return load(run)


def states(loaded: Loaded, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return loaded.model(make_batch([EmbeddingLine(ids)])).last[0]


NAMES = ["string", "a list", "object of class", "value"]
QUERY = Query("it", "this is a ", " of text", (0,))


def test_the_probability_of_the_original_name_by_name(loaded: Loaded) -> None:
    scorer = Scorer(loaded, choose("fp32", torch.device("cpu")), batch_size=2)
    expected, vocab = [], loaded.vocab
    for name in NAMES:
        parts = [loaded.tokenizer.encode(text) for text in ("this is a", name, "of text")]
        ids = [vocab.id("cls"), *parts[0], *parts[1], *parts[2], vocab.id("sep")]
        last = states(loaded, ids)
        ends = len(parts[0]), 1 + len(parts[0]) + len(parts[1])
        pair = [loaded.model.heads["mlm"].transform_states(last[end]) for end in ends]
        logits = loaded.model.heads["mention"].linear(torch.cat(pair))
        expected.append(torch.log_softmax(logits, 0)[1].item())
    np.testing.assert_allclose(scorer.originals(QUERY, NAMES), expected, rtol=1e-4)


def test_masks_by_the_mean_of_their_tokens(loaded: Loaded) -> None:
    scorer = Scorer(loaded, choose("fp32", torch.device("cpu")), batch_size=2)
    expected, vocab = [], loaded.vocab
    for name in NAMES:
        parts = [loaded.tokenizer.encode(text) for text in ("this is a", name, "of text")]
        hidden = [vocab.mask] * len(parts[1])
        ids = [vocab.id("cls"), *parts[0], *hidden, *parts[2], vocab.id("sep")]
        last = states(loaded, ids)
        begin = 1 + len(parts[0])
        logs = [
            torch.log_softmax(loaded.model.heads["mlm"](last[begin + n]), 0)[token].item()
            for n, token in enumerate(parts[1])
        ]
        expected.append(sum(logs) / len(logs))
    np.testing.assert_allclose(scorer.masks(QUERY, NAMES), expected, rtol=1e-4)


def test_a_candidate_has_the_best_score_of_its_names(loaded: Loaded) -> None:
    relation = Relation("x", [QUERY], [("string", "value"), ("list",)], np.ones(2))
    given = {"string": -3.0, "value": -1.0, "list": -2.0}
    found = score_relation(relation, lambda _, names: np.array([given[name] for name in names]))
    assert found.tolist() == [[-1.0, -2.0]]


def test_the_command(run: Path, folder: Path) -> None:
    words = ["eval", f"checkpoint={run}", "task=fact_completion", f"task.path={folder}", "--json"]
    for scorer in ("original", "masks"):
        done = CliRunner().invoke(make_app(), [*words, f"task.scorer={scorer}"])
        assert done.exit_code == 0, done.output
        metrics = json.loads(done.stdout)["metrics"]
        assert set(metrics) == {"in", "near", "average"}
        assert metrics["in"]["queries"] == 3
        assert 0 < metrics["average"]["mrr"] <= 1


def test_another_checkpoint_is_refused(
    folder: Path, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    words = ["size=tiny", "size.width=32", "size.inner_width=64", "format.max_length=48"]
    words += [f"data.path={tokens_of('wordpiece')}", "train.steps=1", "objective=[mlm]"]
    words += [f"run.dir={tmp_path / 'bert'}", "eval.rows=8"]
    assert CliRunner().invoke(make_app(), ["pretrain", "bert", *words]).exit_code == 0
    words = [f"checkpoint={tmp_path / 'bert'}", "task=fact_completion", f"task.path={folder}"]
    done = CliRunner().invoke(make_app(), ["eval", *words])
    assert done.exit_code == 2
    assert "this checkpoint has no head 'mention'\n  fix: task.scorer=masks" in done.output
