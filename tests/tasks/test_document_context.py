"""Tagging with the text around each sentence: read, not asked, as much as fits; every word is
predicted once.
"""

import random
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.tasks.layouts.words import take_context, word_pieces
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.tagging import Tagging

SPLITS = {"train": ["train.txt"], "dev": ["train.jsonl"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    draw = random.Random(5)
    lines = []
    for document in range(3):
        lines += ["-DOCSTART- -X- O", ""]
        for _ in range(4):
            words = [
                "".join(draw.choice("abcdef") for _ in range(draw.randint(1, 7)))
                for _ in range(draw.randint(1, 9))
            ]
            lines += [f"{word}{document} {draw.choice(['O', 'B-X', 'B-Y'])}" for word in words] + [
                ""
            ]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    return tmp_path


def _task(file, max_length=16, context="document"):
    reader, columns = Columns(splits=SPLITS), {"tokens": 0, "tags": -1}
    task = Tagging(
        name="x",
        reader=reader,
        columns=columns,
        max_length=max_length,
        metrics=["f1"],
        context=context,
        path=file,
    )
    examples = task.read("train")
    task.fit_labels(examples)
    return task, examples


def test_documents_are_read(file):
    _, examples = _task(file)
    assert [e.document for e in examples] == [0] * 4 + [1] * 4 + [2] * 4
    (file / "plain.txt").write_text("a O\n\nb O\n")
    assert [
        e.document
        for e in Columns(splits={}).read_file(file / "plain.txt", {"tokens": 0, "tags": -1})
    ] == [None, None]
    (file / "train.jsonl").write_text(
        '{"tokens": ["a"], "tags": ["O"], "document": "x"}\n{"tokens": ["b"], "tags": ["O"],'
        ' "document": "x"}\n{"tokens": ["c"], "tags": ["O"], "document": "y"}\n{"tokens": ["d"],'
        ' "tags": ["O"]}\n'
    )
    found = Columns(splits=SPLITS).read(file, "dev", {"tokens": "tokens", "tags": "tags"})
    assert [e.document for e in found] == [0, 0, 1, None]


@pytest.mark.parametrize("max_length", [7, 16, 48, 400])
def test_every_word_is_asked_once_with_as_much_text_around_it_as_fits(file, toy, max_length):
    task, examples = _task(file, max_length)
    rows = task.encode(examples, toy)
    ids, length = rows.seqs["text"].ids, rows.seqs["text"].length
    assert length.max() <= max_length
    asked = [
        (int(rows.values["example"][row]), int(word)) for row, _, _, word in rows.spans["word"]
    ]
    assert asked == [
        (e, w) for e, example in enumerate(examples) for w in range(len(example.fields["words"]))
    ]
    target = rows.targets["tag"]
    assert (target != IGNORE).sum() == len(asked)
    documents = {
        d: [
            i
            for e in examples
            if e.document == d
            for piece in word_pieces(e.fields["words"], toy, joiner=" ")
            for i in piece
        ]
        for d in range(3)
    }
    for row in range(len(ids)):
        document = documents[examples[int(rows.values["example"][row])].document]
        inside = ids[row, 1 : length[row] - 1].tolist()
        places = [at for at in range(len(document)) if document[at : at + len(inside)] == inside]
        assert places, "a row is an unbroken piece of its document"
        own = [(start, pieces) for r, start, pieces, _ in rows.spans["word"] if r == row]
        asked_at = [place for place in range(ids.shape[1]) if target[row, place] != IGNORE]
        assert asked_at == [start for start, _ in own]
        spare = max_length - length[row]
        # words of at most 3 pieces: none of either side fits any more
        assert spare <= 2 or len(inside) == len(document)


def test_words_are_taken_from_both_sides_in_turn():
    """The definition, as a loop over all possible numbers of words on either side."""
    draw = random.Random(1)
    for _ in range(200):
        before, after = (
            [[0] * draw.randint(1, 3) for _ in range(draw.randint(0, 5))] for _ in range(2)
        )
        room = draw.randint(0, 12)
        left, right = take_context(before, after, room)
        assert before[len(before) - len(left) :] == left
        assert after[: len(right)] == right
        used = sum(map(len, left)) + sum(map(len, right))
        assert used <= room
        nexts = [*before[: len(before) - len(left)][-1:], *after[len(right) :][:1]]
        assert all(used + len(piece) > room for piece in nexts)
        if len(before) > len(left) and len(after) > len(right):
            assert abs(len(left) - len(right)) <= 3


def test_predictions_are_those_of_the_words_themselves(file, toy):
    task, examples = _task(file)
    rows = task.encode(examples, toy)
    logits = np.zeros((*rows.seqs["text"].ids.shape, len(task.names)), np.float32)
    # a model that is right at the words that are asked, wrong elsewhere
    for row, start, _, word in rows.spans["word"]:
        logits[
            row, start, task.names.index(examples[int(rows.values["example"][row])].label[word])
        ] = 1
    found = task.predict({"tag": logits}, rows, examples)
    assert [p["guess"] for p in found] == [list(e.label) for e in examples]


def test_without_context_nothing_is_added(file, toy):
    task, examples = _task(file, context="sentence")
    rows = task.encode(examples, toy)
    assert int(rows.seqs["text"].length.sum()) == sum(
        len(piece) for e in examples for piece in word_pieces(e.fields["words"], toy, joiner=" ")
    ) + 2 * len(rows.key)


def test_context_needs_documents(tmp_path):
    (tmp_path / "train.txt").write_text("a O\n\nb B-X\n")
    with pytest.raises(
        ConfigError, match=r"task.context='document': sentence: neither -DOCSTART- lines"
    ):
        _task(tmp_path)
