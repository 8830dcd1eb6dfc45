"""Types of a mention: scores and the best threshold by loops, decision rules, the loss, layouts."""

from __future__ import annotations

import itertools
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
from plmctl.tasks.entity_typing import EntityTyping
from plmctl.tasks.readers.entity_types import TypingFiles
from plmctl.tasks.record import Example
from plmctl.tasks.scores.types import find_threshold, score_types

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


Sets = list[list[str]]


def draw(rng: random.Random, count: int) -> Sets:
    return [[name for name in NAMES if rng.random() < 0.4] for _ in range(count)]


def scores_in_loops(gold: Sets, guess: Sets) -> dict[str, float]:
    """By the definitions, mention by mention; a type counts once."""
    strict = precision = recall = 0.0
    shared = guessed = present = 0
    for own, said in zip(gold, guess, strict=True):
        g = [name for n, name in enumerate(own) if name not in own[:n]]
        p = [name for n, name in enumerate(said) if name not in said[:n]]
        common = len([name for name in g if name in p])
        strict += common == len(g) == len(p)
        precision += common / len(p) if p else 0
        recall += common / len(g) if g else 0
        shared, guessed, present = shared + common, guessed + len(p), present + len(g)
    n = max(1, len(gold))
    found = {"strict": strict / n, "macro_precision": precision / n, "macro_recall": recall / n}
    found["precision"] = shared / guessed if guessed else 0.0
    found["recall"] = shared / present if present else 0.0
    for part in ("", "macro_"):
        p, r = found[f"{part}precision"], found[f"{part}recall"]
        found[f"{part}f1"] = 2 * p * r / (p + r) if p + r else 0.0
    return found


def check(gold: Sets, guess: Sets) -> None:
    found, wanted = score_types(gold, guess), scores_in_loops(gold, guess)
    assert found == pytest.approx(wanted, rel=1e-12), (gold, guess)
    for name in ("strict", "precision", "recall"):  # of whole numbers
        assert found[name] == wanted[name], (gold, guess)


def test_scores_by_their_definitions() -> None:
    rng = random.Random(0)
    for _ in range(500):
        count = rng.randint(1, 6)
        check(draw(rng, count), draw(rng, count))


def test_all_sets_of_three_types() -> None:
    """Of one mention, and beside one whose types are right, missing, or too many."""
    sets = [list(own) for n in range(4) for own in itertools.combinations("abc", n)]
    for gold, guess in itertools.product(sets, sets):
        check([gold], [guess])
        for own, said in (("a", "a"), ("ab", ""), ("", "ab"), ("a", "abc")):
            check([gold, list(own)], [guess, list(said)])


# gold and guess, types of mentions with a space between them; - : none
EDGES: dict[str, tuple[str, str, float, tuple[float, float], tuple[float, float]]] = {
    "all right": ("ab c", "ab c", 1, (1, 1), (1, 1)),
    "another order": ("ab c", "ba c", 1, (1, 1), (1, 1)),
    "a type twice in the guess": ("ab", "aab", 1, (1, 1), (1, 1)),
    "a type twice in gold": ("aab", "ab", 1, (1, 1), (1, 1)),
    "nothing guessed": ("ab c", "- -", 0, (0, 0), (0, 0)),
    "nothing there": ("- -", "ab c", 0, (0, 0), (0, 0)),
    "nothing on both sides": ("-", "-", 1, (0, 0), (0, 0)),
    "one without guesses": ("a b", "a -", 1 / 2, (1, 1 / 2), (1 / 2, 1 / 2)),
    "one without types": ("a -", "a b", 1 / 2, (1 / 2, 1), (1 / 2, 1 / 2)),
    "empty ones beside": ("a - -", "a - -", 1, (1, 1), (1 / 3, 1 / 3)),
    "one type too many": ("a b", "ac b", 1 / 2, (2 / 3, 1), (3 / 4, 1)),
    "one type too few": ("ab c", "a c", 1 / 2, (1, 2 / 3), (1, 3 / 4)),
    "mentions exchanged": ("a b", "b a", 0, (0, 0), (0, 0)),
    "a mention of many types": ("abcd e", "abcd f", 1 / 2, (4 / 5, 4 / 5), (1 / 2, 1 / 2)),
    "everything guessed": ("a b", "ab ab", 0, (1 / 2, 1), (1 / 2, 1)),
    "unknown types": ("a", "xyz", 0, (0, 0), (0, 0)),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges_by_hand(name: str) -> None:
    sides, strict, micro, macro = EDGES[name][:2], *EDGES[name][2:]
    gold, guess = ([list(own.strip("-")) for own in text.split()] for text in sides)
    found = score_types(gold, guess)
    assert found["strict"] == strict
    assert (found["precision"], found["recall"]) == micro
    assert (found["macro_precision"], found["macro_recall"]) == pytest.approx(macro)
    check(gold, guess)


def test_no_mentions() -> None:
    assert set(score_types([], []).values()) == {0.0}


def test_the_best_threshold_is_that_of_a_search() -> None:
    rng = random.Random(3)
    for _ in range(500):
        gold = draw(rng, rng.randint(1, 8))
        probabilities = [
            {name: round(rng.random() * 0.6 + 0.4 * (name in own), 1) for name in NAMES}
            for own in gold
        ]

        def f1(threshold: float, gold: Any = gold, rows: Any = probabilities) -> float:
            guess = [[n for n, p in own.items() if p > threshold] for own in rows]
            return score_types(gold, guess)["f1"]

        threshold, best = find_threshold(gold, probabilities)
        tried = [f1(step / 20) for step in range(-1, 21, 2)]  # between all that occur
        assert best == pytest.approx(max(tried))
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
