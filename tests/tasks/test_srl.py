"""Semantic roles: files, rows that show the predicate, and scores of arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.srl import join_parts, score_arguments
from plmctl.text.tokenizer import Tokenizer
from tests.tasks.readers.test_conllu import make_task

TEXT = """Anna  -     (A0*)  *
likes like  (V*)   *
old   -     (A1*   (A1*)
films -     *      *
made  make  *      (V*)
here  -     *)     (AM-LOC*)

No    -
verb  -
"""


def test_an_example_for_each_predicate(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(TEXT)
    task = make_task("srl", tmp_path)
    first, second = task.read("train")
    words = ["Anna", "likes", "old", "films", "made", "here"]
    assert first.fields == {"words": words, "predicate": 1}
    assert first.label == ["B-A0", "B-V", "B-A1", "I-A1", "I-A1", "I-A1"]
    assert (second.fields["predicate"], second.label[2:]) == (4, ["B-A1", "O", "B-V", "B-AM-LOC"])
    assert list(task.splits.reader.skipped.values()) == [1]  # a sentence without predicates
    assert task.unit(first) == task.unit(second)  # held out together


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(A0*)", "(A0*", r"train.txt:2: column 2 has '\(V\*\)'"),
        ("*)     (AM", "*      (AM", r"train.txt:3: the argument \(A1\* of column 2 does not end"),
        ("(A0*)  *", "A0  *", r"train.txt:1: column 2 has 'A0'"),
        ("made  make  *      (V*)", "made  make  *", r"train.txt:5: column 3 has ''"),
        ("No    -", "No", r"train.txt:8: no column 1: found 1"),
    ],
)
def test_other_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    (tmp_path / "train.txt").write_text(TEXT.replace(old, new))
    with pytest.raises(DataError, match=message):
        make_task("srl", tmp_path).read("train")


@pytest.mark.parametrize("length", [32, 10])
def test_rows_show_the_predicate(tmp_path: Path, length: int) -> None:
    (tmp_path / "train.txt").write_text(TEXT)
    task = make_task("srl", tmp_path, f"task.max_length={length}")
    task.fit_labels(examples := task.read("train"))
    text = " ".join(examples[0].fields["words"])
    tokenizer = Tokenizer.train([text] * 9, kind="wordpiece", vocab_size=40)
    rows = task.encode(examples, tokenizer)
    owner = rows.values["example"]
    seq, behind = rows.seqs["text"], set()
    for row, start, size, word in rows.spans["word"].tolist():
        predicate = examples[owner[row]].fields["predicate"]
        assert (seq.tracks["segment"][row, start : start + size] == (word == predicate)).all()
        behind.add(
            (
                int(owner[row]),
                tokenizer.decode(
                    [
                        t
                        for t, s in zip(
                            seq.ids[row].tolist(), seq.tracks["segment"][row], strict=True
                        )
                        if s
                    ]
                ),
            )
        )
    assert {number for number, _ in behind} == {0, 1}
    assert all(("lik" if number == 0 else "m") in said for number, said in behind)
    words = [[w for r, _, _, w in rows.spans["word"].tolist() if owner[r] == n] for n in (0, 1)]
    assert words == [list(range(6))] * 2
    assert (rows.targets["tag"] >= 0).sum() == 12


def test_arguments_have_all_of_their_parts_and_no_verb() -> None:
    gold = ["B-A1", "B-V", "B-C-A1", "I-C-A1", "O", "B-AM-TMP"]
    assert join_parts(gold) == {("A1", ((0, 0), (2, 3))), ("AM-TMP", ((5, 5),))}
    guess = ["B-A1", "B-V", "B-C-A1", "O", "O", "B-AM-TMP"]
    assert score_arguments([(gold, guess)]) == {"f1": 0.5, "precision": 0.5, "recall": 0.5}
    lone = ["B-C-A0", "B-V", "B-C-V", "O", "O", "O"]
    assert join_parts(lone) == {("C-A0", ((0, 0),))}  # C-V is a part of the verb
    assert score_arguments([(gold, lone)])["f1"] == 0
    assert score_arguments([(gold[:2], ["O", "O"])]) == {"f1": 0, "precision": 0, "recall": 0}


def test_words_alone_do_not_say_which_one_is_the_predicate(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(TEXT)
    with pytest.raises(ValueError, match="which word is the predicate"):
        make_task("srl", tmp_path).parse("Anna likes old films", 1)
