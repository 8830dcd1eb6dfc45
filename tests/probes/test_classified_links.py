"""task=kg_bert: ranks against a loop over all entities with the classifier's own logits, drawn
candidates, baselines, and a command that is stopped.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.artifacts.loading import load
from plmctl.config.build import build
from plmctl.knowledge.triple_texts import TripleTexts
from plmctl.knowledge.triples import read_graph
from plmctl.probes import classified_links
from plmctl.probes.classified_links import ClassifiedLinks, LinkQuestion
from plmctl.tasks import batches
from plmctl.tasks.record import Example
from tests.command import plmctl

# c and h have the same description, and tie wherever they stand
NAMES = {"a": "ant", "b": "bee", "c": "cat", "d": "dog", "e": "elk", "f": "fox", "h": "cat"}
TRAIN = "a eats b,b eats c,c eats d,d eats e,a sees b,b sees c,e sees f,f sees a,a eats h,c sees d"
VALID = "a eats c,b sees d,f eats c"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    for name, triples in (("train", TRAIN), ("valid", VALID)):
        lines = triples.replace(" ", "\t").replace(",", "\n")
        (folder / f"{name}.tsv").write_text(lines + "\n", encoding="utf-8")
    texts = "".join(f"{name}\t{text}\n" for name, text in NAMES.items())
    (folder / "entity2text.txt").write_text(texts, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    plmctl("data", "triples", f"data.path={graph}", "kind=kg_bert", f"out={folder / 'texts'}")
    plmctl(
        *("finetune", "task=pair_classification", f"task.path={folder / 'texts'}"),
        "model.stack.residual._target_=plmctl.nn.residual.PreNorm",  # learns in so few updates
        *("checkpoint=null", "size=tiny", "size.width=32", "size.inner_width=64"),
        *("tokenizer.vocab_size=24", "task.max_length=16", "train.epochs=8", "train.threads=1"),
        *("optim.lr=1e-2", "train.batch_size=8", "train.precision=fp32", f"run.dir={folder / 'x'}"),
    )
    return folder / "x"


def evaluate(run: Path, graph: Path, *words: str) -> dict[str, Any]:
    given = ["task=kg_bert", f"task.graph={graph}", *words, "--json"]
    return json.loads(plmctl("eval", f"checkpoint={run}", *given))  # type: ignore[no-any-return]


@pytest.mark.slow  # test_described_links.py compares with that loop
def test_the_ranks_are_those_of_a_loop(run: Path, graph: Path) -> None:
    loaded, known = load(run), read_graph(graph)
    task = build(loaded.own_task(), {"vocab": loaded.vocab, "pooling": "first"}, path="task")
    texts = TripleTexts(known)

    def odds(head: int, relation: int, tail: int) -> float:
        example = Example("0", texts.pair(head, relation, tail))
        rows = task.encode([example], loaded.tokenizer)
        with torch.no_grad():
            logits = task.logits(loaded.model, batches.collate(rows, np.arange(1)))["class"]
        return float(logits[0].log_softmax(-1)[task.names.index("true")])

    facts, ranks = set(map(tuple, known.triples.tolist())), []
    for h, r, t in known.splits["valid"].tolist():
        for side in (0, 2):
            others = [(n, r, t) if side == 0 else (h, r, n) for n in range(len(known.entities))]
            own, right = odds(h, r, t), texts.pair(h, r, t)
            wrong = [each for each in others if each not in facts]
            same = [each for each in wrong if texts.pair(*each) == right]
            higher = sum(odds(*each) > own for each in wrong if each not in same)
            ranks.append(1 + higher + len(same) / 2)
    said = evaluate(run, graph)
    scores = said["metrics"]["valid"]
    assert said["triples"] == 3
    assert scores["mr"] == pytest.approx(np.mean(ranks), rel=1e-4)
    assert scores["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-4)
    assert scores["hits@1"] == pytest.approx(np.mean(np.array(ranks) <= 1), rel=1e-4)
    assert scores["head/mrr"] == pytest.approx(np.mean(1 / np.array(ranks[::2])), rel=1e-4)
    assert any(rank % 1 for rank in ranks)  # there are ties


def test_candidates_are_drawn_and_never_right(graph: Path) -> None:
    few = ClassifiedLinks(graph=str(graph), candidates=2, seed=3)
    known = set(map(tuple, read_graph(graph).triples.tolist()))
    every = list(ClassifiedLinks(graph=str(graph)).ask(few.choose("train")))
    questions = list(few.ask(few.choose("train")))
    assert len(questions) == 20
    for question, whole in zip(questions, every, strict=True):
        right, *wrong = question.candidates.tolist()
        head, relation, tail = question.triple
        assert right == (head if question.side == "head" else tail)
        assert len(set(wrong)) == 2
        assert set(wrong) <= set(whole.candidates.tolist()[1:])
        made = [
            (n, relation, tail) if question.side == "head" else (head, relation, n) for n in wrong
        ]
        assert not known & set(made)
        assert len(few.write(question)) == 3
    again = few.ask(few.choose("train"))
    assert [q.candidates.tolist() for q in again] == [q.candidates.tolist() for q in questions]
    other = ClassifiedLinks(graph=str(graph), candidates=2, seed=4)
    drawn = {(*q.triple, q.side): q.candidates.tolist() for q in other.ask(other.choose("train"))}
    assert any(drawn[(*q.triple, q.side)] != q.candidates.tolist() for q in questions)


def test_fewer_triples_are_a_part_of_more(graph: Path) -> None:
    few = ClassifiedLinks(graph=str(graph), triples=4).choose("train")
    more = ClassifiedLinks(graph=str(graph), triples=7).choose("train")
    assert len(few) == 4
    assert more[:4].tolist() == few.tolist()


def test_chance_is_the_mean_over_all_ranks_and_frequency_counts_training_triples(
    graph: Path,
) -> None:
    task = ClassifiedLinks(graph=str(graph))
    questions = [
        LinkQuestion("tail", (0, 0, 2), np.array([2, 0, 1, 3])),
        LinkQuestion("head", (0, 0, 2), np.array([0, 4])),
    ]
    scores = task.score(questions, [np.array([1.0, 0, 2, 1]), np.array([0, np.nan])])
    ranks = [[1, 2, 3, 4], [1, 2]]
    assert scores["chance/mrr"] == pytest.approx(
        np.mean([np.mean(1 / np.array(each)) for each in ranks])
    )
    assert scores["chance/hits@1"] == pytest.approx((1 / 4 + 1 / 2) / 2)
    assert scores["chance/mr"] == pytest.approx((2.5 + 1.5) / 2)
    assert scores["tail/mr"] == 2.5  # one is higher, one ties
    assert scores["head/mr"] == 2  # what is no number is higher
    eats = [line.split() for line in TRAIN.split(",") if " eats " in line]
    names = read_graph(graph).entities
    tails = [sum(tail == names[n] for _, _, tail in eats) for n in (2, 0, 1, 3)]
    heads = [sum(head == names[n] for head, _, _ in eats) for n in (0, 4)]
    expected = [
        1 + sum(n > own for n in rest) + sum(n == own for n in rest) / 2
        for own, *rest in (tails, heads)
    ]
    assert scores["frequency/mr"] == pytest.approx(np.mean(expected))


def test_a_stopped_command_shows_what_it_has(
    run: Path, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classified_links, "ROWS", 1)
    whole, asked = classified_links.TripleClassifier.score, []

    def score(self: Any, pairs: Any) -> np.ndarray:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(pairs)
        return whole(self, pairs)

    monkeypatch.setattr(classified_links.TripleClassifier, "score", score)
    words = ["eval", f"checkpoint={run}", "task=kg_bert", f"task.graph={graph}"]
    said = plmctl(*words, code=130)
    assert "stopped: after 1 of 3 triples" in said
    assert "mrr" in said


def test_mistakes(run: Path, graph: Path) -> None:
    words = ["eval", f"checkpoint={run}", "task=kg_bert", f"task.graph={graph}"]
    assert "fix: split=valid" in plmctl(*words, "split=test", code=2)
    assert "fix: \"task.true_label='true'\"" in plmctl(*words, "task.true_label=yes", code=2)


def test_another_graph_than_that_of_the_training_is_remarked(
    run: Path, graph: Path, tmp_path: Path
) -> None:
    words = ["task.candidates=2", "task.triples=1"]
    said = evaluate(run, graph, *words)
    assert said["remarks"]["remark"].startswith("ranks of one triple say little")
    assert "another graph" not in said["remarks"]["remark"]
    other = tmp_path / "other"
    shutil.copytree(graph, other)
    (other / "valid.tsv").write_text("a\tsees\td\n")
    said = evaluate(run, other, *words)
    assert f"fine-tuned on triples of another graph than {other}" in said["remarks"]["remark"]
