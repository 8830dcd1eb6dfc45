"""A score no better than that of models without pretraining is said in plain words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plmctl.config.build import build
from plmctl.report.card import make_card
from plmctl.report.panels.results import panel
from plmctl.report.subject import find_subject
from plmctl.storage.atomic import write_json
from plmctl.tasks.linear_model import load_linear
from plmctl.tasks.predictions import write_predictions
from plmctl.tasks.scores.below import (
    FILE,
    UNBEATEN,
    describe_one_answer,
    describe_read,
    find_run,
    folder_of,
    list_choices,
    list_unbeaten,
    list_unscored,
)
from plmctl.tasks.trained_texts import keep_trained
from plmctl.use import simple_models
from plmctl.use.answering import AnsweredSplit
from plmctl.use.predict import ScoreTable, Told, tell_numbers
from plmctl.use.simple_models import compare_simple
from tests.report import fabricated

SIMPLE = {"dev": {"most frequent": {"accuracy": 0.5}, "words": {"accuracy": 0.8}}}


@pytest.mark.parametrize(
    ("key", "golds", "guesses", "line"),
    [
        ("gold", ["a", "b"], ["a", "a"], "gives the answer 'a' to all 2 rows"),
        ("gold", ["a", "b"], ["a", "b"], ""),
        ("gold", ["a", "a"], ["a", "a"], ""),  # nothing else was to be answered
        ("gold", [1.5, 2.5], [2.0, 2.0], "gives the answer '2.0' to all 2 rows"),
        ("golds", [["a"], ["b"]], ["", ""], "gives the answer '' to all 2 rows"),
        ("gold", [["O"], ["O", "B"]], [["O"], ["O", "O"]], ""),
        ("gold", ["a", "b"], ["x" * 50] * 2, f"gives the answer '{'x' * 40}...' to all 2 rows"),
        ("gold", [], [], ""),
    ],
)
def test_one_answer_to_all_is_named(key: str, golds: Any, guesses: Any, line: str) -> None:
    rows = [{key: gold, "guess": guess} for gold, guess in zip(golds, guesses, strict=True)]
    assert describe_one_answer(rows) == line
    assert not describe_one_answer([{key: gold} for gold in golds])


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (0.4, ["most frequent 0.5000", "words 0.8000"]),
        (0.7, ["words 0.8000"]),
        (0.5, ["words 0.8000"]),  # the equal one is not better
        (0.8, ["words 0.8000"]),
        (0.9, []),
    ],
)
def test_models_without_pretraining_that_are_better_are_named(
    value: float, named: list[str]
) -> None:
    lines = list_unbeaten(
        {"dev": {"accuracy": value}, "test": {"accuracy": 0.0}}, SIMPLE, "accuracy"
    )
    assert len(lines) == bool(named)
    for name in ("most frequent 0.5000", "words 0.8000"):
        assert any(name in line for line in lines) is (name in named)


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.0123, "is worse than without pretraining (words 0.8000, p 0.0123)|answers better"),
        (0.453, "is below that without pretraining (words 0.8000, p 0.4530)|not distinguishable"),
        (None, "is no better than without pretraining (words 0.8000)|scores better; no test"),
    ],
)
def test_a_better_score_is_worded_by_its_test(p: float | None, said: str) -> None:
    tests = {} if p is None else {"dev": {"words": p}}
    (line,) = list_unbeaten({"dev": {"accuracy": 0.7}}, SIMPLE, "accuracy", tests=tests)
    assert all(part in line for part in said.split("|"))


@pytest.mark.parametrize(
    ("ps", "said"),
    [
        ([0.021, 0.4307, 0.0001], "is worse than|2 p 0.0210|; by Holm for 3 .*p is 0.0420)"),
        ([0.021, 0.4307, 0.04], "is below that|2 p 0.0210|p is 0.0630)|not distinguishable"),
        ([0.021, 0.06, None], "is worse than|by Holm for 2 simple models, the least p is 0.0420"),
    ],
)
def test_one_of_several_models_is_better_by_a_corrected_test(
    ps: list[float | None], said: str
) -> None:
    """The third model is worse: its test belongs to the family."""
    scores = {"words": 0.8, "pairs": 0.7, "most frequent": 0.1}
    simple = {"dev": {name: {"accuracy": value} for name, value in scores.items()}}
    tests = {"dev": {name: p for name, p in zip(scores, ps, strict=True) if p is not None}}
    (line,) = list_unbeaten({"dev": {"accuracy": 0.6}}, simple, "accuracy", tests=tests)
    for part in said.replace("2 p", "words 0.8000, p").split("|"):
        assert re.search(re.escape(part).replace(r"\.\*", ".*"), line), line


@pytest.mark.parametrize("value", [0.908613, 0.9086134453781513])
def test_equal_scores_are_no_better_and_not_worse(value: float) -> None:
    """A file has six digits of a score."""
    simple = {"dev": {"words": {"accuracy": 0.9086134453781513}}}
    (line,) = list_unbeaten({"dev": {"accuracy": value}}, simple, "accuracy")
    assert "is no better than without pretraining (words 0.9086)" in line
    assert "worse" not in line
    assert "as well" in line


def test_less_is_better_of_a_loss() -> None:
    simple = {"dev": {"words": {"hamming_loss": 0.2}}}
    assert list_unbeaten({"dev": {"hamming_loss": 0.1}}, simple, "hamming_loss") == []
    assert len(list_unbeaten({"dev": {"hamming_loss": 0.3}}, simple, "hamming_loss")) == 1
    assert list_unbeaten({"dev": {"f1": None}}, {"dev": {"words": {"f1": 1.0}}}, "f1") == []


def test_a_split_that_chose_is_told_of_one_that_did_not() -> None:
    result = {"chosen_on": {"dev": 9}, "metrics": {"dev": {}}}
    assert "a test split (a file, or task.test_share=0.2) has no part" in list_choices(result)[0]
    (line,) = list_choices({**result, "metrics": {"dev": {}, "test": {}}})
    assert line.endswith("a little high; test has no part in the choice")


def test_pages_and_cards_say_it(tmp_path: Path) -> None:
    task = {"name": "x", "metrics": ["accuracy"]}
    folder = fabricated.tuned(tmp_path / "r", task, {"dev": {"accuracy": 0.6, "loss": 1.0}})
    config = {**fabricated.CONFIG, "task": task}
    assert "better than without" not in str(panel(find_subject([folder])))
    (folder / FILE).write_text(json.dumps(SIMPLE))
    assert "no better than without pretraining" in str(panel(find_subject([folder])))
    assert "(words 0.8000)" in make_card(folder, config)


def test_a_simple_model_knows_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    folder = folder_of(run, "words and pairs")
    for other in (folder, run / "checkpoints/step-3"):
        other.mkdir(parents=True)
        assert find_run(other) is None
    write_json(run / FILE, {})
    assert find_run(folder) == run
    assert find_run(run / "checkpoints/step-3") is None
    monkeypatch.chdir(folder.parent)
    assert find_run(Path(folder.name)) == Path("..")


def test_simple_models_are_scored_on_the_test_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has 1 of 4 guesses right; fine and dull tell all: p = 2 (1 / 2)^3."""
    rows = ["text\tlabel", *(f"{word} film\t{word[0]}" for word in ("fine", "dull") * 2)]
    for split in ("train", "test"):
        (tmp_path / f"{split}.tsv").write_text("\n".join(rows))
    node = {"_target_": "plmctl.tasks.classification.Classification", "name": "x"}
    node |= {"columns": {"text": "text", "label": "label"}, "max_length": 8}
    files = {split: [f"{split}.tsv"] for split in ("train", "test")}
    node |= {"reader": {"_target_": "plmctl.tasks.readers.tables.Table", "splits": files}}
    node |= {"metrics": ["accuracy"], "path": str(tmp_path)}
    task = build(node, path="task")
    source: Any = SimpleNamespace(
        run=tmp_path, plugins=(), own_task=lambda: node, config={"task": node}
    )
    monkeypatch.setattr(simple_models, "describe_model", lambda *_: {})
    write_json(tmp_path / FILE, {"dev": {}})
    examples = task.read("test")
    wrong = {"f": "d", "d": "f"}
    guesses = [
        {"id": each.id, "gold": gold, "guess": wrong[gold] if n else gold}
        for n, each in enumerate(examples)
        for gold in [task.gold_of(each)]
    ]
    answered = AnsweredSplit("test", examples, guesses, {"accuracy": 0.25}, {})
    write_predictions(tmp_path / "eval", "test", guesses)
    kept: dict[str, Any] = {"kept": tmp_path / "eval/test.jsonl", "own": True}
    assert compare_simple(source, task, answered, **kept) == {}  # trained on no known texts
    assert list_unscored({"dev": {}, "test": {}}, json.loads((tmp_path / FILE).read_text()))
    keep_trained(tmp_path, task.read("train"))
    told = tell_numbers(compare_simple(source, task, answered, **kept))
    assert "words 1.0000, p 0.2500" in told["remarks"][UNBEATEN]
    scores = json.loads((tmp_path / FILE).read_text())
    assert scores["test"]["words"] == {"accuracy": 1.0}
    assert not list_unscored({"dev": {}, "test": {}}, scores)
    assert (tmp_path / "baselines/words/test.jsonl").is_file()
    assert load_linear(tmp_path / "baselines/words")[1] == {"task": node}
    task.label_names = ["d", "f"]
    other: dict[str, Any] = {"kept": tmp_path / "eval/other.jsonl", "own": False}
    told = tell_numbers(compare_simple(source, task, replace(answered, name="other"), **other))
    assert "other: accuracy 0.2500" in told["remarks"][UNBEATEN]
    assert "words 1.0000, p 0.2500" in told["remarks"][UNBEATEN]
    unlabelled = replace(answered, name="other", metrics={})
    assert not compare_simple(source, task, unlabelled, **other)


