"""What `plmctl eval` asks of models that no run says anything about."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plmctl.commands.eval import Evaluate
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks.trained_texts import keep_trained, leave_trained
from plmctl.use.answering import warn_of_bundles, warn_of_trained
from plmctl.use.asked_task import Destination, ask_all, choose_out, choose_task, write_split


def model(trained_on: object = None, run: Path | None = None) -> Any:
    own = {"path": str(trained_on)} if trained_on else {}
    folder = Path("hub/tickets")
    source = SimpleNamespace(run=run, folder=folder, home=run or folder, own_task=lambda: own)
    return SimpleNamespace(own_task=lambda: own, source=source)


def asked(file: Path, *words: str) -> tuple[Any, Any]:
    """The settings that an evaluation of a file names, and its task."""
    given = ["task=classification", f"task.path={file}", "checkpoint=x", *words]
    task = build(config.compose("finetune", None, given).task, {}, path="task")
    known = Provenance("eval", overrides=tuple(given))
    return known.keys, task


def ask(keys: Any, task: Any, loaded: Any) -> str:
    return ask_all(task, loaded.source, keys, split="dev", checkpoint="hub/tickets")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [f"text {n}\t{'ab'[n % 2]}" for n in range(40)]
    (tmp_path / "all.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return tmp_path / "all.tsv"


def test_of_a_file_that_may_have_been_trained_on_it_is_said_that_all_is_scored(file: Path) -> None:
    keys, task = asked(file)
    assert ask(keys, task, model()) == (
        f"all of {file} is scored: hub/tickets does not say what it was trained on; if that was"
        " this file, task.dev_share=0.1 scores what plmctl finetune held out"
    )
    assert len(task.read("dev")) == 40
    keys, task = asked(file, "task.dev_share=0.1")
    assert ask(keys, task, model()) == ""
    assert len(task.read("dev")) == 4


def test_a_run_says_what_it_was_trained_on(file: Path) -> None:
    keys, task = asked(file)
    assert ask(keys, task, model(trained_on=file)) == ""
    assert len(task.read("dev")) == 4
    keys, task = asked(file)
    told = ask(keys, task, model(trained_on="another.tsv"))  # a run of an earlier version
    assert "another.tsv is its file, without hashes of texts; if that was this file" in told
    assert len(task.read("dev")) == 40


def test_the_texts_of_a_run_say_which_file_it_split(file: Path, tmp_path: Path) -> None:
    """By content: a copy in another order is that file, one without a text of it is not."""
    task, run = asked(file)[1], tmp_path / "run"
    run.mkdir()
    keep_trained(run, task.read("train"))
    learnt = {each.fields["text"] for each in task.read("train")}
    names, *rows = file.read_text().splitlines()
    lost = next(n for n, row in enumerate(rows) if row.partition("\t")[0] in learnt)
    other = tmp_path / "copy.tsv"
    for lines, scored in ((rows[::-1], 4), ([*rows[:lost], *rows[lost + 1 :]], 39)):
        other.write_text("\n".join([names, *lines]) + "\n")
        keys, task = asked(other)
        loaded = model("all.tsv", run)
        assert ("is another file than hub/tickets was trained on" in ask(keys, task, loaded)) == (
            scored > 4
        )
        dev = task.read("dev")
        seen = sum(each.fields["text"] in learnt for each in dev)
        assert (len(dev), seen) == (scored, 0 if scored == 4 else 35)
        told = warn_of_trained(run, dev)
        assert told.value == seen
        assert told.text.startswith(f"{seen} of 39 rows have a text that" if seen else "")


def test_rows_that_training_has_seen_are_left_out(file: Path, tmp_path: Path) -> None:
    rows = asked(file, "task.dev_share=0")[1].read("train")
    with pytest.raises(ConfigError, match=r"keeps no hashes[^\n]*\n  fix: only=null$"):
        leave_trained(tmp_path, rows)
    keep_trained(tmp_path, rows[10:])
    rest, told = leave_trained(tmp_path, rows)
    assert rest == rows[:10]
    assert told == f"10 of 40 rows are scored: {tmp_path} was trained on the other 30"
    with pytest.raises(DataError, match=f"{file}: all of these 30 rows were trained on by"):
        leave_trained(tmp_path, rows[10:])


def test_rows_of_bundles_that_training_has_seen_are_left_out(file: Path, tmp_path: Path) -> None:
    """Rows 10 to 39 are trained on, of customers 2 to 7; rows 10 to 14 stand here again."""
    rows = asked(file, "task.dev_share=0")[1].read("train")
    rows = [replace(row, bundle=f"K{n // 5}") for n, row in enumerate(rows)]
    keep_trained(tmp_path, rows[10:], bundled=True)
    other = [replace(row, fields={"text": f"new {row.id}"}) for row in rows]
    scored = [*rows[10:15], *other[:8], *other[12:23], replace(other[0], bundle="")]
    rest, told = leave_trained(tmp_path, scored)
    assert rest == [*other[:8], scored[-1]]
    assert told == (
        f"9 of 25 rows are scored: {tmp_path} was trained on the other 5 and on bundles of 11 more"
    )
    said = warn_of_bundles(tmp_path, scored)
    assert said.value == 11
    assert said.text.startswith(f"11 rows of 3 bundles that {tmp_path} was trained on, too")
    assert warn_of_bundles(tmp_path, other[:8]).text == ""
    bare = [replace(row, bundle="") for row in other]
    assert "bundles are not known, as they have no column" in leave_trained(tmp_path, bare)[1]
    (old := tmp_path / "old").mkdir()
    keep_trained(old, rows[10:])  # a run without a column of bundles
    assert "does not say which bundles" in leave_trained(old, other)[1]


def test_answers_to_a_split_are_spelled_as_its_table(tmp_path: Path) -> None:
    table = tmp_path / "all.csv"
    table.write_bytes("\ufefftext;label\r\ngood;a\r\nbad;b\r\n".encode())
    task = asked(table)[1]
    examples = task.splits.whole().read("train")
    answers = [{"id": each.id, "gold": each.label, "guess": "a"} for each in examples]
    out = write_split(Destination(tmp_path / "out.csv"), "dev", examples, answers)
    assert out.read_bytes().startswith("\ufefftext;id;gold;guess\r\ngood;0;a;a\r\n".encode())


def test_evaluations_of_models_without_a_run_have_a_folder_each() -> None:
    assert choose_out(model().source, None) == Path("eval/tickets")
    assert choose_out(model(run=Path("runs/x")).source, None) == Path("runs/x/eval")
    assert choose_out(model().source, "mine") == Path("mine")


def test_what_training_decided_is_not_changed_in_evaluation() -> None:
    target = "plmctl.tasks.classification.Classification"
    own = {"_target_": target, "name": "first", "max_length": 32, "source_template": None}
    source: Any = SimpleNamespace(own_task=lambda: own, plugins=(), config={})

    def choose(name: str, **settings: Any) -> Any:
        given = {f"task.{key}" for key in settings}
        return choose_task(source, {**own, "name": name, **settings}, given, checkpoint="x")

    assert choose("first", max_length=32)["max_length"] == 32
    for name in ("first", "second"):
        with pytest.raises(ConfigError, match=r"task.max_length=64: 32, which training decided"):
            choose(name, max_length=64)
    with pytest.raises(ConfigError, match=r"task.source_template='a': null, which"):
        choose("first", source_template="a")


def test_other_files_have_the_table_of_labels_of_the_cleaned_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts, new = tmp_path / "parts", tmp_path / "week2.csv"
    (parts / "made.json").parent.mkdir()
    words = ["task.columns.label=queue", "task.reader.merged_by=labels.csv"]
    (parts / "made.json").write_text(json.dumps({"settings": words}))
    reader = {"merged_by": None}
    target = "plmctl.tasks.classification.Classification"
    own = {"_target_": target, "name": "first", "path": str(parts), "reader": reader}
    source: Any = SimpleNamespace(own_task=lambda: own, plugins=(), config={})

    def choose(path: Path, *given: str) -> Any:
        asked = {**own, "path": str(path)}
        found = choose_task(source, asked, {"task.path", *given}, checkpoint="x")
        return found["reader"]["merged_by"]

    assert choose(new) is None
    assert "labels.csv: the parts" in caplog.text
    assert "there is no such file" in caplog.text
    (tmp_path / "labels.csv").write_text("Billing,billing\n")
    assert choose(new) == str(tmp_path / "labels.csv")
    assert choose(new, "task.reader.merged_by") is None
    assert choose(parts) is None  # their labels are merged already


def test_a_run_of_an_earlier_version_gets_the_submission_of_its_task_today() -> None:
    node = dict(
        config.compose("finetune", None, ["task=tnews", "task.path=x", "checkpoint=x"]).task
    )
    board = node.pop("submission")
    loaded: Any = SimpleNamespace(own_task=lambda: node, plugins=(), config={})
    command: Any = Evaluate(checkpoint="x", provenance=Provenance("eval", submission=True))
    asked = command._find_board(loaded)
    found = choose_task(loaded, asked, (), checkpoint="x")
    assert found["submission"] == dict(board)
    assert found["path"] == "x"
    own = {**node, "submission": {"test": "mine.json"}}
    loaded.own_task = lambda: own
    assert choose_task(loaded, asked, (), checkpoint="x")["submission"] == own["submission"]
    node["name"] = "of_nobody"
    loaded.own_task = lambda: node
    assert command._find_board(loaded) is None
