"""A misspelt name in task.label_names, which the training data shows."""

from __future__ import annotations

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.answers.label_ids import label_ids

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
