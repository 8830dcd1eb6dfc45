"""Models without pretraining: against scikit-learn and loops, on rows of every kind of task."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from plmctl.tasks import baselines
from plmctl.tasks.baselines import CONSTANT, score_baselines
from plmctl.tasks.choices import Choice
from plmctl.tasks.classification import Classification
from plmctl.tasks.entity_typing import EntityTyping
from plmctl.tasks.generation import Generation
from plmctl.tasks.linear_model import find_features, sides_of
from plmctl.tasks.readers.pairs import Pairs
from plmctl.tasks.readers.squad import SquadFiles
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.tasks.regression import Regression
from plmctl.tasks.sparse_linear import (
    LEAST,
    MOST,
    PENALTY,
    SparseRows,
    WeightedCounts,
    count_features,
    fit_linear,
)
from plmctl.tasks.squad import Squad
from plmctl.tasks.tagging import Tagging

TEXTS = [
    ["a", "good", "film"],
    ["a", "bad", "film", "a", "bad", "one"],
    ["good", "one"],
    ["the", "film"],
    ["bad"],
]
LABELS = [1, 0, 1, 2, 0]
RNG = np.random.default_rng(0)


def build(kind: Any, metrics: list[str], **more: Any) -> Any:
    return kind(
        name="x",
        reader=Table(splits={"train": ["train.tsv"]}),
        columns={},
        max_length=8,
        metrics=metrics,
        **more,
    )


def examples(rows: list[tuple[dict[str, Any], Any]]) -> list[Example]:
    return [Example(str(n), fields, label) for n, (fields, label) in enumerate(rows)]


def test_weighted_counts_by_a_loop() -> None:
    """The smoothed form of scikit-learn's TfidfVectorizer."""
    counts = WeightedCounts(TEXTS)
    asked = [*TEXTS, ["film", "unknown", "film"], ["unknown"]]
    found = counts.rows(asked).times(torch.eye(len(counts.number), dtype=torch.float64))
    for row, text in zip(found.tolist(), asked, strict=True):
        weights = {}
        for feature in counts.number:
            texts = sum(feature in other for other in TEXTS)
            weights[feature] = text.count(feature) * (1 + math.log((1 + len(TEXTS)) / (1 + texts)))
        length = math.hypot(*weights.values()) or 1.0
        for feature, column in counts.number.items():
            assert row[column] == pytest.approx(weights[feature] / length)


def test_weights_are_those_of_the_least_loss() -> None:
    """Where a convex loss is least, its gradient is 0."""
    counts = WeightedCounts(TEXTS)
    rows, gold = counts.rows(TEXTS), torch.tensor(LABELS)
    weights, constant = fit_linear(rows, len(counts.number), 3, lambda s: F.cross_entropy(s, gold))
    x = rows.times(torch.eye(len(counts.number), dtype=torch.float64))  # [5, V]
    error = (x @ weights + constant).softmax(-1) - F.one_hot(gold, 3)  # [5, 3]
    assert (x.T @ error + PENALTY * weights).abs().max() < 1e-4
    assert error.sum(0).abs().max() < 1e-4
    assert weights.abs().max() > 1


def test_features_of_a_text_and_of_a_pair() -> None:
    assert find_features(["A good, good film"], 1) == ["a", "good", "good", "film"]
    assert find_features(["A good film"], 2)[3:] == ["a good", "good film"]
    assert find_features(["a b", "b c"], 1) == ["0 a", "0 b", "1 b", "1 c", "both b"]
    assert find_features(["好电影"], 2) == ["好", "电", "影", "好 电", "电 影"]
    entity = {"start": 2, "end": 6, "id": "", "type": ""}
    fields = {"text": "a good film", "entities": [entity], "places": [1, 2]}
    assert sides_of(Example("0", fields)) == ["a good film", "good"]


def reviews(n: int) -> list[Example]:
    words = {"pos": ["good", "fine"], "neg": ["bad", "dull"]}
    kinds = ["pos", "pos", "neg"] * n
    return examples([({"text": f"a {RNG.choice(words[k])} film"}, k) for k in kinds])


def test_classes() -> None:
    task = build(Classification, ["accuracy", "macro_f1"])
    found = score_baselines(task, reviews(8), {"dev": reviews(4), "none": []})
    assert found.scores["dev"][CONSTANT]["accuracy"] == pytest.approx(2 / 3)
    assert found.scores["dev"]["words"] == {"accuracy": 1.0, "macro_f1": 1.0}
    assert found.describe("accuracy") == (
        "accuracy: dev always the answer that is most frequent in train 0.6667, words 1.0000,"
        " words and pairs 1.0000"
    )
    assert found.describe("accuracy", 0.48).endswith(
        "; simple models read whole texts; 48% of the tokens are cut off what the fine-tuned one"
        " reads (task.max_length)"
    )