def test_eval_has_it_among_the_remarks_of_json(tmp_path: Path) -> None:
    write_json(tmp_path / FILE, SIMPLE)
    write_json(tmp_path / "result.json", {"examples": {"dev": 2}})
    source: Any = SimpleNamespace(run=tmp_path)
    task: Any = SimpleNamespace(
        metrics=["accuracy"], directions=SimpleNamespace(lower=[]), score=None, label_names=None
    )
    answered = AnsweredSplit("dev", [], [{}, {}], {"accuracy": 0.6}, {})
    kept = tmp_path / "eval/dev.jsonl"
    assert not compare_simple(source, task, answered, kept, own=False)  # dev of other files
    told = tell_numbers(compare_simple(source, task, answered, kept, own=True))
    assert told[UNBEATEN] == 1
    assert "(words 0.8000)" in told["remarks"][UNBEATEN]


def test_facts_of_a_table_are_numbers_or_remarks(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"file": "new.csv", "decision": Told("unsure", {"sure": 0.123456789})}
    facts |= {"loss": Told("of all rows"), "log loss": Told("0.5", 0.5)}
    table = ScoreTable("t", {"dev": {"accuracy": 0.5}}, facts, called={"dev": "new"})
    table.show(as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert said["decision"] == {"sure": 0.123457}
    assert (said["file"], said["log loss"], said["metrics"]) == (
        "new.csv",
        0.5,
        {"dev": {"accuracy": 0.5}},
    )
    assert "loss" not in said
    assert said["remarks"]["loss"] == "of all rows"
    table.show(as_json=False)
    shown = capsys.readouterr().out
    assert " new " in shown
    assert " dev " not in shown


def test_what_both_have_read_is_said_and_called_the_same_only_where_it_is() -> None:
    def spell(simple: int, tuned: int) -> str:
        return describe_read({"simple models": simple, "fine-tuning": tuned, "all": 30_000})

    assert describe_read(None) == describe_read({}) == ""
    assert spell(10_000, 1280) == (
        " (simple models read 10,000 of 30,000 training examples, the fine-tuning 1,280)"
    )
    assert "both read the same 30,000 training examples" in spell(30_000, 30_000)
    assert "the same" not in spell(10_000, 10_000)
    read = {"simple models": 10_000, "fine-tuning": 1280, "all": 30_000}
    (line,) = list_unbeaten({"dev": {"accuracy": 0.7}}, SIMPLE, "accuracy", read=read)
    assert line.endswith("the fine-tuning 1,280)")
