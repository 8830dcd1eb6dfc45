"""A misspelt name in task.label_names, which the training data shows."""

from __future__ import annotations

import pytest

from plmctl.core.batch import IGNORE
from plmctl.core.errors import DataError
from plmctl.tasks.answers.classes import ClassAnswer
from plmctl.tasks.answers.label_ids import find_new, label_ids
from plmctl.tasks.record import Example
from plmctl.tasks.scores.labels import LabelScores

FOUND = [("other", "x.tsv:2"), ("same", "x.tsv:3")]


@pytest.mark.parametrize("names", [["other", "sam"], ["sme", "other"]])
def test_it_is_named_with_the_setting_and_a_fix_that_works(names: list[str]) -> None:
    with pytest.raises(DataError) as raised:
        label_ids(FOUND, names, learned=False)
    said, _, fix = str(raised.value).partition("\n  fix: 'task.label_names=")
    assert said.startswith("x.tsv:3: label 'same' is none of the names in task.label_names")
    mended = fix.strip("[]'").split(",")
    assert label_ids(FOUND, mended, learned=False) == [mended.index("other"), mended.index("same")]


def test_names_that_training_shows_say_so() -> None:
    with pytest.raises(DataError, match="'same' was never seen in training"):
        label_ids(FOUND, ["other", "sam"], learned=True)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["7", "119"], [str(number) for number in range(119)]),
        (["news_story", "news_culture"], ["100", "101"]),
        (["wrong", "right"], ["good", "bad"]),  # in which order these are rows is not known
    ],
)
def test_no_order_of_names_is_guessed(labels: list[str], names: list[str]) -> None:
    with pytest.raises(DataError, match="known: ") as raised:
        label_ids([(label, "x.json:1") for label in labels], names, learned=False)
    assert "did you mean" not in str(raised.value)
    assert "task.label_names=" not in str(raised.value)


def test_scored_rows_of_a_label_that_the_model_lacks_count_as_wrong() -> None:
    """macro F1 of scikit-learn with labels=union: (1 + 2/3 + 0) / 3."""
    names = ["billing", "shipping"]
    labels = ["billing", "returns", "shipping", "returns"]
    rows = [Example("", {"text": "x"}, label, f"a.csv:{n}") for n, label in enumerate(labels)]
    answer = ClassAnswer()
    with pytest.raises(DataError, match="label 'returns' is none of"):
        answer.number(rows[:2], names)
    answer.admit(rows, names)
    assert answer.number(rows, names)["class"].tolist() == [0, IGNORE, 1, IGNORE]
    told = "2 of 4 rows have a label that the model lacks: 'returns'; they count as wrong"
    assert answer.remarks == [f"{told}, the loss lacks them"]
    guesses = ["billing", "shipping", "shipping"]
    pairs = [{"gold": g, "guess": p} for g, p in zip(labels[:3], guesses, strict=True)]
    known = LabelScores()(pairs, ["macro_f1", "accuracy"])
    assert known["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert known["accuracy"] == pytest.approx(2 / 3)
    answer.admit(rows[:1], names)  # those of other rows are known no more
    assert answer.remarks == []


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["billing", "shiping"], "did you mean 'shipping'"),
        (["billing", "Shipping"], "in case, spaces, - or _ alone"),
        (["0", "returns"], "label '0'"),  # no row has a known one: another column, or other labels
    ],
)
def test_a_label_that_looks_like_a_mistake_is_none_that_the_model_lacks(
    labels: list[str], words: str
) -> None:
    names = ["billing", "shipping"]
    assert find_new(labels, names) == {}
    with pytest.raises(DataError, match=words):
        label_ids([(label, "a.csv:1") for label in labels], names, missed=find_new(labels, names))


def test_some_misspelt_labels_have_a_table_that_mends_them() -> None:
    found = [(label, "a.csv:1") for label in ("billing", "shiping", "shipping")]
    told = r"'shiping' is none of .*did you mean 'shipping'.*shiping,shipping >> labels.csv  # then"
    with pytest.raises(DataError, match=f"(?s){told} task.reader.merged_by=labels.csv"):
        label_ids(found, ["billing", "shipping"], merged=True)