def test_the_order_of_words_is_seen_by_pairs_alone() -> None:
    task = build(Classification, ["accuracy"])
    rows = examples([({"text": "a b"}, "0"), ({"text": "b a"}, "1")] * 4)
    found = score_baselines(task, rows, {"dev": rows}).scores["dev"]
    assert found["words"]["accuracy"] == 0.5
    assert found["words and pairs"]["accuracy"] == 1.0


def test_numbers() -> None:
    task = build(Regression, ["pearson"])
    rows = examples([({"text": word, "text2": "x"}, str(n)) for n, word in enumerate("abcd")] * 3)
    found = score_baselines(task, rows, {"dev": rows}).scores["dev"]
    assert set(found) == {"words", "words and pairs"}
    assert found["words"]["pearson"] > 0.99


def test_choices_of_different_numbers() -> None:
    task = build(Choice, ["accuracy"])
    rows = examples(
        [
            ({"text": "it is", "choices": ["cold", "warm"]}, "1"),
            ({"text": "it is", "choices": ["warm", "cold", "wet"]}, "0"),
            ({"text": "so", "choices": ["dry", "warm"]}, "1"),
        ]
    )
    found = score_baselines(task, rows, {"dev": rows}).scores["dev"]
    assert found[CONSTANT]["accuracy"] == pytest.approx(2 / 3)
    assert found["words"]["accuracy"] == 1.0
    asked = [({"text": "He is in Bonn. It is wet.", "choices": ["He is dry", "It is wet"]}, "1")]
    of_passage = score_baselines(task, rows, {"dev": examples(asked)}).scores["dev"]
    assert of_passage["sliding window"]["accuracy"] == 1.0


def test_the_loss_of_choices_is_a_softmax_over_each_example() -> None:
    """With the gold choices as they are, no other direction lowers the loss."""
    task = build(Choice, ["accuracy"])
    rows = examples([({"text": "t", "choices": ["a", "b"]}, str(n)) for n in (0, 0, 0, 1)])
    predictions = score_baselines(task, rows, {"dev": rows}).predictions["dev"]["words"]
    p, other = predictions[0]["probabilities"]
    assert p + other == pytest.approx(1, abs=1e-5)
    assert 0.6 < p < 0.75  # 3 of 4, less what the penalty takes


def test_types_are_decided_as_the_task_decides() -> None:
    task = build(EntityTyping, ["f1"], threshold=0.5)
    entity = [{"start": 0, "end": 4, "id": "", "type": ""}]
    rows = [
        ({"text": f"{name} went home", "entities": entity}, labels)
        for name, labels in (
            ("Anna", ["person"]),
            ("Rome", ["place", "city"]),
            ("Paul", ["person"]),
        )
    ]
    found = score_baselines(task, examples(rows * 6), {"dev": examples(rows)}).scores["dev"]
    assert found[CONSTANT]["f1"] == pytest.approx(2 * 2 / (3 + 4))
    assert found["words"]["f1"] == 1.0


def test_tags_are_those_that_words_have_most_often() -> None:
    task = build(Tagging, ["f1", "accuracy"])
    train = [
        ({"words": ["Anna", "is", "here"]}, ["B-P", "O", "O"]),
        ({"words": ["Anna", "Rome"]}, ["B-P", "B-L"]),
        ({"words": ["Anna", "is", "is"]}, ["O", "O", "O"]),
        ({"words": ["Bonn"]}, ["B-L"]),
    ]
    dev = [({"words": ["Anna", "is", "Kiel"]}, ["B-P", "O", "B-L"])]
    found = score_baselines(task, examples(train), {"dev": examples(dev)}).scores["dev"]
    assert found[CONSTANT] == {"f1": 0.0, "accuracy": pytest.approx(1 / 3)}
    # the words that occur once are here, Rome and Bonn
    assert found["tag of the word"] == {"f1": 1.0, "accuracy": 1.0}


def test_of_many_examples_some_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "EXAMPLES", 12)
    task = build(Classification, ["accuracy"])
    found = score_baselines(task, reviews(8), {"dev": reviews(1)})
    assert found.describe("accuracy").endswith("(of 12 of 24 examples)")
    monkeypatch.setattr(baselines, "LETTERS", 60)  # texts have 10 or 11 letters
    assert len(baselines.take(reviews(8))) == 5


def test_nothing_is_said_of_what_cannot_be_learned_so() -> None:
    task = build(Classification, ["accuracy"])
    assert score_baselines(task, reviews(1), {}).describe("accuracy") == ""
    unlabelled = examples([({"text": "a film"}, None)])
    assert not score_baselines(task, reviews(1), {"dev": unlabelled}).scores


