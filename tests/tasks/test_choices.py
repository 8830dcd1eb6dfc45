"""Multiple choice: files of all layouts, rows that stay together, and the softmax over each
example's own choices.
"""

import json

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.errors import DataError
from plmctl.models.base import Hidden
from plmctl.tasks import batches, inference
from plmctl.tasks.choices import Choice
from plmctl.tasks.readers.choices import Choices
from plmctl.tasks.record import Example

COLUMNS = {"text": "text", "choices": "choices", "label": "label"}


def _task(**settings):
    return Choice(
        name="toy",
        reader=Choices(splits={"train": ["train.*"]}),
        columns=COLUMNS,
        max_length=24,
        metrics=["accuracy"],
        **settings,
    )


def _example(number, text, choices, label):
    return Example(str(number), {"text": text, "choices": choices}, label, f"x.tsv:{number}")


EXAMPLES = [
    _example(0, "a dog", ["runs", "flies home", "writes a long letter"], "0"),
    _example(1, "rain", ["falls", "sings"], "B"),
    _example(2, "why", ["one", "two", "three", "four"], "3"),
    _example(3, "birds fly", ["yes they do", "no"], "a"),
]
RIGHT = [0, 1, 3, 0]


class Weighted(torch.nn.Module):
    """A model whose state at a row's first token is the sum of the row's ids."""

    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleDict({"choice": torch.nn.Linear(1, 1, bias=False).double()})
        torch.nn.init.constant_(self.heads["choice"].weight, 0.003)

    def forward(self, batch, state=None, record=frozenset()):
        ids = batch.text.ids * batch.text.real
        return Hidden(ids.sum(1)[:, None, None].expand(*ids.shape, 1).double())


def _expected(toy):
    """[(loss, guess)] by the definition, one example at a time."""
    found = []
    for example, right in zip(EXAMPLES, RIGHT, strict=True):
        rows = [
            [2, *toy.encode(example.fields["text"]), 3, *toy.encode(choice), 3]
            for choice in example.fields["choices"]
        ]
        scores = np.array([0.003 * sum(row) for row in rows])
        p = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        found.append((-np.log(p[right]), int(scores.argmax())))
    return found


def test_the_loss_is_a_softmax_over_each_examples_choices_in_any_batching(toy):
    task, model = _task(), Weighted()
    rows = task.encode(EXAMPLES, toy)
    assert rows.values["group"].tolist() == [0] * 3 + [1] * 2 + [2] * 4 + [3] * 2
    assert rows.labels["choice"].tolist() == [
        0,
        IGNORE,
        IGNORE,
        1,
        IGNORE,
        3,
        IGNORE,
        IGNORE,
        IGNORE,
        0,
        IGNORE,
    ]
    units = batches.BatchUnits.of(rows)
    expected = sum(loss for loss, _ in _expected(toy))
    for parts in ([[0, 1, 2, 3]], [[3, 1], [2, 0]], [[2], [0], [3], [1]]):
        made = [batches.collate(rows, units.rows(np.array(part))) for part in parts]
        assert sum(
            task(model, batch).terms["choice"].total.item() for batch in made
        ) == pytest.approx(expected, rel=1e-5)
        assert sum(task.counts(batch)["choice"] for batch in made) == 4
        right = sum(int(task(model, batch).logs["acc/choice"][0]) for batch in made)
        assert right == sum(
            guess == gold for (_, guess), gold in zip(_expected(toy), RIGHT, strict=True)
        )


def test_predictions(toy):
    task = _task()
    split = inference.encode_split(task, "dev", EXAMPLES, toy)
    with torch.no_grad():
        found, loss = inference.predict_split(
            Weighted(), task, split, batch_size=3, device=torch.device("cpu")
        )
    assert [p["guess"] for p in found] == [guess for _, guess in _expected(toy)]
    assert [p["gold"] for p in found] == RIGHT
    assert [len(p["probabilities"]) for p in found] == [3, 2, 4, 2]
    assert loss == pytest.approx(sum(loss for loss, _ in _expected(toy)) / 4, rel=1e-5)
    assert (
        task.score(found)["accuracy"]
        == sum(g == r for (_, g), r in zip(_expected(toy), RIGHT, strict=True)) / 4
    )
    unlabelled = inference.encode_split(task, "new", [task.parse("rain\tfalls\tsings", 1)], toy)
    with torch.no_grad():
        assert (
            inference.predict_split(
                Weighted(), task, unlabelled, batch_size=1, device=torch.device("cpu")
            )[1]
            is None
        )


def test_batches_count_examples_and_never_part_their_rows(toy):
    rows = _task().encode(EXAMPLES * 5, toy)
    stream = batches.Batches(rows, batch_size=4, micro_batch_size=2, seed=1)
    seen = []
    for _ in range(stream.updates_per_epoch):
        for batch in next(stream):
            sizes = np.bincount(batch.values["group"])
            assert batch.counts["choice"] == len(sizes) == 2
            own = batch.values["example"].numpy()
            assert sizes.sum() == sum(
                len(EXAMPLES[e % 4].fields["choices"]) for e in np.unique(own)
            )
            seen += np.unique(own).tolist()
    assert sorted(seen) == list(range(20))


