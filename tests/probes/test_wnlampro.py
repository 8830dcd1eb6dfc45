"""WNLaMPro's file, patterns and metrics, by the definitions of its paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.probes.wnlampro import PATTERNS, ProbeEntry, WNLaMPro

LINES = [
    "0\tdev\tunhappy (a,3.1,9)\tantonym\thappy (a,5.0,9000)\tglad (a,4.0,700)",
    "1\ttest\tkumquat (n,2.0,5)\thypernym\tfruit (n,5.1,9999)",
    "2\tdev\tkumquat (n,2.0,10)\thypernym\tfruit (n,5.1,9999)\tplant (n,5.2,9999)",
    "3\tdev\tkumqat (n,0.0,10)\tcorruption\tkumquat (n,2.0,10)",
    "4\tdev\tkumqatt (n,0.0,2)\tcorruption\tkumquat (n,2.0,10)",
    "5\tdev\tred ant (n,0.0,99)\tcohyponym\tant (n,2.0,10)",
    "6\tdev\tapple (n,0.0,100)\thypernym\tfruit (n,2.0,10)",
]


@pytest.fixture
def task(tmp_path: Path) -> WNLaMPro:
    file = tmp_path / "WNLaMPro.txt"
    file.write_text("\n".join(LINES), encoding="utf-8")
    return WNLaMPro(path=str(file))


def test_entries(task):
    entries = task.read("dev")
    # the corruption of a word that stands ten times is left out
    assert [entry.word for entry in entries] == [
        "unhappy",
        "kumquat",
        "kumqatt",
        "red ant",
        "apple",
    ]
    assert entries[1] == ProbeEntry("kumquat", 10, "hypernym", frozenset({"fruit", "plant"}))
    assert [task.group(entry.count) for entry in entries] == [
        *("rare", "medium", "rare", "medium", "frequent")
    ]
    assert [entry.count for entry in task.read("test")] == [5]


def test_patterns(task):
    assert {name: len(own) for name, own in PATTERNS.items()} == {
        **{"antonym": 5, "hypernym": 8, "cohyponym": 2, "corruption": 2}
    }
    unhappy, kumquat, wrong, ant, apple = task.read("dev")
    assert task.patterns(unhappy) == [
        "unhappy is the opposite of [MASK]",
        "unhappy is not [MASK]",
        "someone who is unhappy is not [MASK]",
        "something that is unhappy is not [MASK]",
        '" unhappy " is the opposite of " [MASK] "',
    ]
    assert task.patterns(kumquat)[:4] == [
        *("kumquat is a [MASK]", "kumquat is an [MASK]"),
        *("a kumquat is a [MASK]", "a kumquat is an [MASK]"),
    ]
    assert task.patterns(apple)[-1] == "an apple is a kind of [MASK]"
    assert task.patterns(ant)[0] == "red ant and [MASK]"
    assert task.patterns(wrong)[1] == '" kumqatt " . did you mean " [MASK] " ?'
    every = [text for entry in task.read("dev") for text in task.patterns(entry)]
    assert all(text.count("[MASK]") == 1 for text in every)


def test_scores(task):
    """Worked: the best pattern counts, for ranks and for precisions."""
    entries = [
        ProbeEntry("a", 3, "antonym", frozenset({"x", "y"})),
        ProbeEntry("b", 50, "cohyponym", frozenset({"x"})),
        ProbeEntry("c", 9, "antonym", frozenset({"z"})),
    ]
    predicted = [
        [["n", "x", "y", "n"], ["n", "n", "n", "x"]],
        [["x", "n"], ["n", "x"]],
        [["n"] * 100, ["n"] * 100],
    ]
    scores = WNLaMPro(at=(1, 3, 100)).score(entries, predicted)
    assert scores["mrr"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert scores["mrr/rare"] == scores["mrr/rare/antonym"] == pytest.approx(1 / 4)
    assert scores["mrr/medium"] == 1
    assert scores["p@1"] == pytest.approx(1 / 3)
    assert scores["p@3/rare"] == pytest.approx(2 / 3 / 2)
    assert scores["p@100/medium"] == pytest.approx(1 / 100)
    assert (scores["entries/rare"], scores["entries/medium"]) == (2, 1)
    assert "entries/frequent" not in scores


def test_mistakes(tmp_path, task):
    file = tmp_path / "wrong.tsv"
    for line, message in (
        ("0\tdev\tunhappy (a,3.1,9)\topposite\thappy (a,5.0,9)", "not an id"),
        ("0\tdev\tunhappy\tantonym\thappy (a,5.0,9)", "'unhappy' is not written"),
    ):
        file.write_text(f"{LINES[0]}\n{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match=message) as error:
            WNLaMPro(path=str(file)).read("dev")
        assert "wrong.tsv:2" in str(error.value)
    with pytest.raises(DataError, match="no such file"):
        WNLaMPro(path=str(tmp_path / "none")).read("dev")
    with pytest.raises(ConfigError, match="two rising counts"):
        WNLaMPro(bounds=(100, 10))
    with pytest.raises(ConfigError, match="at most task"):
        WNLaMPro(top=5)
