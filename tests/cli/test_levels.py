"""What commands tell beside their results: `--quiet`, `--verbose`, and Python's `logging`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.command import list_commands, load_command
from plmctl.core import terminal
from plmctl.core.progress import ProgressLine, follow, show_bytes
from plmctl.runs import session
from tests.command import plmctl as command

SILENT = {"help", "docs", "env", "bases ls", "models ls", "recipes ls", "recipes show"}
SILENT |= {"recipes cp"}


def invoke(*words: str) -> Any:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture
def train(tokens_of: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    small = ["size=tiny", "format.max_length=32", "train.steps=1", "train.batch_size=2"]
    data = f"data.path={tokens_of('wordpiece')}"

    def run(*words: str) -> Any:
        return invoke("pretrain", *small, data, f"run.dir={tmp_path / 'run'}", *words)

    return run


def test_a_quiet_training_tells_warnings_alone(train: Callable[..., Any], tmp_path: Path) -> None:
    done = train("--quiet")
    assert done.stdout == ""
    warnings = done.stderr.splitlines()
    known = ("this run has not left", "pairs begin with a text of one sentence", "fix: ")
    assert all(any(each in line for each in known) for line in warnings)
    assert (tmp_path / "run/metrics.jsonl").is_file()
    assert terminal.LOGGER.level == terminal.REMARK


def test_a_verbose_training_tells_what_is_read_and_saved(train: Callable[..., Any]) -> None:
    lines = train("-v").stderr.splitlines()
    for detail in ("composed the settings of plmctl pretrain", "tokens of ", "saved "):
        assert any(f" s: {detail}" in line for line in lines), detail
    assert any(line.startswith("step 1 ") for line in lines)


def test_mistakes_and_results_stay() -> None:
    shown = command("pretrain", "size=tny", "-q", code=2)
    assert "did you mean 'tiny'" in shown
    assert "Parameters" in command("pretrain", "bert", "--dry-run", "-q")
    assert "one of them" in command("pretrain", "-q", "-v", code=2)


def test_every_command_that_talks_can_be_quiet() -> None:
    kinds = [load_command(listed.module) for listed in list_commands().values()]
    found = {kind.about.name for kind in kinds if not kind.about.talks}
    assert found == SILENT


def test_other_programs_take_the_lines_as_they_like(capsys: pytest.CaptureFixture[str]) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    terminal.LOGGER.addHandler(handler)
    try:
        terminal.remark("100% \x1b")
        terminal.remark("look", terminal.WARN)
    finally:
        terminal.LOGGER.removeHandler(handler)
    assert [(r.levelname, r.getMessage()) for r in records] == [
        ("INFO", "100% \\u001b"),
        ("WARNING", "look"),
    ]
    assert capsys.readouterr().err == "100% \\u001b\nlook\n"


def test_progress_is_quiet_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmctl.core.progress.EVERY", -1.0)
    with terminal.hear(terminal.WARN), show_bytes() as say:
        say("reading", 1, 2)
        ProgressLine("rows", 2)(1)
    assert capsys.readouterr().err == ""
    with show_bytes() as say:
        say("reading", 1, 2)
        ProgressLine("rows", 2)(1)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_work_of_unknown_length_has_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("plmctl.core.progress.EVERY", -1.0)
    assert list(follow(["first", "seventh"], len, "tokens")) == ["first", "seventh"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "5 tokens",
        "12 tokens",
        "12 of 12 tokens (100%)",
    ]


def test_a_line_of_inner_work_leaves_the_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("plmctl.core.progress.EVERY", -1.0)
    for terminal_there, lines in ((True, 0), (False, 1)):
        monkeypatch.setattr("sys.stderr.isatty", lambda there=terminal_there: there)
        ProgressLine("rows", 2, inner=True)(2)
        assert len(capsys.readouterr().err.splitlines()) == lines


def test_children_are_as_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal.spell_level() == []
    for level, words in ((terminal.WARN, ["--quiet"]), (terminal.DETAIL, ["--verbose"])):
        with terminal.hear(level):
            assert terminal.spell_level() == words
    assert session.spell_level is terminal.spell_level
