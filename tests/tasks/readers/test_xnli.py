"""XNLI: languages of training and of dev, the layouts of its files and of MNLI."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from plmctl.core.errors import DataError
from plmctl.tasks.check import check_task
from tests.tasks.superglue_files import XNLI_COLUMNS as COLUMNS
from tests.tasks.superglue_files import make_task


def row(language: str, label: str, number: int) -> str:
    cells = [language, label, *[""] * 4, f'{language} "one"', f"{language} two", "1", str(number)]
    return "\t".join([*cells, "facetoface", *[label] * 5, "x", "y", "True"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """XNLI-1.0, XNLI-MT-1.0 and MNLI beside each other."""
    dev = [COLUMNS, row("de", "neutral", 1), row("en", "entailment", 1)]
    files = {
        "XNLI-1.0/xnli.dev.tsv": dev,
        "XNLI-1.0/xnli.test.tsv": [*dev, row("de", "contradiction", 2)],
        "XNLI-MT-1.0/multinli/multinli.train.de.tsv": [
            "premise\thypo\tlabel",
            "Es regnet .\tEs ist trocken .\tcontradictory",
        ],
        "MNLI/train.tsv": [
            "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
            "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
            "0\t1\t1n\tfiction\t\t\t\t\tIt rains.\tIt is dry.\tneutral\tneutral",
        ],
    }
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def test_zero_shot(folder: Path) -> None:
    task = make_task("xnli", folder)
    (train,) = task.read("train")
    assert train.fields == {"text": "It rains.", "text2": "It is dry."}
    assert (train.label, train.slices) == ("neutral", ("en",))
    dev = task.read("dev")
    assert [(e.slices, e.label) for e in dev] == [(("de",), "neutral"), (("en",), "entailment")]
    assert dev[0].fields == {"text": 'de "one"', "text2": "de two"}
    assert len(task.read("test")) == 3
    task.fit_labels(train for train in dev)


def test_languages(folder: Path) -> None:
    words = ["task.reader.train=[de,en]", "task.reader.languages=[de]"]
    task = make_task("xnli", folder, *words)
    train = task.read("train")
    assert [(e.id, e.label, e.slices) for e in train] == [
        ("de-0", "contradiction", ("de",)),
        ("en-0", "neutral", ("en",)),
    ]
    assert [e.slices for e in task.read("dev")] == [("de",)]


def test_files_by_name(folder: Path) -> None:
    named = {"train": f"{folder}/MNLI/train.tsv", "dev": f"{folder}/XNLI-1.0/xnli.dev.tsv"}
    task = make_task("xnli", named, "task.reader.languages=[en]")
    assert (len(task.read("train")), len(task.read("dev"))) == (1, 1)


def test_what_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no file for the split 'train' in 'fr': looked for mult"):
        make_task("xnli", folder, "task.reader.train=[fr]").read("train")
    assert not make_task("xnli", folder, "task.reader.train=[fr]").splits.has("train")
    own = folder / "own"
    own.mkdir()
    with gzip.open(own / "train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write('{"idx": 3, "premise": "a", "hypothesis": "b", "label": 1}\n')
    fix = "task=pair_classification task.columns.text=premise task.columns.text2=hypothesis"
    for task in (make_task("xnli", own), make_task("mnli", own)):
        for read in (lambda task: task.read("train"), lambda task: check_task(task, None)):
            with pytest.raises(DataError, match="has the columns idx, premise,") as error:
                read(task)
            assert str(error.value).endswith(f"fix: {fix}")
    with pytest.raises(
        DataError, match=r"examples in 'dee' \(did you mean 'de'\?\); there are de, en"
    ):
        make_task("xnli", folder, "task.reader.languages=[dee]").read("dev")
    file = folder / "XNLI-1.0" / "xnli.dev.tsv"
    file.write_text("a\tb\nc\td\n")
    with pytest.raises(DataError, match=r"xnli\.dev\.tsv:1: found the columns a, b"):
        make_task("xnli", folder).read("dev")
    file.write_text(f"{COLUMNS}\nde\tneutral\n")
    with pytest.raises(DataError, match=r"dev\.tsv:2: 2 columns where 8 are needed"):
        make_task("xnli", folder).read("dev")
    file.write_text(f"{COLUMNS}\n{row('de', 'perhaps', 1)}\n")
    task = make_task("xnli", folder)
    with pytest.raises(DataError, match=r"dev\.tsv:2.*'perhaps' is none of task.label_names"):
        task.fit_labels(task.read("dev"))
    file.write_bytes(f"{COLUMNS}\n{row('dé', 'neutral', 1)}\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"xnli\.dev\.tsv.*UTF-8"):
        make_task("xnli", folder).read("dev")
