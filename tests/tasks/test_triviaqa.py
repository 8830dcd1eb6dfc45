"""TriviaQA: where answers stand, the loss over all of these places, files, windows, scores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows, Seq
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.readers.trivia import TriviaFiles
from plmctl.tasks.record import Example
from plmctl.tasks.scores import trivia as matching
from plmctl.tasks.triviaqa import TriviaQA

B, T, M = 3, 7, 4
LAYOUT = {"train": ["wikipedia-train.json", "train*.json*"], "dev": ["dev*.json*"]}
FAR = "The river is long. " * 12
DOCUMENT = f"{FAR}Paris (the capital) is old. {FAR}They call it PARIS; paris it is."


def make(**settings: Any) -> TriviaQA:
    defaults = {"max_length": 40, "stride": 10, "max_query": 6, "n_best": 20, "max_answer": 9}
    defaults |= {"version": 1, "most_spans": M, "windows": None}
    reader = TriviaFiles(splits=LAYOUT, folder="qa")
    return TriviaQA(name="toy", reader=reader, metrics=["f1"], **{**defaults, **settings})


def example(text: str, *answers: str, name: str = "0") -> Example:
    fields = {"question": "Which capital?", "context": text, "answers": list(answers)}
    return Example(name, fields, tuple(matching.find_all(answers, text)) or None)


def batch(gold: Tensor) -> Batch:
    ids = torch.zeros(len(gold), T, dtype=torch.long)
    labelled = int((gold != IGNORE).flatten(1).any(1).sum())
    seq = Seq(ids, torch.full((len(gold),), T), full=True)
    keys = torch.arange(len(gold))
    return Batch(keys, {"text": seq}, labels={"span": gold}, counts={"span": labelled})


def draw() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(B, T, generator=generator, dtype=torch.float64, requires_grad=True)
        for name in ("start", "end")
    }


def pad(*rows: list[tuple[int, int]]) -> Tensor:
    gold = torch.full((len(rows), M, 2), IGNORE)
    for number, row in enumerate(rows):
        gold[number, : len(row)] = torch.tensor(row).view(-1, 2)
    return gold


def test_the_loss_is_the_formula_in_loops() -> None:
    """-log of the sum of the probabilities of all starts, and of all ends."""
    places = [[(0, 1), (0, 3), (5, 6)], [(2, 2)], []]
    logits, wanted = draw(), 0.0
    for row, spans in enumerate(places):
        for side, name in enumerate(("start", "end")):
            scores = [math.exp(x) for x in logits[name][row].tolist()]
            chosen = {span[side] for span in spans}
            if chosen:
                wanted -= math.log(sum(scores[t] for t in chosen) / sum(scores)) / 2
    output = make().loss(logits, batch(pad(*places)))
    assert output.terms["span"].total.item() == pytest.approx(wanted, rel=1e-12)
    assert output.logs["acc/span"][1] == 2
    output.terms["span"].total.backward()
    for logit in logits.values():
        assert logit.grad is not None
        assert torch.isfinite(logit.grad).all()
        assert not logit.grad[2].any()  # nothing is known of the last row


def test_one_place_is_the_ordinary_loss() -> None:
    places, logits = [[(1, 4)], [(2, 2)], [(0, 6)]], draw()
    output = make().loss(logits, batch(pad(*places)))
    gold = torch.tensor(places)[:, 0]
    ordinary = sum(
        F.cross_entropy(logits[name], gold[:, side], reduction="sum")
        for side, name in enumerate(("start", "end"))
    )
    torch.testing.assert_close(output.terms["span"].total, ordinary / 2)


def test_the_gradient_leaves_places_that_are_enough_alone() -> None:
    """One certain place is enough: the others are not pulled up, as in the sum of their losses."""
    logits = {name: torch.zeros(1, T, requires_grad=True) for name in ("start", "end")}
    with torch.no_grad():
        for logit in logits.values():
            logit[0, 2] = 30.0
    total = make().loss(logits, batch(pad([(2, 2), (5, 5)]))).terms["span"].total
    total.backward()
    assert total.item() == pytest.approx(0, abs=1e-6)
    assert all(
        logit.grad is not None and logit.grad.abs().max() < 1e-6 for logit in logits.values()
    )


@pytest.mark.parametrize(
    ("answers", "text", "found"),
    [
        (["The Beatles"], "by (Beatles), beatles' and Beatlesque", ["Beatles", "beatles"]),
        (
            ["U.S. Army", "army of the U.S."],
            "u s  ARMY; the Army of U.S.",
            ["u s  ARMY", "Army of U.S"],
        ),
        (["New York"], "new-york, newyork", ["new-york"]),
        (["1066"], "In 1066 (or 10666) 1,066", ["1066"]),
        (["a", "the", "?!"], "a ? the", []),
        (["İzmir"], "x İZMİR? İzmir", ["İzmir"]),
        (["aa", "aa bb"], "aa bb", ["aa", "aa bb"]),
    ],
)
def test_every_place_of_every_name_is_found(
    answers: list[str], text: str, found: list[str]
) -> None:
    spans = matching.find_all(answers, text)
    assert [text[start:end] for start, end in spans] == found
    assert all(
        matching.normalise(text[start:end]) in map(matching.normalise, answers)
        for start, end in spans
    )


def texts_of(rows: Rows, toy: Any, words: list[str]) -> list[list[str]]:
    """The words of each window that its label marks."""
    names = {tuple(toy.encode(word)): word for word in words}
    ids, found = rows.seqs["text"].ids, list[list[str]]()
    for row, spans in enumerate(rows.labels["span"].tolist()):
        marked = [ids[row, a : b + 1].tolist() for a, b in spans if a != IGNORE]
        found.append([names[tuple(part)] for part in marked])
    return found


def test_evidence_that_is_far_behind(toy: Any) -> None:
    """Windows over a document of 130 tokens: those with an answer are labelled, and no others."""
    task = make()
    given = example(DOCUMENT, "Paris", "City of Light")
    rows = task.encode([given], toy)
    marked = texts_of(rows, toy, ["Paris", "PARIS", "paris"])
    assert len(rows.key) > 5
    assert marked[0] == []
    assert rows.labels["span"].shape[1:] == (M, 2)
    assert {word for window in marked for word in window} == {"Paris", "PARIS", "paris"}
    assert marked[-1][-2:] == ["PARIS", "paris"]
    text = rows.seqs["text"]
    logits = {name: np.zeros(text.ids.shape, np.float32) for name in ("start", "end")}
    last = rows.labels["span"][-1]
    best = last[last[:, 0] != IGNORE][-1]
    logits["start"][-1, best[0]] = logits["end"][-1, best[1]] = 9.0
    (found,) = task.predict(logits, rows, [given])
    assert found["guess"] == "paris"
    assert task.score([found]) == {"f1": 100.0, "exact": 100.0}


def test_only_the_first_windows_and_places_are_read(toy: Any) -> None:
    task = make(windows=1, max_length=4000, most_spans=2)
    rows = task.encode([example(DOCUMENT, "Paris"), example(FAR, "Paris")], toy)
    assert texts_of(rows, toy, ["Paris", "PARIS"]) == [["Paris", "PARIS"], []]
    assert len(make(windows=2).encode([example(DOCUMENT, "Paris")], toy).key) == 2


def write_trivia(folder: Path) -> None:
    (folder / "qa").mkdir()
    (folder / "evidence/wikipedia").mkdir(parents=True)
    (folder / "evidence/wikipedia/France.txt").write_text(DOCUMENT)
    (folder / "evidence/wikipedia/Seine.txt").write_text(FAR)
    pages = [{"Filename": "Seine.txt"}, {"Filename": "France.txt"}, {"Title": "lost"}]
    answer = {"Value": "Paris", "Aliases": ["Paris", "City of Light"]}
    questions = [
        {"Question": "Which?", "QuestionId": "a", "Answer": answer, "EntityPages": pages},
        {
            "Question": "Where?",
            "QuestionId": "b",
            "Answer": {"Value": "Rome"},
            "EntityPages": pages,
        },
    ]
    (folder / "qa/wikipedia-train.json").write_text(json.dumps({"Data": questions}))


def test_the_distributed_files(tmp_path: Path) -> None:
    write_trivia(tmp_path)
    reader = TriviaFiles(splits=LAYOUT, folder="qa")
    (found,) = reader.read(tmp_path, "train", {})
    assert found.fields["context"] == f"{FAR}\n\n{DOCUMENT}"
    assert found.fields["answers"] == ["Paris", "City of Light"]
    assert len(found.label) == 3
    assert list(reader.skipped.values()) == [1]
    (tmp_path / "evidence/wikipedia/Seine.txt").unlink()
    with pytest.raises(DataError, match=r"no document .*Seine.txt"):
        reader.read(tmp_path, "train", {})


def test_lines_of_ones_own(tmp_path: Path) -> None:
    lines = [
        {"question": "Which?", "document": [FAR, DOCUMENT], "answers": ["paris"]},
        {"id": "x", "question": "And?", "document": DOCUMENT},
    ]
    file = tmp_path / "dev.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    first, second = TriviaFiles(splits=LAYOUT).read(tmp_path, "dev", {})
    assert (first.id, len(first.label), second.id, second.label) == ("0", 3, "x", None)
    file.write_text('{"question": "Which?"}')
    with pytest.raises(DataError, match="not in TriviaQA's layout"):
        TriviaFiles(splits=LAYOUT).read(tmp_path, "dev", {})


def lines_of(folder: Path, *scores: float) -> list[Example]:
    texts = ["Oslo is old.", "A river.", f"Paris is old. {FAR}"]
    line = {"question": "Which capital?", "document": texts, "answers": ["Oslo"]}
    (folder / "dev.jsonl").write_text(json.dumps(line | ({"scores": scores} if scores else {})))
    return TriviaFiles(splits=LAYOUT).read(folder, "dev", {})


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_scores_of_passages_are_added_to_those_of_answers(
    toy: Any, tmp_path: Path, weight: float
) -> None:
    scores, (asked,) = (3.0, -1.0, 2.0), lines_of(tmp_path, 3.0, -1.0, 2.0)
    plain, mixed = make(n_best=4000), make(n_best=4000, passage_weight=weight)
    rows = plain.encode([asked], toy)
    mixed.encode([asked], toy)
    generator = np.random.default_rng(0)
    logits = {name: generator.normal(size=rows.seqs["text"].ids.shape) for name in ("start", "end")}
    alone, both = (task.predict(logits, rows, [asked])[0]["n_best"] for task in (plain, mixed))
    context, expected = asked.fields["context"], {}
    for each in alone:
        begins = [at for at in range(len(context)) if context.startswith(each["text"], at)]
        if len(begins) == 1:  # it stands in one place, and so in one passage
            passage = (begins[0] >= context.index("A river")) + (
                begins[0] >= context.index("Paris")
            )
            expected[each["text"]] = each["score"] + weight * scores[passage]
    found = {each["text"]: each["score"] for each in both}
    assert len(expected) > 20
    assert {text: found[text] for text in expected} == pytest.approx(expected)
    order = [each["score"] for each in both]
    assert order == sorted(order, reverse=True)


def test_passages_without_scores_are_refused(toy: Any, tmp_path: Path) -> None:
    bare = lines_of(tmp_path)
    assert make().texts(bare[0]) == make().texts(lines_of(tmp_path, 1, 2, 3)[0])
    with pytest.raises(DataError, match=r"no scores\n  fix: task.passage_weight=0"):
        make(passage_weight=1.0).encode(bare, toy)
    with pytest.raises(DataError, match="2 scores of 3 documents"):
        lines_of(tmp_path, 1, 2)


def test_what_only_squad_has_is_refused() -> None:
    for setting in ({"version": 2}, {"overlap": "run"}):
        with pytest.raises(ConfigError, match="every question has an answer"):
            make(**setting)


def test_scores_compare_with_the_best_name() -> None:
    predictions = [
        {"golds": ["The Beatles", "Fab Four"], "guess": "beatles!"},
        {"golds": ["Ringo Starr"], "guess": "Sir Ringo"},
        {"golds": [], "guess": "nobody asks"},
    ]
    assert make().score(predictions) == {"f1": 75.0, "exact": 50.0}
