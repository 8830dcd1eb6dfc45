"""GLUE's and SuperGLUE's diagnostics: the gold file, the phenomena as slices."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.scores.labels import score_labels
from plmctl.tasks.scores.metrics import matthews
from tests.tasks.superglue_files import DIAGNOSTIC_COLUMNS as HEADER
from tests.tasks.superglue_files import make_task, write

ROWS = (
    '\t\tNegation\t\tArtificial\tThe "cat" sat.\tThe cat did not sit.\tcontradiction',
    "Quantifiers;Lexical Entailment\t\tUpward monotone\t\tNews\tMany ran.\tSome ran.\tentailment",
    "\tCoordination\t\tWorld knowledge\tNews\tA and B.\tB.\tneutral",
)


def write_gold(folder: Path, *rows: str, header: str = HEADER) -> None:
    (folder / "diagnostic-full.tsv").write_text("\n".join([header, *rows]) + "\n")


def test_the_gold_file(tmp_path: Path) -> None:
    write_gold(tmp_path, *ROWS)
    examples = make_task("ax", tmp_path).read("dev")
    assert [e.label for e in examples] == ["contradiction", "entailment", "neutral"]
    assert examples[0].fields == {"text": 'The "cat" sat.', "text2": "The cat did not sit."}
    assert [e.slices for e in examples] == [
        ("Logic", "Logic: Negation"),
        (
            "Lexical Semantics",
            "Lexical Semantics: Quantifiers",
            "Lexical Semantics: Lexical Entailment",
            "Logic",
            "Logic: Upward monotone",
        ),
        (
            "Predicate-Argument Structure",
            "Predicate-Argument Structure: Coordination",
            "Knowledge",
            "Knowledge: World knowledge",
        ),
    ]


def test_the_file_without_labels(tmp_path: Path) -> None:
    (tmp_path / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\tA.\tB.\n")
    task = make_task("ax", tmp_path)
    (example,) = task.read("test")
    assert (example.id, example.label, example.slices) == ("0", None, ())
    assert not task.splits.has("dev")
    assert not task.splits.has("train")


def test_matthews_of_each_phenomenon() -> None:
    gold, guess = list("ennceec"), list("enncnec")
    kinds = [["Logic"], ["Logic"], ["Logic"], ["Logic", "Knowledge"], ["Knowledge"], [], []]
    rows = [
        {"gold": g, "guess": p, "slices": own} for g, p, own in zip(gold, guess, kinds, strict=True)
    ]
    found = score_labels(rows, ["matthews", "accuracy"])
    assert found["matthews"] == pytest.approx(matthews(gold, guess))
    assert found["matthews/Logic"] == pytest.approx(matthews(gold[:4], guess[:4]))
    # c, e guessed as c, n: R_3 = (1 * 2 - 1) / sqrt((4 - 2) (4 - 2))
    assert found["matthews/Knowledge"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (ROWS, HEADER.replace("Logic", "Reason"), r"tsv:1: no column Logic"),
        (ROWS, HEADER.replace("Premise", "Text"), "expected column Premise"),
        (("a\tb",), HEADER, r"tsv:2: 2 columns where 8 are needed"),
        ((ROWS[0].rpartition("\t")[0] + "\t",), HEADER, r"tsv:2: the label is empty"),
    ],
)
def test_broken_files(tmp_path: Path, rows: tuple[str, ...], header: str, message: str) -> None:
    write_gold(tmp_path, *rows, header=header)
    with pytest.raises(DataError, match=message):
        make_task("ax", tmp_path).read("dev")


def test_broad_coverage(tmp_path: Path) -> None:
    row = {
        "sentence1": "A fell.",
        "sentence2": "A did.",
        "idx": 3,
        "label": "entailment",
        "logic": "Negation;Double negation",
        "lexical-semantics": "Redundancy",
    }
    write(tmp_path / "AX-b" / "AX-b.jsonl", row, {**row, "logic": "", "lexical-semantics": None})
    first, second = make_task("ax_b", tmp_path).read("dev")
    assert first.slices == (
        "Lexical Semantics",
        "Lexical Semantics: Redundancy",
        "Logic",
        "Logic: Negation",
        "Logic: Double negation",
    )
    assert second.slices == ()
    assert (first.id, first.label) == ("3", "entailment")


def test_winogender(tmp_path: Path) -> None:
    rows = [
        {"premise": p, "hypothesis": "h", "label": "entailment", "idx": n, "pair_id": 40}
        for n, p in enumerate(("He left.", "She left."))
    ]
    write(tmp_path / "AX-g.jsonl", *rows)
    task = make_task("ax_g", tmp_path)
    assert [e.bundle for e in task.read("dev")] == ["40", "40"]
    assert task.metrics == ["accuracy", "parity"]
