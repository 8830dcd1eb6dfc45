"""Types of a mention: scores and the best threshold by loops, decision rules, the loss, layouts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.errors import ConfigError, DataError
from plmctl.models.base import Hidden
from plmctl.tasks import batches
from plmctl.tasks.base import Example
from plmctl.tasks.entity_typing import EntityTyping
from plmctl.tasks.typing_files import TypingFiles
from plmctl.tasks.typing_score import find_threshold, score_types

READER = TypingFiles(splits={"train": ["train.*"], "dev": ["dev.*"]})
NAMES = ["person", "place", "thing"]
TEXT = "the cat sat on one mat"


def _task(**settings: Any) -> EntityTyping:
    own = {"max_length": 32, "metrics": ["f1"], "label_names": NAMES, **settings}
    return EntityTyping(name="toy", reader=READER, **own)


def _example(number: int, word: str, types: list[str] | None) -> Example:
    start = TEXT.index(word)
    entity = {"start": start, "end": start + len(word), "id": "", "type": ""}
    return Example(str(number), {"text": TEXT, "entities": [entity]}, types, "x.json record 0")


def draw(seed: int) -> tuple[list[list[str]], list[list[str]]]:
    rng = random.Random(seed)
    return tuple(  # type: ignore[return-value]
        [[name for name in NAMES if rng.random() < 0.4] for _ in range(40)] for _ in range(2)
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_scores_by_their_definitions(seed: int) -> None:
    gold, guess = draw(seed)
    strict = precision = recall = 0.0
    shared = guessed = present = 0
    for g, p in zip(gold, guess, strict=True):
        common = len([name for name in g if name in p])
        strict += g == p
        precision += common / len(p) if p else 0
        recall += common / len(g) if g else 0
        shared, guessed, present = shared + common, guessed + len(p), present + len(g)
    scores = score_types(gold, guess)
    assert scores["strict"] == pytest.approx(strict / 40)
    assert (scores["precision"], scores["recall"]) == (shared / guessed, shared / present)
    assert scores["f1"] == pytest.approx(2 * shared / (guessed + present))
    p, r = precision / 40, recall / 40
    assert (scores["macro_precision"], scores["macro_recall"]) == pytest.approx((p, r))
    assert scores["macro_f1"] == pytest.approx(2 * p * r / (p + r))
    assert set(score_types([], []).values()) == {0.0}


def test_the_best_threshold_is_that_of_a_search() -> None:
    rng = random.Random(3)
    gold = draw(4)[0]
    probabilities = [
        {name: round(rng.random() * 0.6 + 0.4 * (name in own), 1) for name in NAMES} for own in gold
    ]

    def f1(threshold: float) -> float:
        guess = [[n for n, p in own.items() if p > threshold] for own in probabilities]
        return score_types(gold, guess)["f1"]

    threshold, best = find_threshold(gold, probabilities)
    assert best == pytest.approx(max(f1(step / 20) for step in range(21)))
    assert f1(threshold) == pytest.approx(best)


class Fixed(torch.nn.Module):
    """A model whose state of a row is known, and whose head gives it back."""

    def __init__(self, states: list[list[float]]) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleDict({"types": torch.nn.Identity()})
        self.states = torch.tensor(states).double()

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        return Hidden(self.states[:, None].expand(-1, batch.text.ids.shape[1], -1))


SCORES = [[2.0, -1.0, 0.5], [-3.0, -0.1, -0.2], [0.1, 0.2, 0.3]]
GOLD = [["person", "thing"], ["thing"], ["place"]]


def _examples() -> list[Example]:
    return [_example(n, "cat", types) for n, types in enumerate(GOLD)]


def test_the_loss(toy: Any) -> None:
    task = _task()
    batch = batches.collate(task.encode(_examples(), toy), np.arange(3))
    model: Any = Fixed(SCORES)
    total = 0.0
    for scores, types in zip(SCORES, GOLD, strict=True):
        own = 0.0
        for score, name in zip(scores, NAMES, strict=True):
            p = 1 / (1 + np.exp(-score))
            own -= np.log(p if name in types else 1 - p)
        total += own / len(NAMES)
    out = task(model, batch)
    assert out.terms["types"].total.item() == pytest.approx(total)
    assert task.counts(batch) == {"types": 3}
    assert out.logs["acc/types"][0].item() == 1


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, [["person", "thing"], [], NAMES]),
        ({"decide": "top"}, [["person", "thing"], ["place"], NAMES]),
        ({"threshold": 0.55}, [["person", "thing"], [], ["thing"]]),
    ],
)
def test_decisions(toy: Any, settings: Any, wanted: Any) -> None:
    task = _task(**settings)
    rows = task.encode(_examples(), toy)
    found = task.predict({"types": np.array(SCORES)}, rows, _examples())
    assert [each["guess"] for each in found] == wanted
    scores = task.score(found)
    assert scores["f1"] == score_types(GOLD, wanted)["f1"]
    assert scores["f1_at_best_threshold"] >= scores["f1"] or settings.get("decide") == "top"


def test_marks_and_a_typed_line(toy: Any) -> None:
    task = _task(label_names=None)
    task.fit_labels(_examples())
    assert task.names == NAMES
    rows = task.encode([task.parse("the <e1>cat</e1> sat on one mat", 1)], toy)
    wanted = [2, *toy.encode("the # cat # sat on one mat"), 3]
    assert rows.seqs["text"].ids[0].tolist() == wanted
    assert not rows.labels
    new = _example(0, "cat", ["animal", "thing"])
    task.fit_labels([new])
    assert task.remarks == [
        "1 labels do not occur in training, such as animal: they are never guessed, and count as"
        " missed"
    ]
    assert task.encode([new], toy).labels["types"].tolist() == [[0, 0, 1]]
    with pytest.raises(ConfigError, match="threshold"):
        _task(threshold=0)


LAYOUTS = {
    "ernie.json": json.dumps([{"sent": TEXT, "start": 4, "end": 7, "labels": ["a", "b", "a"]}]),
    "ultra.json": json.dumps({
        "left_context_token": ["the"], "mention_span": "cat", "y_str": ["a", "b"],
        "right_context_token": TEXT.split()[2:], "annot_id": "x",
    }) + "\n",
    "figer.json": json.dumps({
        "tokens": TEXT.split(), "mentions": [{"start": 1, "end": 2, "labels": ["a", "b"]}],
    }) + "\n",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_layouts(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.json").write_text(LAYOUTS[name])
    (example,) = READER.read(tmp_path, "train", {})
    (entity,) = example.fields["entities"]
    assert example.fields["text"] == TEXT
    assert TEXT[entity["start"] : entity["end"]] == "cat"
    assert example.label == ["a", "b"]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    good = {"sent": TEXT, "start": 4, "end": 7, "labels": ["a"]}
    for wrong, message in (
        ({**good, "end": 70}, r"record 1: .*4..70 is outside of 22 characters"),
        ({**good, "labels": "a"}, "no list of texts"),
        ({**good, "labels": None}, "no types"),
        ({"text": "x"}, "no known layout has the fields text"),
        ({"sent": TEXT, "start": 4}, "no field 'end'"),
        (7, "not in a layout"),
    ):
        (tmp_path / "train.json").write_text(json.dumps([good, wrong]))
        with pytest.raises(DataError, match=message):
            READER.read(tmp_path, "train", {})