def test_rows_without_groups_are_units_themselves():
    from plmctl.core.batch import Rows, Seq

    rows = Rows(key=np.arange(3), seqs={"text": Seq(np.ones((3, 4), int), np.array([4, 1, 2]))})
    units = batches.BatchUnits.of(rows)
    assert units.length.tolist() == [4, 1, 2]
    assert units.rows(np.array([2, 0])).tolist() == [2, 0]


def test_files(tmp_path):
    lines = [
        {"text": "t", "choices": ["x", "y", "z"], "label": 2},
        {"text": "u", "choices": ["x", "y"], "label": "A"},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = _task(path=tmp_path)
    examples = task.read("train")
    task.fit_labels(examples)
    assert [example.fields["choices"] for example in examples] == [["x", "y", "z"], ["x", "y"]]
    (tmp_path / "swag.csv").write_text(
        'n,sent1,sent2,e0,e1,label\n0,"He, there","He",runs.,sits.,1\n'
    )
    columns = {"text": "sent1", "lead": "sent2", "choices": ["e0", "e1"], "label": "label"}
    found = Choices(splits={}).read_file(tmp_path / "swag.csv", columns)[0]
    assert found.fields == {"text": "He, there", "choices": ["He runs.", "He sits."]}
    (tmp_path / "few.tsv").write_text("q\tx\ty\t\nq\tx\t\ty\n")
    columns = {"text": 0, "choices": [1, 2, 3], "label": 0}
    with pytest.raises(DataError, match=r"few.tsv:2: 3 choices: one of them is empty"):
        Choices(splits={}).read_file(tmp_path / "few.tsv", columns)
    (tmp_path / "few.tsv").write_text("q\tx\ty\t\nq\tx\t\t\n")
    with pytest.raises(DataError, match=r"(?s)few.tsv:2: 1 choices: two are.*lenient=true"):
        Choices(splits={}).read_file(tmp_path / "few.tsv", columns)
    lenient = Choices(splits={}, lenient=True)
    assert len(lenient.read_file(tmp_path / "few.tsv", columns)) == 1
    assert lenient.skipped == {str(tmp_path / "few.tsv"): 1}


def test_labels_outside_the_choices_are_named():
    for label in ("2", "C", "-1", "both"):
        with pytest.raises(
            DataError, match=rf"(?s)x.tsv:7: label '{label}' of 2 choices: 0 to 1, or A to B"
        ):
            _task().fit_labels([_example(7, "t", ["x", "y"], label)])
    _task(first_label=1).fit_labels([_example(7, "t", ["x", "y"], "2")])
    for first, label, fix in (
        (1, "0", "task.first_label=0  # where"),
        (0, "2", "task.first_label=1  # where"),
        (0, "9", "# correct"),
    ):
        with pytest.raises(DataError, match=rf"fix: {fix}"):
            _task(first_label=first).fit_labels([_example(7, "t", ["x", "y"], label)])


def test_one_two_and_three_processes_read_the_same_rows():
    """In every update the parts of all processes are the rows that one process has, in its
    order, over two epochs.
    """
    n = 21  # the last update of an epoch has 3 rows, one for each process
    text = Seq(np.arange(n * 4).reshape(n, 4), np.arange(n) % 4 + 1)
    rows = Rows(key=np.arange(n), seqs={"text": text}, values={"cut": np.zeros(n, np.int64)})

    def read(world, rank):
        stream = batches.Batches(
            rows, batch_size=6, micro_batch_size=2, seed=3, world=world, rank=rank
        )
        return [[int(key) for batch in next(stream) for key in batch.key] for _ in range(8)]

    alone = read(1, 0)
    assert sorted(key for update in alone[:4] for key in update) == list(range(n))
    for world in (2, 3):
        parts = [read(world, rank) for rank in range(world)]
        assert [
            [key for part in update for key in part] for update in zip(*parts, strict=True)
        ] == alone


def test_a_batch_of_the_only_row_is_that_of_the_row_among_others():
    def lay_out(count: int, tokens: int) -> Rows:
        ids = np.arange(count * tokens).reshape(count, tokens)
        text = Seq(ids, np.array([3] * count), {"segment": ids % 2})
        own = np.arange(count)
        anchors = np.stack([own, own + 1], axis=1)
        targets, labels = {"clm": ids}, {"class": own + 4}
        spans = {"span": np.array([[0, 1, 1]])} if tokens > 4 else {}
        return Rows(own + 7, {"text": text}, targets, anchors, labels, spans, {"example": own})

    for tokens in (3, 4, 5):  # no padding; some; some, and spans
        one, two = lay_out(1, tokens), lay_out(2, tokens)
        alone, chosen = (batches.collate(rows, np.array([0])) for rows in (one, two))
        for own, other in (
            (alone.text, chosen.text),
            (alone.targets["clm"], chosen.targets["clm"]),
        ):
            assert own.ids.tolist() == other.ids.tolist()
        assert alone.text.length.tolist() == chosen.text.length.tolist() == [3]
        assert alone.text.full
        assert chosen.text.full
        assert alone.text.tracks["segment"].tolist() == chosen.text.tracks["segment"].tolist()
        assert alone.anchors.tolist() == chosen.anchors.tolist()
        assert alone.labels["class"].tolist() == chosen.labels["class"].tolist()
        assert alone.key.tolist() == chosen.key.tolist()
        assert alone.counts == chosen.counts
        assert not alone.spans
        assert not chosen.spans
