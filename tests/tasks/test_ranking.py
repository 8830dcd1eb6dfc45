"""Ranking: trec_eval's scores against loops and scikit-learn, the order of ties, readers, and the
losses of encoders as loops over texts.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score

from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.heads.vector import Vector
from plmctl.models.base import Model
from plmctl.tasks import batches, inference
from plmctl.tasks.layouts import encode
from plmctl.tasks.ranking import rank_others
from plmctl.tasks.readers.ranking import find_corpus, read_qrels
from plmctl.tasks.scores.ranking import (
    check_ranking_metrics,
    measure,
    order_ties,
    score_rankings,
    take_best,
)
from plmctl.tasks.search import Ranked, search_vectors
from plmctl.text.tokenizer import Tokenizer
from tests.objectives.contrastive import W, encoder

METRICS = ["mrr@5", "mrr", "ndcg@5", "ndcg", "recall@3", "map@5", "map", "precision@3"]


def trec(name: str, ranked: list[int], relevant: list[int]) -> float:
    """trec_eval's definitions, one rank after the other."""
    kind, _, number = name.partition("@")
    depth = int(number) if number else len(ranked)
    first, gained, ideal, found, precisions = 0.0, 0.0, 0.0, 0, 0.0
    for rank in range(1, min(depth, len(ranked)) + 1):
        grade = ranked[rank - 1]
        gained += grade / math.log2(rank + 1)
        if grade:
            found += 1
            precisions += found / rank
            first = first or 1 / rank
    for rank, grade in enumerate(sorted(relevant, reverse=True), 1):
        ideal += grade / math.log2(rank + 1) if rank <= (int(number) if number else rank) else 0
    return {
        "mrr": first,
        "ndcg": gained / ideal if ideal else 0,
        "recall": found / max(1, len(relevant)),
        "map": precisions / max(1, len(relevant)),
        "precision": found / depth,
    }[kind]


def test_metrics_are_those_of_the_definitions() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        grades = rng.choice([0, 0, 0, 1, 2, 3], rng.integers(1, 12)).tolist()
        missed = rng.choice([1, 2], rng.integers(0, 3)).tolist()
        relevant = [grade for grade in grades if grade] + missed
        for name in METRICS:
            wanted = trec(name, grades, relevant)
            assert measure(name, grades, relevant) == pytest.approx(wanted, abs=1e-12), name