def test_of_too_many_labels_there_is_no_model_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search holds tables of words by labels, which 1,000 labels let grow to gigabytes."""
    rows = examples([({"text": f"word{n} a b"}, str(n % 30)) for n in range(60)])
    task = build(Classification, ["accuracy"])
    task.fit_labels(rows)
    whole = score_baselines(task, rows, {"dev": rows})
    assert [*whole.scores["dev"]] == [CONSTANT, "words", "words and pairs"]
    assert count_features(60, 3) == MOST
    assert count_features(10_000, 5000) < LEAST
    monkeypatch.setattr("plmctl.tasks.sparse_linear.ROOM", 30 * (4 * 60 + 26 * 999))
    few = score_baselines(task, rows, {"dev": rows})
    assert [*few.scores["dev"]] == [CONSTANT]
    assert "no model of words" in few.describe("accuracy")
    monkeypatch.setattr("plmctl.tasks.sparse_linear.ROOM", 30 * (4 * 60 + 26 * 1000))
    assert score_baselines(task, rows, {"dev": rows}).scores == whole.scores


def test_the_product_of_sparse_rows_and_its_gradient() -> None:
    """Columns in any order, and a row without any."""
    columns, values = (
        torch.tensor([3, 0, 4, 2, 1]),
        torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).double(),
    )
    rows = SparseRows(columns, values, torch.tensor([0, 3, 3]), width=6)
    dense = torch.tensor([[2.0, 0, 0, 1, 3, 0], [0] * 6, [0, 5, 4, 0, 0, 0]]).double()
    weights = torch.linspace(-1, 1, 12).double().view(6, 2).requires_grad_()
    found, wanted = rows.times(weights), dense @ weights
    assert torch.allclose(found, wanted)
    slopes = [torch.autograd.grad(each.pow(2).sum(), weights)[0] for each in (found, wanted)]
    assert torch.allclose(*slopes)


SPANS = [("Who sold boats?", "Anna"), ("Who came to Kiel?", "Paul"), ("Why is it so?", "")]
PASSAGE = "Anna sold boats. Then Paul came to Kiel."


def ask(version: int, metrics: list[str], **more: Any) -> Any:
    settings = {"max_length": 24, "stride": 5, "max_query": 4, "n_best": 20, "max_answer": 30}
    reader = SquadFiles(splits={})
    task = Squad(name="x", reader=reader, metrics=metrics, version=version, **settings, **more)
    rows = []
    for asked, answer in SPANS[: version + 1]:
        first = PASSAGE.find(answer)
        label = (first, first + len(answer)) if answer else None
        answers = [answer] if answer else []
        rows.append(({"question": asked, "context": PASSAGE, "answers": answers}, label))
    return task, examples(rows)


def test_spans() -> None:
    task, rows = ask(1, ["f1", "exact"])
    found = score_baselines(task, rows, {"dev": rows})
    assert found.scores["dev"][CONSTANT] == {"f1": 50.0, "exact": 50.0}
    assert found.scores["dev"]["sliding window"] == {"f1": 100.0, "exact": 100.0}
    # the middle of the positions 0 and 22, 4 characters long
    assert found.predictions["dev"]["usual position"][0]["guess"] == "boats"
    # no file with answers, as in a test
    bare = [replace(e, fields={**e.fields, "answers": []}) for e in rows]
    unasked = [replace(e, fields={"question": "", "context": ""}, label=None) for e in rows]
    assert [*score_baselines(task, rows, {"dev": bare, "test": unasked}).scores] == ["dev"]


@pytest.mark.parametrize("threshold", [0.0, 7.0])
def test_spans_where_some_questions_have_no_answer(threshold: float) -> None:
    task, rows = ask(2, ["best_f1", "f1", "NoAns_f1"], null_threshold=threshold)
    found = score_baselines(task, rows * 3, {"dev": rows}).scores["dev"]
    assert found["sliding window"]["f1"] == 100.0
    assert found["sliding window"]["NoAns_f1"] == 100.0
    empty = [e for e in rows if not e.label]
    found = score_baselines(task, [*rows, *empty], {"dev": rows}).scores["dev"]
    assert found[CONSTANT]["f1"] == pytest.approx(100 / 3)
    found = score_baselines(task, empty, {"dev": rows}).scores["dev"]
    assert found["sliding window"]["NoAns_f1"] == 100.0
    assert found["sliding window"]["f1"] == pytest.approx(100 / 3)


def write(sources: list[str], targets: list[str], metrics: list[str]) -> Any:
    task = Generation(
        name="x",
        reader=Pairs(splits={}),
        columns={"source": "source"},
        max_length=8,
        max_target=4,
        search=None,
        metrics=metrics,
    )
    return task, examples([({"source": s}, [t]) for s, t in zip(sources, targets, strict=True)])


def test_texts() -> None:
    sources = ["A b. C d. E f. G h.", "Who?"]
    task, rows = write(sources, ["A b.\nC d.\nE f.", "Who?"], ["rougeL", "exact", "perplexity"])
    found = score_baselines(task, rows, {"dev": rows}).scores["dev"]
    assert found["first 3 sentences"] == {"rougeL": 100.0, "exact": 100.0}
    task, rows = write(["he go", "she go"], ["he goes", "he goes"], ["exact"])
    found = score_baselines(task, rows, {"dev": rows}).scores["dev"]
    assert found == {CONSTANT: {"exact": 100.0}, "the source itself": {"exact": 0.0}}
    task, rows = write(["a"], ["b"], ["perplexity", "exact"])
    assert not score_baselines(task, rows, {"dev": rows}).scores
