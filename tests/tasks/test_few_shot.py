"""Few-shot relations: episodes have no sentence twice, scores by a loop, relations of one split,
the interval.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.errors import DataError
from plmctl.models.base import Hidden
from plmctl.tasks import batches
from plmctl.tasks.few_shot import FewShot
from plmctl.tasks.readers.relation import RelationFiles, make_example

READER = RelationFiles(splits={"train": ["train.*"], "dev": ["dev.*"]})
SENTENCES = [
    make_example(
        str(n), f"word{n % 7} of kind{n} is here", [(0, 5), (9, 13)], label=f"P{n % 4}", place="x"
    )
    for n in range(24)
]


def _task(**settings: Any) -> FewShot:
    own = {"ways": 3, "shots": 2, "queries": 2, "max_length": 32, "metrics": ["accuracy"],
           "episodes": {"train": 4, "dev": 3}, **settings}  # fmt: skip
    return FewShot(name="toy", reader=READER, **own)


def test_episodes() -> None:
    task = _task()
    episodes = task.episodes.draw(SENTENCES, "train")
    assert len(episodes) == 4
    of = {each.fields["text"]: each.label for each in SENTENCES}
    for episode in episodes:
        texts = [each["text"] for each in episode.fields["sentences"]]
        assert len(set(texts)) == 12
        assert len(set(episode.label)) == 3
        assert [of[text] for text in texts] == [name for name in episode.label for _ in "ab"] * 2
    again = task.episodes.draw(SENTENCES, "train")
    assert [e.label for e in again] == [e.label for e in episodes]
    assert [e.label for e in task.episodes.draw(SENTENCES, "dev")] != [
        e.label for e in episodes[:3]
    ]
    with pytest.raises(DataError, match="0 relations of the split 'dev' have 9 sentences"):
        _task(shots=7).episodes.draw(SENTENCES, "dev")


class Mixed(torch.nn.Module):
    """A model whose states are functions of a token and of its place."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleDict({"vector": torch.nn.Identity()})

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        ids = batch.text.ids.double()
        return Hidden(torch.stack([(ids * 0.3).sin(), (ids * 0.7).cos()], -1))


@pytest.mark.parametrize("compare", ["prototype", "nearest"])
@pytest.mark.parametrize("distance", ["euclidean", "cosine", "dot"])
def test_scores_by_a_loop(toy: Any, compare: Any, distance: Any) -> None:
    task = _task(compare=compare, distance=distance, temperature=0.5)
    episodes = task.episodes.draw(SENTENCES, "train")
    rows = task.encode(episodes, toy)
    # the third episode, then the second
    batch = batches.collate(rows, np.array([*range(24, 36), *range(12, 24)]))
    model: Any = Mixed()
    found = task.logits(model, batch)["vector"].numpy()
    states = model(batch).last
    place = batch.values["mentions"]
    vectors = [np.concatenate([states[n, place[n, 0]], states[n, place[n, 2]]]) for n in range(24)]
    if distance == "cosine":
        vectors = [vector / np.linalg.norm(vector) for vector in vectors]

    def score(a: np.ndarray, b: np.ndarray) -> float:
        return float(-((a - b) ** 2).sum() if distance == "euclidean" else a @ b)

    loss = 0.0
    for query in range(24):
        first = 12 * (query // 12)
        scores = []
        for way in range(3):
            shots = [vectors[first + 2 * way + k] for k in range(2)]
            if compare == "prototype":
                scores.append(score(vectors[query], np.mean(shots, 0)) / 0.5)
            else:
                scores.append(max(score(vectors[query], shot) for shot in shots) / 0.5)
        np.testing.assert_allclose(found[query], scores, rtol=1e-6)
        if query % 12 >= 6:
            p = np.exp(scores) / np.exp(scores).sum()
            loss -= math.log(p[(query % 12 - 6) // 2])
    out = task(model, batch)
    assert out.terms["vector"].total.item() == pytest.approx(loss)
    assert task.counts(batch) == {"vector": 12}


def test_types_of_entities_are_counted_in_all_sentences() -> None:
    task = _task(marks="types")
    with pytest.raises(DataError, match="none of 96 entities of train have a type"):
        task.describe_known(task.episodes.draw(SENTENCES, "train"))


def test_single_sentences_are_refused(toy: Any) -> None:
    with pytest.raises(ValueError, match="single texts have no shots"):
        _task().parse("a text", 1)
    with pytest.raises(DataError, match="episodes are drawn from the files"):
        _task().encode(SENTENCES[:2], toy)


def test_predictions_and_interval(toy: Any) -> None:
    task = _task(metrics=["accuracy", "interval"])
    episodes = task.episodes.draw(SENTENCES, "train")
    rows = task.encode(episodes, toy)
    logits = np.zeros((48, 3))
    logits[np.arange(48), np.tile([0] * 6 + [0, 0, 1, 0, 2, 1], 4)] = 1
    found = task.predict({"vector": logits}, rows, episodes)
    assert found[0]["gold"] == [name for name in episodes[0].label for _ in "ab"]
    assert [g == p for g, p in zip(found[0]["gold"], found[0]["guess"], strict=True)] == [
        True, True, True, False, True, False,
    ]  # fmt: skip
    shares = [0.5, 1.0, 0.5, 0.0]
    made = [{"gold": ["a", "b"], "guess": guess} for guess in (["a", "c"], ["a", "b"], ["a", "a"],
                                                              ["b", "a"])]  # fmt: skip
    scores = task.score(made)
    assert scores["accuracy"] == 0.5
    assert scores["interval"] == pytest.approx(1.96 * np.std(shares, ddof=1) / 2)
    assert scores["chance"] == 1 / 3


def test_relations_of_a_single_file_are_divided(tmp_path: Path) -> None:
    content: dict[str, list[Any]] = {f"P{n}": [] for n in range(6)}
    for number in range(36):
        tokens = [f"word{number}", "is", "here"]
        record = {"tokens": tokens, "h": ["", "", [[0]]], "t": ["", "", [[2]]]}
        content[f"P{number % 6}"].append(record)
    file = tmp_path / "all.json"
    file.write_text(json.dumps(content))
    task = _task(dev_share=0.5, path=str(file))
    relations = [
        {name for episode in task.read(split) for name in episode.label}
        for split in ("train", "dev")
    ]
    assert [len(names) for names in relations] == [3, 3]
    assert relations[0].isdisjoint(relations[1])
