"""Tags as files spell them: entities are scored by the marks of any spelling, and single words
where there are none; scikit-learn is the oracle.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError, DataError
from plmctl.report.compare import compare
from plmctl.tasks.check import check_task
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.scores.metrics import entities
from tests.tasks.readers.test_schemes import (
    COLUMNS,
    SPLITS,
    draw_spans,
    make_task,
    write,
    write_file,
)

Spell = Callable[[str, str], str]  # the mark and the type of a tag

SPELLINGS: dict[str, tuple[Spell, str]] = {
    "suffix": (lambda mark, kind: f"{kind}-{mark}", "O"),
    "underscore": (lambda mark, kind: f"{mark}_{kind}", "O"),
    "dot": (lambda mark, kind: f"{mark}.{kind}", "O"),
    "suffix and slash": (lambda mark, kind: f"{kind}/{mark}", "OTHER"),
    "colon": (lambda mark, kind: f"{mark}:{kind}", "_"),
    "lower case": (lambda mark, kind: f"{mark.lower()}-{kind}", "o"),
    "zero": (lambda mark, kind: f"{mark}-{kind}", "0"),
}


def draw_files(scheme: str) -> list[list[str]]:
    draw = random.Random(scheme)
    return [write(draw_spans(draw, 9), 9, scheme) for _ in range(20)]


def respell(tags: list[str], spelling: str) -> list[str]:
    spell, outside = SPELLINGS[spelling]
    return [outside if tag == "O" else spell(tag[0], tag[2:]) for tag in tags]


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes", "bmes", "bilou"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_read_as_the_usual_one(
    spelling: str, scheme: str, tmp_path: Path
) -> None:
    plain = draw_files(scheme)
    for name, sentences in (("plain", plain), ("spelled", [respell(t, spelling) for t in plain])):
        (tmp_path / name).mkdir()
        write_file(tmp_path / name, sentences)
    found = {}
    for name in ("plain", "spelled"):
        reader = Columns(splits=SPLITS, scheme="auto")
        file = tmp_path / name / "train.txt"
        found[name] = [example.label for example in reader.read_file(file, COLUMNS)]
    assert found["spelled"] == found["plain"]
    assert "is read as" in reader.notes[str(file)]


def test_types_named_like_marks_and_brackets_are_read(tmp_path: Path) -> None:
    def read(*sentences: list[str], scheme: Any = "auto") -> list[Any]:
        file = write_file(tmp_path, list(sentences))
        return [e.label for e in Columns(splits=SPLITS, scheme=scheme).read_file(file, COLUMNS)]

    assert read(["S-B", "S-I", "O", "E-B"]) == [["B-S", "I-S", "O", "B-E"]]
    # CoNLL-2012's column of names
    brackets = ["(PERSON*", "*)", "*", "(GPE)", "(ORG*", "*", "*)"]
    assert read(brackets) == [["B-PERSON", "I-PERSON", "O", "B-GPE", "B-ORG", "I-ORG", "I-ORG"]]
    assert read(["PER", "PER", "O", "LOC", "PER"], scheme="io") == [
        ["B-PER", "I-PER", "O", "B-LOC", "B-PER"]
    ]
    for bad in (["(A*", "*"], ["(A*", "(B*", "*)"], ["*)"]):  # not matched: left alone
        assert read(bad) == [bad]


def test_a_type_without_a_mark_among_marked_ones_is_told(tmp_path: Path) -> None:
    file = write_file(tmp_path, [["O"], ["B-PER", "I-PER", "LOC"]])
    with pytest.raises(DataError, match=r"train.txt:3: 'LOC' does not say where .* as B-PER does"):
        Columns(splits=SPLITS, scheme="auto").read_file(file, COLUMNS)
    assert Columns(splits=SPLITS, scheme=None).read_file(file, COLUMNS)


@pytest.mark.parametrize(
    "tags",
    [
        ["DET", "NOUN", "VERB", "DET", "ADJ"],  # parts of speech
        ["PER", "PER", "O", "LOC", "O"],  # types alone
        ["1", "0", "0", "2", "1"],  # numbers of classes
        ["N.sg", "V_past", "B", "E", "N.sg"],  # with marks of other kinds in them
    ],
)
def test_tags_without_entities_are_scored_word_by_word(tags: list[str], tmp_path: Path) -> None:
    oracle = pytest.importorskip("sklearn.metrics")
    write_file(tmp_path, [tags, tags[::-1]])
    task = make_task(tmp_path)
    task.fit_labels(task.read("train"))
    assert task.metrics == ["accuracy", "macro_f1"]  # the first chooses the checkpoint
    assert task.decided["metrics"] == task.metrics
    guess = [*tags[1:], tags[0]]
    scores = task.score([{"gold": tags, "guess": guess}])
    assert {name: scores[name] for name in task.metrics} == pytest.approx(
        {
            "accuracy": oracle.accuracy_score(tags, guess),
            "macro_f1": oracle.f1_score(tags, guess, average="macro", zero_division=0),
        }
    )
    note = task.describe_scoring(task.read("train"))
    assert "name no entities: single words are scored" in note
    assert ("task.reader.scheme=io" in note) == ("O" in tags)
    said = check_task(make_task(tmp_path), None)
    assert [each.verdict for each in said.findings if note in each.found] == ["look"]
    with pytest.raises(ConfigError, match=r"name no entities to score\n.*metrics=\[accuracy,macro"):
        make_task(tmp_path, "task.metrics=[f1]").fit_labels(task.read("train"))
    with pytest.raises(ConfigError, match="name no entities to score"):  # as eval builds it
        make_task(tmp_path, "task.metrics=[recall]", f"task.label_names=[{','.join({*tags})}]")


def test_tags_with_entities_keep_their_scores(tmp_path: Path) -> None:
    write_file(tmp_path, [["PER_B", "PER_I", "o"]])
    task = make_task(tmp_path)
    task.fit_labels(task.read("train"))
    assert task.metrics == ["f1", "precision", "recall"]
    assert task.names == ["O", "B-PER", "I-PER"]


def test_a_type_alone_is_not_ignored_by_the_score() -> None:
    assert entities(["PER", "PER", "O", "LOC"]) == {("PER", 0, 1), ("LOC", 3, 3)}
    assert entities(["O", "NN", "B-A"]) == {("NN", 1, 1), ("A", 2, 2)}


def test_names_of_a_published_model_follow_the_spelling(tmp_path: Path) -> None:
    write_file(tmp_path, [["B-PER", "I-PER", "O"]])
    task = make_task(tmp_path, "task.label_names=[PER_I,O,PER_B]")
    task.read("train")
    assert task.names == ["I-PER", "O", "B-PER"]  # in the order of the rows of its head
    task = make_task(tmp_path, "task.label_names=[PER_I,O,PER_B]", "task.reader.scheme=null")
    write_file(tmp_path, [["PER_B", "PER_I", "O"]])
    task.read("train")
    assert task.names == ["PER_I", "O", "PER_B"]


def write_tags(file: Path, gold: list[list[str]], guess: list[list[str]]) -> Path:
    rows = [{"gold": g, "guess": p} for g, p in zip(gold, guess, strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_compared_files_are_scored_by_what_their_tags_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = [["PER-B", "PER-I", "O"], ["LOC-B", "O", "O"]]
    other = [["LOC-B", "LOC-I", "O"], ["LOC-B", "O", "O"]]  # another type
    a, b = (write_tags(tmp_path / f"{n}.jsonl", gold, g) for n, g in (("a", gold), ("b", other)))
    compare(a, b, as_json=True, samples=100)
    found = json.loads(capsys.readouterr().out)
    assert [found["metrics"]["f1"][side] for side in ("first", "second")] == [1.0, 0.5]

    words = [["DET", "NOUN"], ["DET", "VERB"]]
    a, b = (
        write_tags(tmp_path / f"{n}.jsonl", words, g)
        for n, g in (("a", words), ("b", [["DET", "DET"], ["DET", "VERB"]]))
    )
    compare(a, b, as_json=True, samples=100)
    found = json.loads(capsys.readouterr().out)
    assert [*found["metrics"]] == ["accuracy", "macro_f1"]
    assert found["metrics"]["accuracy"]["second"] == 0.75
    with pytest.raises(DataError, match=r"name no entities.*\n.*--as words"):
        compare(a, b, kind="tags", samples=100)


def test_training_says_how_it_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pos").mkdir()
    for name in ("train", "dev"):
        lines = [f"{name} DET\ncat{n} NOUN\n" for n in range(6)]
        Path("pos", f"{name}.txt").write_text("\n".join(lines))
    words = "finetune task=tagging task.path=pos checkpoint=null size=tiny train.epochs=null"
    words += " train.steps=1 train.device=cpu run.dir=r size.width=16 size.num_heads=2"
    result = CliRunner().invoke(make_app(), words.split())
    assert result.exit_code == 0, result.output
    assert "name no entities" in result.output
    scores = json.loads(Path("r/result.json").read_text())["metrics"]["dev"]
    assert {"accuracy", "macro_f1", "majority"} <= {*scores}
    assert "f1" not in scores
    result = CliRunner().invoke(make_app(), ["eval", "checkpoint=r", "--json", "device=cpu"])
    found = json.loads(result.stdout)
    assert "name no entities" in found["remarks"]["scored"]
    assert "f1" not in found["metrics"]["dev"]
