"""A table with semicolons between its cells, as programs of many countries write it, and labels
with commas, quotes and semicolons in them: fine-tuning, predictions, and what compares them.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import plmctl
from plmctl.cli.app import make_app
from plmctl.text.tabular import cells_of
from tests.tasks.test_finetune_command import SMALL

LABELS = {'good, "very"': "fine", "bad; or so": "awful", "none, of both": "plain"}
TEXT = 'it is a {} film, and "long"; really'


def write(file: Path, rows: int) -> Path:
    with file.open("w", encoding="utf-8", newline="") as stream:
        out = csv.writer(stream, delimiter=";")
        out.writerow(["text", "label"])
        for n in range(rows):
            label = list(LABELS)[n % 3]
            out.writerow([TEXT.format(LABELS[label]), label])
    return file


def command(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("semicolons")
    write(folder / "train.csv", 60)
    write(folder / "dev.csv", 12)
    few = [*SMALL, "tokenizer.vocab_size=31", "train.epochs=2", "checkpoint=null"]
    words = [f"task.path={folder}", f"run.dir={folder / 'run'}"]
    said = command("finetune", "task=classification", *few, *words)
    assert "train.csv: its cells stand between semicolons" in said
    return folder / "run"


def test_labels_and_texts_stay_as_they_are(run: Path) -> None:
    lines = (run / "predictions/dev.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [json.loads(line) for line in lines]
    assert [row["gold"] for row in kept] == [*LABELS] * 4
    assert [*kept[0]["probabilities"]] == sorted(LABELS)
    (found,) = plmctl.load(run).predict([TEXT.format("awful")])
    assert found["text"] == TEXT.format("awful")
    assert [*found["probabilities"]] == sorted(LABELS)


def test_predictions_stand_beside_the_columns_between_semicolons(run: Path, tmp_path: Path) -> None:
    new, out = write(tmp_path / "new.csv", 6), tmp_path / "out.csv"
    command("eval", f"checkpoint={run}", f"input={new}", f"out={out}")
    (_, names), *rows = cells_of(out)
    shares = [f"probabilities.{label}" for label in sorted(LABELS)]
    assert names == ["text", "label", "id", "guess", *shares]
    assert [cells[:2] for _, cells in rows] == [cells for _, cells in cells_of(new)][1:]
    assert {cells[3] for _, cells in rows} <= {*LABELS}
    assert all(sum(map(float, cells[4:])) == pytest.approx(1, abs=1e-4) for _, cells in rows)
    with out.open(encoding="utf-8", newline="") as stream:  # as other programs read it
        assert [*csv.reader(stream, delimiter=";")] == [names, *(cells for _, cells in rows)]
    # what was written is a table of labels again, in the order of the file
    task = [f"task.path={out}", "task.columns.label=guess", f"out={tmp_path / 'again'}"]
    said = command("eval", f"checkpoint={run}", *task, "--json").splitlines()[-1]
    assert json.loads(said)["metrics"]["dev"]["accuracy"] == 1


def test_runs_are_compared(run: Path) -> None:
    said = command("compare", str(run), str(run))
    assert "12 examples, scored as task classification" in said
    assert re.search(r"accuracy +│ (0\.\d+|1\.0000) │ \1 │ \+0\.0000", said)
