"""Questions with candidates: rows by hand, the mean over the rows of long documents, the softmax
over an example's own candidates, files, what is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.models.base import Hidden
from plmctl.tasks import batches, inference
from plmctl.tasks.candidates import Candidates
from plmctl.tasks.readers.wikihop import CandidateFiles
from plmctl.tasks.record import Example

READER = CandidateFiles(splits={"train": ["train.*"], "dev": ["dev.*"]})


def _task(**settings: Any) -> Candidates:
    own = {"max_length": 24, "max_query": 4, "metrics": ["accuracy"], **settings}
    return Candidates(name="toy", reader=READER, **own)


def _example(number: int, question: str, names: list[str], texts: list[str], label: str) -> Example:
    fields = {"question": question, "candidates": names, "documents": texts}
    return Example(str(number), fields, label, f"x.json question {number}")


LONG = "aaa bbb ccc ddd eee fff ggg hhh iii jjj kkk lll mmm nnn ooo ppp qqq rrr sss ttt"
EXAMPLES = [
    _example(0, "who is it", ["cat", "two dogs", "owl"], ["the cat", "and one owl"], "owl"),
    _example(1, "why", ["yes", "no"], [f"{LONG} {LONG}", "no"], "yes"),
]


class Summed(torch.nn.Module):
    """A model whose state at a token is the sum of the row's ids, times its own id."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleDict({"choice": torch.nn.Linear(1, 1, bias=False).double()})
        torch.nn.init.constant_(self.heads["choice"].weight, 0.001)  # type: ignore[arg-type]

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        ids = (batch.text.ids * batch.text.real).double()
        places = torch.arange(ids.shape[1]).double() + 1
        return Hidden((ids.sum(1, keepdim=True) * places)[..., None] / 7)


def _rows_by_hand(toy: Any, example: Example) -> list[tuple[list[int], list[int], int]]:
    """(ids, positions of the candidates' separators, where the documents begin) of each row."""
    ids, places = [2, *toy.encode(example.fields["question"])[:4]], []
    for name in example.fields["candidates"]:
        places.append(len(ids))
        ids += [3, *toy.encode(name)]
    ids.append(3)
    read: list[int] = []
    for text in example.fields["documents"]:
        read += [*toy.encode(text), 3]
    room, made = 24 - len(ids) - 1, []
    while read:
        part, read = read[:room], read[room:]
        made.append((ids + part + ([] if part[-1] == 3 else [3]), places, len(ids)))
    return made


def test_rows(toy: Any) -> None:
    rows = _task().encode(EXAMPLES, toy)
    wanted = [row for example in EXAMPLES for row in _rows_by_hand(toy, example)]
    assert len(wanted) > 3
    assert rows.values["group"].tolist() == [0] + [1] * (len(wanted) - 1)
    assert rows.labels["choice"].tolist() == [2, 0] + [IGNORE] * (len(wanted) - 2)
    text = rows.seqs["text"]
    for number, (ids, places, begin) in enumerate(wanted):
        assert text.ids[number, : text.length[number]].tolist() == ids
        own = rows.values["candidates"][number]
        assert own[own >= 0].tolist() == places
        assert text.tracks["global"][number].tolist() == [
            int(place < begin) for place in range(text.ids.shape[1])
        ]
        assert text.tracks["segment"][number, : len(ids)].tolist() == [
            int(place >= begin) for place in range(len(ids))
        ]


def _expected(toy: Any) -> list[np.ndarray]:
    """The scores of each example's candidates by the definition, the mean over its rows."""
    found = []
    for example in EXAMPLES:
        rows = _rows_by_hand(toy, example)
        scores = [[0.001 * sum(ids) * (p + 1) / 7 for p in places] for ids, places, _ in rows]
        found.append(np.mean(scores, 0))
    return found


def test_the_loss_is_a_softmax_over_means_in_any_batching(toy: Any) -> None:
    task, model = _task(), Summed()
    rows = task.encode(EXAMPLES, toy)
    units = batches.BatchUnits.of(rows)
    right = [2, 0]
    expected = 0.0
    for scores, gold in zip(_expected(toy), right, strict=True):
        p = np.exp(scores - scores.max())
        expected -= float(np.log(p[gold] / p.sum()))
    for parts in ([[0, 1]], [[1], [0]], [[1, 0]]):
        made = [batches.collate(rows, units.rows(np.array(part))) for part in parts]
        total = sum(task(model, batch).terms["choice"].total.item() for batch in made)
        assert total == pytest.approx(expected, rel=1e-6)
        assert sum(task.counts(batch)["choice"] for batch in made) == 2


@torch.no_grad()
def test_predictions(toy: Any) -> None:
    task = _task()
    split = inference.encode_split(task, "dev", EXAMPLES, toy)
    found, _ = inference.predict_split(
        Summed(),
        task,
        split,
        batch_size=2,
        device=torch.device("cpu"),  # type: ignore[arg-type]
    )
    for answer, scores, example in zip(found, _expected(toy), EXAMPLES, strict=True):
        names = example.fields["candidates"]
        assert answer["guess"] == names[int(scores.argmax())]
        p = np.exp(scores - scores.max())
        assert answer["probabilities"] == pytest.approx(dict(zip(names, p / p.sum(), strict=True)))
        assert answer["gold"] == example.label
    assert task.score(found) == {
        "accuracy": sum(answer["guess"] == answer["gold"] for answer in found) / 2
    }
    new = task.parse("why\tyes\tno\ta text", 1)
    assert not task.encode([new], toy).labels


def test_files(tmp_path: Path) -> None:
    questions = [
        {"id": "a", "query": "q", "candidates": ["x", "y"], "supports": ["t", "u"], "answer": "y"},
        {"query": "r", "candidates": ["x", "z"], "supports": [], "answer": None},
    ]
    (tmp_path / "train.json").write_text(json.dumps(questions))
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions))
    for split in ("train", "dev"):
        first, second = READER.read(tmp_path, split, {})
        assert (first.id, first.label, first.fields["documents"]) == ("a", "y", ["t", "u"])
        assert (second.id, second.label) == ("1", None)
    for change, message in (
        ({"answer": "w"}, "the answer 'w' is none of the candidates"),
        ({"candidates": ["x", "x"]}, "none twice"),
        ({"supports": "t"}, "not in WikiHop's layout"),
    ):
        (tmp_path / "train.json").write_text(json.dumps([questions[0] | change]))
        with pytest.raises(DataError, match=message):
            READER.read(tmp_path, "train", {})


def test_what_is_refused(toy: Any, gpt_toy: Any) -> None:
    with pytest.raises(ConfigError, match=r"task\.max_length=9: more than the .*\n  fix: task"):
        _task(max_length=9).encode(EXAMPLES, toy)
    with pytest.raises(ConfigError, match="candidates stand before the documents"):
        _task(sees_later=False)
    with pytest.raises(DataError, match="is none of the candidates"):
        _task().fit_labels([_example(0, "q", ["a", "b"], ["t"], "c")])
    with pytest.raises(ValueError, match="found 3 columns"):
        _task().parse("a\tb\tc", 1)
