"""The matrix of tasks, backbones and strategies: what runs, what is refused, what fails, and that
a second call tries nothing again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import task_matrix
from tests.task_matrix import Cell, Matrix, draw, summarize
from tests.task_samples import WRITERS, find_samples, list_tasks

TASKS = ["cola", "translation"]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    made = Matrix(tmp_path_factory.mktemp("matrix"), TASKS)
    made.try_cells(TASKS, ["bert"], ["full", "gradual"])
    return made


@pytest.mark.slow  # test_head_matrix.py trains tasks, the next test runs a cell
def test_cells_run_or_are_refused_with_a_sentence(matrix: Matrix) -> None:
    cells = {key: cell.state for key, cell in matrix.cells.items()}
    assert cells == {
        (task, "bert", strategy): state
        for task, state in (("cola", "runs"), ("translation", "refused"))
        for strategy in ("full", "gradual")
    }
    assert matrix.cells["cola", "bert", "full"].said.startswith("matthews=")
    assert "needs a model that writes" in matrix.cells["translation", "bert", "full"].said


def test_a_second_call_goes_on_where_the_first_was(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    def perform(spec: Any) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(task_matrix, "perform", perform)
    again = Matrix(matrix.folder, TASKS)
    assert again.cells == matrix.cells
    again.try_cells(["cola"], ["bert"], ["full", "frozen"])
    found = again.cells["cola", "bert", "frozen"]
    assert (found.state, found.said.splitlines()[-1]) == ("FAILED", "KeyError: 'broken'")
    assert again.write() == "5 cells: 2 runs, 2 refused, 1 FAILED, 66.7% of those asked run"
    assert len(json.loads((matrix.folder / "matrix.json").read_text())) == 5
    again.file.write_text(again.file.read_text().rpartition('{"task": "cola"')[0])


def test_a_table_for_each_strategy() -> None:
    cells = [
        Cell("cola", "bert", "full", "runs", "matthews=0"),
        Cell("comet", "bert", "full", "refused", "it does not write"),
        Cell("comet", "elmo", "full", "refused", "it does not write"),
    ]
    page = draw(cells)
    assert "## full\n\n| task | bert | elmo |\n|---|---|---|\n| `cola` | matthews=0 |  |" in page
    assert "| `comet` | refused (1) | refused (1) |" in page
    assert page.endswith("1. it does not write\n")
    assert summarize([]) == "0 cells: 0 runs, 0 refused, 0 FAILED"


def test_samples_are_of_tasks_that_there_are(tmp_path: Path) -> None:
    assert set(WRITERS) <= set(list_tasks())
    table, case, none = "stsb", "squad_v2", "kg_bert"  # of settings, of the readers' samples
    found = find_samples(tmp_path, [table, case, none])
    assert set(found) == {table, case}
    lines = (tmp_path / table / "train.tsv").read_text().splitlines()
    assert [len(line.split("\t")) for line in lines] == [10] * 9
    assert [line.split("\t")[-1] for line in lines[1:4]] == ["0.0", "0.25", "0.5"]
    assert "squad.json" in found[case].words[0]
