"""ReCoRD: files, the softmax of which any right entity counts, the official scores."""

from __future__ import annotations

import copy
import random
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.models.base import Hidden
from plmctl.tasks import batches, inference
from plmctl.tasks.capabilities import submit
from plmctl.tasks.entity_cloze import EntityCloze
from tests.tasks.superglue_files import RECORD, assert_refused, make_task, read_one, write
from tests.tasks.test_official_answers import BY_HAND


def test_files(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", RECORD)
    first, second = make_task("record", tmp_path).read("train")
    assert first.fields["text"] == "Paris (CNN) Ana met Bo. Ana is from Paris Bo is not"
    assert first.fields["candidates"] == ["Paris", "CNN", "Ana", "Bo"]
    assert first.fields["choices"][2] == "Ana was there with Bo"
    assert (first.id, first.label, second.label) == ("5", ("Ana",), ("Paris",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("passage", "entities", 0, "end", 999), "an entity stands at 0..999 of 73 characters"),
        (("passage", "entities", 0, "start", -1), "must be 0 or more"),
        (("qas", 0, "query", "no gap"), "question 5: the query has no @placeholder"),
        (("qas", 1, "answers", [{"text": "Rome"}]), r"no entity of the passage .*Rome"),
        (("qas", 1, "answers", None), "the label is missing"),
        (("qas", 0, "idx", "x"), "'qas.0.idx' must be a whole number"),
        (("passage", "entities", [{"start": 0, "end": 4}]), "has not two entities"),
        (("qas", []), "no questions"),
    ],
)
def test_broken_rows(tmp_path: Path, change: tuple[Any, ...], message: str) -> None:
    row: Any = copy.deepcopy(RECORD)
    place, (*way, last, value) = row, change
    for key in way:
        place = place[key]
    place[last] = value
    if message == "no questions":
        with pytest.raises(Exception, match=message):
            read_one("record", tmp_path, row)
    else:
        assert_refused("record", tmp_path, row, message)


class Summed(torch.nn.Module):
    """A model whose state at every token is the sum of the row's ids."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleDict({"choice": torch.nn.Linear(1, 1, bias=False).double()})
        torch.nn.init.constant_(self.heads["choice"].weight, 0.003)

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        ids = batch.text.ids * batch.text.real
        return Hidden(ids.sum(1)[:, None, None].expand(*ids.shape, 1).double())


def prepare(tmp_path: Path, toy: Any) -> tuple[EntityCloze, Any, Any]:
    row: Any = copy.deepcopy(RECORD)
    row["qas"][0]["answers"] = [{"text": "Ana"}, {"text": "Bo"}]  # two names
    write(tmp_path / "train.jsonl", row)
    task = make_task("record", tmp_path, "task.max_length=96")
    assert isinstance(task, EntityCloze)
    examples = task.read("train")
    return task, examples, task.encode(examples, toy)


def test_any_right_entity_counts_in_the_loss(tmp_path: Path, toy: Any) -> None:
    task, examples, rows = prepare(tmp_path, toy)
    wanted = []
    for example in examples:
        text = toy.encode(example.fields["text"])
        z = [
            0.003 * sum([2, *text, 3, *toy.encode(choice), 3])
            for choice in example.fields["choices"]
        ]
        p = np.exp(np.array(z) - max(z))
        p /= p.sum()
        names = example.fields["candidates"]
        right = sum(float(p[k]) for k, name in enumerate(names) if name in example.label)
        wanted.append(-np.log(right))
    batch = batches.collate(rows, np.arange(len(rows.key)))
    out = task(Summed(), batch)
    assert out.terms["choice"].total.item() == pytest.approx(sum(wanted), rel=1e-4)
    assert task.counts(batch)["choice"] == 2
    out.terms["choice"].total.backward()
    last = batches.collate(rows, np.arange(4, 8))  # the second question alone
    assert task(Summed(), last).terms["choice"].total.item() == pytest.approx(wanted[1], rel=1e-4)


def test_predictions_name_entities(tmp_path: Path, toy: Any) -> None:
    task, examples, _ = prepare(tmp_path, toy)
    split = inference.encode_split(task, "dev", examples, toy)
    with torch.no_grad():
        found, _ = inference.predict_split(
            Summed(), task, split, batch_size=2, device=torch.device("cpu")
        )
    assert [p["golds"] for p in found] == [["Ana", "Bo"], ["Paris"]]
    for prediction in found:
        probabilities = prediction["probabilities"]
        assert prediction["guess"] == max(probabilities, key=probabilities.__getitem__)
    line = submit(task, [{"id": "5", "guess": "Ana"}], "ReCoRD.jsonl")
    assert line == '{"idx": 5, "label": "Ana"}\n'
    typed = inference.encode_split(task, "new", [task.parse("rain\tfalls\tsings", 1)], toy)
    with torch.no_grad():
        (one,), loss = inference.predict_split(
            Summed(), task, typed, batch_size=1, device=torch.device("cpu")
        )
    assert one["guess"] in ("falls", "sings")
    assert loss is None


def normalise(text: str) -> str:
    """As the official script: lower case, no punctuation, no articles, single spaces."""
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def official(golds: list[str], guess: str) -> tuple[float, float]:
    """(F1, EM) of one question, the best over its answers."""
    best = [0.0, 0.0]
    for gold in golds:
        said, right = normalise(guess).split(), normalise(gold).split()
        same = sum((Counter(said) & Counter(right)).values())
        if same:
            precision, recall = same / len(said), same / len(right)
            best[0] = max(best[0], 2 * precision * recall / (precision + recall))
        best[1] = max(best[1], float(normalise(guess) == normalise(gold)))
    return best[0], best[1]


def test_the_official_scores(tmp_path: Path) -> None:
    task = make_task("record", tmp_path)
    draw = random.Random(0)
    words = ["the", "A", "Bank", "of", "U.S.", "Smith", "Smith's", "an", "--", "\u201cX\u201d"]

    def name() -> str:
        return " ".join(draw.choices(words, k=draw.randint(1, 4)))

    for _ in range(500):
        found = [
            ([name() for _ in range(draw.randint(1, 3))], name()) for _ in range(draw.randint(1, 6))
        ]
        scores = task.score([{"golds": golds, "guess": guess} for golds, guess in found])
        pairs = [official(golds, guess) for golds, guess in found]
        f1, exact = (sum(column) / len(column) for column in zip(*pairs, strict=True))
        assert (scores["f1"], scores["exact"]) == pytest.approx((f1, exact), abs=1e-12)
        assert scores["mean"] == pytest.approx((f1 + exact) / 2, abs=1e-12)


def test_fifty_answers_by_hand(tmp_path: Path) -> None:
    """Those of SQuAD 1.1, whose scores these are: nothing that is left of both is exact alone."""
    task = make_task("record", tmp_path)
    for golds, guess, exact, same, of_guess, of_gold in BY_HAND:
        found = task.score([{"golds": golds, "guess": guess}])
        assert found["exact"] == exact, (golds, guess)
        assert found["f1"] == pytest.approx(2 * same / max(1, of_guess + of_gold)), (golds, guess)