def test_metrics_agree_with_scikit_learn() -> None:
    """Where these are defined: every document is ranked, and no scores are equal."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        gold = rng.integers(0, 4, 15)
        gold[0] = 1
        scores = rng.permutation(15).astype(float)
        ranked = gold[np.argsort(-scores)].tolist()
        relevant = [grade for grade in ranked if grade]
        for k in (1, 5, 15):
            wanted = ndcg_score([gold], [scores], k=k)
            assert measure(f"ndcg@{k}", ranked, relevant) == pytest.approx(wanted, abs=1e-12)
        wanted = average_precision_score(gold > 0, scores)
        assert measure("map", ranked, relevant) == pytest.approx(wanted, abs=1e-12)


def test_nothing_found_and_nothing_to_find() -> None:
    assert {measure(name, [0, 0], [1]) for name in METRICS} == {0.0}
    assert {measure(name, [], []) for name in METRICS} == {0.0}
    assert score_rankings([], ["map"]) == {"map": 0.0}


def test_scores_are_means_over_questions() -> None:
    predictions = [
        {"gold": ["a"], "grades": [1], "guess": ["b", "a"]},
        {"gold": ["b", "c"], "grades": [2, 1], "guess": ["b", "a"]},
    ]
    found = score_rankings(predictions, ["mrr@2", "recall@2", "map"])
    assert found == {"mrr@2": 0.75, "recall@2": 0.75, "map": 0.5}


@pytest.mark.parametrize("name", ["mrr@0", "hits@3", "ndcg@x", "precision", "mrr@200"])
def test_metrics_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match=r"task\.metrics"):
        check_ranking_metrics([name], 100)


def test_ties_are_ordered_as_trec_eval_orders_them() -> None:
    """By falling score, then by falling name, byte by byte."""
    names = ["d9", "d10", "d1", "é", "z"]
    scores = np.array([1.0, 1.0, 2.0, 1.0, 1.0])
    wanted = sorted(range(5), key=lambda n: (scores[n], names[n].encode()), reverse=True)
    for top in range(1, 6):
        assert take_best(scores, order_ties(names), top).tolist() == wanted[:top]
    assert [names[n] for n in wanted] == ["d1", "é", "z", "d9", "d10"]


def test_exact_search_is_a_full_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plmctl.tasks.search.CHUNK", 40)
    rng = np.random.default_rng(2)
    queries, documents = rng.integers(-2, 3, (7, 3)), rng.integers(-2, 3, (30, 3))
    names = [str(n) for n in range(30)]
    found = list(search_vectors(queries, documents, names, top=10))
    for query, own in zip(queries, found, strict=True):
        scores = [int(sum(query * document)) for document in documents]
        wanted = sorted(range(30), key=lambda n: (scores[n], names[n]), reverse=True)[:10]
        assert own.numbers.tolist() == wanted
        assert own.scores.tolist() == [scores[n] for n in wanted]


def test_faiss() -> None:
    rng = np.random.default_rng(3)
    queries, documents = (rng.normal(size=(n, 4)).astype(np.float32) for n in (3, 20))
    names = [str(n) for n in range(20)]
    search = [list(search_vectors(queries, documents, names, top=5))]
    if importlib.util.find_spec("faiss") is None:
        with pytest.raises(
            UsageError, match=r"task.index=faiss needs.*\n  fix: pip.*  # or task.index=exact"
        ):
            list(search_vectors(queries, documents, names, top=5, index="faiss"))
        return
    search.append(list(search_vectors(queries, documents, names, top=5, index="faiss")))
    for exact, other in zip(*search, strict=True):
        assert exact.numbers.tolist() == other.numbers.tolist()


def make_task(kind: str, path: Path | str = "x", *words: str) -> Any:
    asked = [f"task={kind}", f"task.path={path}", "checkpoint=null", *words]
    return build(compose("finetune", None, asked).task, {"pooling": "first"}, path="task")


def write_rows(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_tables(tmp_path: Path) -> None:
    rows = [
        {"query": "q1", "positive": "p1", "negatives": ["n1", "n2", "p1"]},
        {"query": "q2", "positive": ["p2", "p1"], "negatives": "n1"},
        {"query": "q3", "positive": "n1", "negatives": []},
    ]
    task = make_task("bi_encoder", write_rows(tmp_path / "a.jsonl", rows), "task.dev_share=0")
    first, second, third = task.read("train")
    assert first.fields["positives"] == {"0": "p1"}
    assert first.fields["negatives"] == {"1": "n1", "2": "n2"}  # no positive is a negative
    assert second.fields["positives"] == {"3": "p2", "0": "p1"}
    assert second.fields["grades"] == {"3": 1, "0": 1}
    assert task.documents_of(first) == {"0": "p1", "1": "n1"}  # task.negatives=1
    assert third.fields["negatives"] == {}
    assert task.read_corpus("train") == {"0": "p1", "1": "n1", "2": "n2", "3": "p2"}
    (tmp_path / "b.tsv").write_text("query\tpositive\ta\tb\nq\tp\tn1\tn2\nq2\tp2\tn1\t\n")
    columns = "task.columns.negatives=[a,b]"
    task = make_task("bi_encoder", tmp_path / "b.tsv", columns, "task.dev_share=0")
    assert [e.fields["negatives"] for e in task.read("train")] == [
        {"1": "n1", "2": "n2"},
        {"1": "n1"},
    ]
    (tmp_path / "c.csv").write_text("query,positive\nq,p\n")
    columns = "task.columns.negatives=null"
    task = make_task("bi_encoder", tmp_path / "c.csv", columns, "task.dev_share=0")
    assert [e.fields["negatives"] for e in task.read("train")] == [{}]


def write_corpus(folder: Path, *, beir: bool) -> Path:
    folder.mkdir()
    texts = {"d1": "a cat", "d2": "a dog", "d3": "a bird"}
    grades = [("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d3", 1), ("q3", "d1", 0)]
    if beir:
        (folder / "qrels").mkdir()
        rows = [{"_id": n, "title": "" if n == "d1" else "T", "text": t} for n, t in texts.items()]
        write_rows(folder / "corpus.jsonl", rows)
        write_rows(folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"Q{n}"} for n in (1, 2, 3)])
        lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{grade}" for q, d, grade in grades)]
        (folder / "qrels" / "dev.tsv").write_text("\n".join(lines) + "\n")
    else:
        lines = [f"{name}\t{text}" for name, text in texts.items()]
        with gzip.open(folder / "collection.tsv.gz", "wt") as stream:
            stream.write("\n".join(lines) + "\n")
        (folder / "queries.dev.tsv").write_text("q1\tQ1\nq2\tQ2\nq3\tQ3\n")
        lines = [f"{q}\t0\t{d}\t{grade}" for q, d, grade in grades]
        (folder / "qrels.dev.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("beir", [True, False])
def test_folders_with_a_corpus(beir: bool, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "set", beir=beir)
    task = make_task("bi_encoder", folder)
    assert task.splits.has("dev")
    assert not task.splits.has("train")
    title = "T " if beir else ""
    first, second = task.read("dev")
    assert (first.id, first.fields["query"]) == ("q1", "Q1")
    assert first.fields["positives"] == {"d1": "a cat"}
    assert first.fields["grades"] == {"d1": 2}
    assert first.fields["negatives"] == {"d2": f"{title}a dog"}  # judged, and not relevant
    assert second.fields["positives"] == {"d3": f"{title}a bird"}
    assert task.splits.reader.skipped == {str(folder): 1}  # one question has no answer
    assert list(task.read_corpus("dev")) == ["d1", "d2", "d3"]


def test_a_question_is_not_its_own_answer(tmp_path: Path) -> None:
    """Texts of BEIR that have the id of the question; those of a collection number otherwise."""
    orders = {"q1": ["q1", "d1", "d2"], "q2": ["d3", "q2", "d1"]}
    for beir in (True, False):
        folder = write_corpus(tmp_path / f"set-{beir}", beir=beir)
        both = {"q1": "Q1", "q2": "Q2"}
        if beir:
            rows = [{"_id": name, "title": "", "text": text} for name, text in both.items()]
            with (folder / "corpus.jsonl").open("a") as stream:
                stream.write("".join(json.dumps(row) + "\n" for row in rows))
        else:
            with gzip.open(folder / "collection.tsv.gz", "at") as stream:
                stream.write("".join(f"{name}\t{text}\n" for name, text in both.items()))
        task = make_task("bi_encoder", folder)
        examples, names = task.read("dev"), list(task.read_corpus("dev"))
        tops = []

        def search(*, top: int) -> list[Ranked]:
            tops.append(top)  # noqa: B023
            found = [[names.index(n) for n in orders[e.id]][:top] for e in examples]  # noqa: B023
            return [Ranked(np.array(own), -np.arange(len(own))) for own in found]

        ranked = [*rank_others(search, examples, names, top=2)]
        found = [[names[number] for number in own.numbers] for own in ranked]
        wanted = [[n for n in order if not (beir and n == q)][:2] for q, order in orders.items()]
        assert found == wanted
        assert tops == [3 if beir else 2]
        assert [len(own.scores) for own in ranked] == [2, 2]


def test_squad(tmp_path: Path) -> None:
    asked = [
        {"id": "a", "question": "Who?", "answers": [{"text": "cat", "answer_start": 2}]},
        {"id": "b", "question": "What?", "answers": []},
    ]
    paragraphs = [{"context": "A cat.", "qas": asked}, {"context": "A dog.", "qas": []}]
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    task = make_task("bi_encoder", tmp_path / "dev.json", "task.dev_share=0")
    (only,) = task.read("train")
    assert only.fields["query"] == "Who?"
    assert only.fields["positives"] == {"0": "A cat."}


@pytest.mark.parametrize(("negatives", "fix"), [(1, "plmctl data mine"), (0, "task.negatives=1")])
def test_a_cross_encoder_needs_texts_that_are_wrong(
    tmp_path: Path, negatives: int, fix: str
) -> None:
    """From right ones alone it learns to say yes, and each question ranks its one text first."""
    wrong = ["a dog"] if negatives == 0 else []
    rows = [{"query": f"q{n}", "positive": f"a cat {n}", "negatives": wrong} for n in range(9)]
    file = write_rows(tmp_path / "pairs.jsonl", rows)
    task = make_task("cross_encoder", file, "task.dev_share=0", f"task.negatives={negatives}")
    with pytest.raises(DataError, match="no question has a wrong text") as error:
        inference.check_splits(task)
    assert fix in str(error.value)


def test_inference_data(tmp_path: Path) -> None:
    rows = [
        ("a man runs", "a person moves", "entailment"),
        ("a man runs", "nobody runs", "contradiction"),
        ("a man runs", "he is late", "neutral"),
        ("a dog", "an animal", "ENTAILMENT"),
        ("a cat", "an animal", "entailment"),
        ("a cat", "a dog", "Contradiction"),
    ]
    lines = ["text\ttext2\tlabel", *("\t".join(row) for row in rows)]
    (tmp_path / "nli.tsv").write_text("\n".join(lines) + "\n")
    task = make_task("simcse_nli", tmp_path / "nli.tsv", "task.dev_share=0")
    first, second = task.read("train")
    assert first.fields["query"] == "a man runs"
    assert list(first.fields["positives"].values()) == ["a person moves"]
    assert list(first.fields["negatives"].values()) == ["nobody runs"]
    assert second.fields["query"] == "a cat"
    assert list(task.splits.reader.skipped.values()) == [1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"query": "q", "negatives": []}\n', r"a\.jsonl:1: no field positive"),
        ("a.jsonl", '{"query": "q", "positive": "p"}\n', r"a\.jsonl:1: no field negatives"),
        (
            "a.jsonl",
            '{"query": "q", "positive": 3, "negatives": [1]}\n',
            r"a\.jsonl:1: field negatives is a list, not a text",
        ),
        (
            "a.jsonl",
            '{"query": "", "positive": "p", "negatives": []}\n',
            r"a\.jsonl:1: no question",
        ),
        (
            "a.jsonl",
            '{"query": "q", "positive": [], "negatives": []}\n',
            r"a\.jsonl:1: no text that answers the question",
        ),
        (
            "a.tsv",
            "query\tpositive\nq\tp\n",
            r"a\.tsv: expected column negatives; found query, pos",
        ),
        ("a.tsv", "query\tpositive\tnegatives\nq\tp\n", r"a\.tsv:2: 2 columns where 3 are needed"),
        ("a.json", "{}", r"a\.json"),
        ("a.jsonl", "[1]\n", r"a\.jsonl:1: a JSON object is needed"),
        ("a.jsonl", "\n", r"a\.jsonl: the file is empty"),
    ],
)
def test_damaged_tables(name: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    task = make_task("bi_encoder", tmp_path / name, "task.dev_share=0")
    with pytest.raises(DataError, match=message):
        task.read("train")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("qrels/dev.tsv", "q1\td1\n", r"dev\.tsv:1: question <tab> document"),
        ("qrels/dev.tsv", "q1\td1\tgood\n", r"dev\.tsv:1: .*found 'q1\\td1\\tgood'"),
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore\n", r"dev\.tsv: no grades"),
        ("qrels/dev.tsv", "q9\td1\t1\n", r"dev\.tsv: question 'q9' is not in queries\.jsonl"),
        ("qrels/dev.tsv", "q1\td9\t1\n", r"dev\.tsv: document 'd9' is not in corpus\.jsonl"),
        ("qrels/dev.tsv", "q7\td1\t1\nq8\td1\t1\n", r"2 questions are not in .*: q7, q8\n  fix"),
        ("qrels/dev.tsv", "q1\td1\t0\n", r"dev\.tsv: no question has a relevant document"),
        ("corpus.jsonl", '{"_id": "d1"}\n', r"corpus\.jsonl:1: .*text"),
        ("corpus.jsonl", '{"id": "d1", "text": "x"}\n', r"corpus\.jsonl:1: .*_id"),
        ("queries.jsonl", '["q1"]\n', r"queries\.jsonl:1: a JSON object"),
    ],
)
def test_damaged_folders(file: str, content: str, message: str, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "set", beir=True)
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=message):
        make_task("bi_encoder", folder).read("dev")


def test_a_broken_collection(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "set", beir=False)
    (folder / "queries.dev.tsv").write_text("q1 Q1\n")
    with pytest.raises(DataError, match=r"queries\.dev\.tsv:1: an id and a text with a tab"):
        make_task("bi_encoder", folder).read("dev")
    with pytest.raises(DataError, match=r"no qrels/test\.tsv or qrels\.test\.tsv"):
        make_task("bi_encoder", folder).read("test")
    assert find_corpus(tmp_path) is None
    assert read_qrels(folder / "qrels.dev.tsv")["q1"] == {"d1": 2, "d2": 0}


ROWS = [
    {"query": "a cat sat", "positive": "the cat", "negatives": ["the dog", "a mat"]},
    {"query": "a dog ran", "positive": ["the dog", "one dog"], "negatives": ["the cat", "it sat"]},
    {"query": "the mat", "positive": "a mat", "negatives": ["dogs"]},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = ["the cat sat on a mat, and one dog ran to it; the dogs"] * 3
    return Tokenizer.train(texts, kind="wordpiece", vocab_size=40)


def read_batch(task: Any, tokenizer: Tokenizer) -> tuple[Batch, list[Any]]:
    examples = task.read("train")
    rows = task.encode(examples, tokenizer)
    return batches.collate(rows, np.arange(len(rows.key))), examples


def vectors_of(examples: list[Any], task: Any, seed: int) -> tuple[torch.Tensor, list[Any]]:
    """Random vectors of all texts, equal texts alike, and [(query, positives, negatives)] of
    (text, vector).
    """
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, torch.Tensor] = {}

    def vector(text: str) -> torch.Tensor:
        return made.setdefault(text, torch.randn(W, generator=generator))

    flat, parts = [], []
    for example in examples:
        shown = task.documents_of(example)
        good = [t for n, t in shown.items() if n in example.fields["positives"]]
        bad = [t for n, t in shown.items() if n not in example.fields["positives"]]
        query = example.fields["query"]
        flat += [vector(text) for text in (query, *shown.values())]
        parts.append((vector(query), [(t, vector(t)) for t in good], [(t, vector(t)) for t in bad]))
    return torch.stack(flat), parts


@pytest.mark.parametrize(("likeness", "temperature"), [("dot", 1.0), ("cosine", 0.05)])
def test_in_batch_negatives(
    likeness: str, temperature: float, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    words = [f"task.likeness={likeness}", f"task.temperature={temperature}", "task.negatives=2"]
    file = write_rows(tmp_path / "a.jsonl", ROWS)
    task = make_task("bi_encoder", file, "task.dev_share=0", *words)
    batch, examples = read_batch(task, tokenizer)
    vectors, parts = vectors_of(examples, task, 0)

    def like(a: torch.Tensor, b: torch.Tensor) -> float:
        scale = float(a.norm() * b.norm()) if likeness == "cosine" else 1.0
        return float(a @ b) / scale / temperature

    everything = [text for _, good, bad in parts for text in (*good, *bad)]
    total, right = 0.0, 0
    for query, good, _ in parts:
        answers = {text for text, _ in good}
        wrong = [like(query, v) for text, v in everything if text not in answers]
        own = [like(query, v) for _, v in good]
        total += sum(
            -math.log(math.exp(s) / (math.exp(s) + sum(map(math.exp, wrong)))) for s in own
        ) / len(own)
        right += max(own) > max(wrong)
    out = task.loss({"sentence": vectors}, batch)
    assert float(out.terms["sentence"].total) == pytest.approx(total, rel=1e-4)
    assert (int(out.logs["acc/sentence"][0]), out.logs["acc/sentence"][1]) == (right, 3)
    assert task.counts(batch) == {"sentence": 3}


def test_one_question_alone_has_a_gradient_of_zero(tmp_path: Path, tokenizer: Tokenizer) -> None:
    row = {"query": "a cat", "positive": "the cat", "negatives": []}
    task = make_task("bi_encoder", write_rows(tmp_path / "a.jsonl", [row]), "task.dev_share=0")
    batch, examples = read_batch(task, tokenizer)
    vectors = vectors_of(examples, task, 0)[0].requires_grad_()
    total = task.loss({"sentence": vectors}, batch).terms["sentence"].total
    total.backward()
    assert float(total.detach()) == 0
    assert not vectors.grad.any()


def test_triplets(tmp_path: Path, tokenizer: Tokenizer) -> None:
    words = ["task.negatives=2", "task.margin=1.5", "task.dev_share=0"]
    task = make_task("sentence_triplets", write_rows(tmp_path / "a.jsonl", ROWS), *words)
    batch, examples = read_batch(task, tokenizer)
    vectors, parts = vectors_of(examples, task, 1)
    total, right = 0.0, 0
    for query, good, bad in parts:
        pairs = [
            max(0.0, float((query - p).norm() - (query - n).norm()) + 1.5)
            for _, p in good
            for _, n in bad
        ]
        total += sum(pairs) / len(pairs)
        right += min((query - p).norm() for _, p in good) < min((query - n).norm() for _, n in bad)
    out = task.loss({"sentence": vectors}, batch)
    assert float(out.terms["sentence"].total) == pytest.approx(total, rel=1e-5)
    assert int(out.logs["acc/sentence"][0]) == right
    queries, documents = (f(vectors.numpy()) for f in (task.as_queries, task.as_documents))
    far = torch.cdist(vectors, vectors).square().numpy()
    wanted = np.square(vectors.numpy()).sum(1)[:, None] - far
    np.testing.assert_allclose(queries @ documents.T, wanted, atol=1e-4)


def test_a_triplet_without_a_negative(tmp_path: Path, tokenizer: Tokenizer) -> None:
    row = {"query": "a cat", "positive": "the cat", "negatives": []}
    file = write_rows(tmp_path / "a.jsonl", [row])
    task = make_task("sentence_triplets", file, "task.dev_share=0")
    with pytest.raises(DataError, match=r"a\.jsonl:1: a triplet needs a negative"):
        read_batch(task, tokenizer)


def test_pairs_of_a_cross_encoder(tmp_path: Path, tokenizer: Tokenizer) -> None:
    file = write_rows(tmp_path / "a.jsonl", ROWS)
    task = make_task("cross_encoder", file, "task.dev_share=0", "task.negatives=1")
    examples = task.read("train")
    rows = task.encode(examples, tokenizer)
    gold = [1, 0, 1, 1, 0, 1, 0]  # of each question its positives, then one negative
    assert rows.labels["score"].tolist() == gold
    assert rows.values["example"].tolist() == [0, 0, 1, 1, 1, 2, 2]
    second = tokenizer.encode("the cat")
    first = [
        tokenizer.vocab.id("cls"),
        *tokenizer.encode("a cat sat"),
        tokenizer.vocab.id("sep"),
        *second,
    ]
    assert rows.seqs["text"].ids[0, : len(first)].tolist() == first
    batch = batches.collate(rows, np.arange(7))
    scores = torch.tensor([0.5, -1.0, 2.0, -0.5, 0.25, 3.0, -2.0])
    total = sum(
        -math.log(1 / (1 + math.exp(-s)) if y else 1 - 1 / (1 + math.exp(-s)))
        for s, y in zip(scores.tolist(), gold, strict=True)
    )
    out = task.loss({"score": scores}, batch)
    assert float(out.terms["score"].total) == pytest.approx(total, rel=1e-6)
    assert int(out.logs["acc/score"][0]) == 5
    predictions = task.predict({"score": scores.numpy()}, rows, examples)
    assert [p["guess"] for p in predictions] == [["0", "1"], ["1", "0", "3"], ["2", "5"]]
    assert [p["gold"] for p in predictions] == [["0"], ["1", "3"], ["2"]]


def test_a_split_ranks_its_own_texts(tmp_path: Path, tokenizer: Tokenizer) -> None:
    task = make_task("bi_encoder", write_rows(tmp_path / "a.jsonl", ROWS), "task.dev_share=0")
    examples = task.read("train")
    rows = task.encode(examples, tokenizer)
    vectors, parts = vectors_of(examples, task, 2)
    texts = {text: v for _, good, bad in parts for text, v in (*good, *bad)}
    names = {text: n for e in examples for n, text in task.documents_of(e).items()}
    predictions = task.predict({"sentence": vectors.numpy()}, rows, examples)
    for (query, good, _), prediction in zip(parts, predictions, strict=True):
        order = sorted(texts, key=lambda text: -float(query @ texts[text]))
        assert prediction["guess"] == [names[text] for text in order]
        assert prediction["gold"] == [names[text] for text, _ in good]
    assert set(task.score(predictions)) == {"mrr@10", "ndcg@10", "recall@100", "map"}


def test_vectors_pass_the_head(tmp_path: Path, tokenizer: Tokenizer) -> None:
    task = make_task("bi_encoder", write_rows(tmp_path / "a.jsonl", ROWS), "task.dev_share=0")
    batch, _ = read_batch(task, tokenizer)
    model = Model(backbone=encoder(0.0).backbone, heads={})
    model.heads["sentence"] = Vector(width=W, columns=3).double()
    model.eval()
    found = task.logits(model, batch)["sentence"]
    wanted = model.heads["sentence"](model(batch).last[:, 0])
    torch.testing.assert_close(found, wanted)
    assert encode.firsts(task.encode(task.read("train"), tokenizer)).tolist() == [0, 3, 7]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.temperature=0"], r"task\.temperature"),
        (["task.pooling=pooler"], r"task\.pooling"),
        (["task.beside=[bm52]"], r"task\.beside"),
        (["task.metrics=[mrr@500]"], r"task\.depth=500"),
    ],
)
def test_settings_that_cannot_be(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_task("bi_encoder", "x", *words)
