"""Plug-ins that are forgotten, or cannot be imported: one message with file, line and fix."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from plmctl.analysis.measure import find_measures
from plmctl.cli.mistakes import report_mistakes
from plmctl.config.compose import compose
from plmctl.config.glossary import known_fields
from plmctl.config.other_names import guess
from plmctl.core.errors import UsageError
from plmctl.core.parts import part_of
from plmctl.core.terminal import DETAIL, hear
from tests.command import plmctl

PART = """\
from plmctl.attention.patterns.window import Window
from plmctl.core.parts import part_of

@part_of("pattern")
class Near(Window):
    pass
"""
MEASURE = """\
from dataclasses import dataclass
from plmctl.analysis.measure import Measure

@dataclass(frozen=True)
class Drift(Measure):
    NAME
    @classmethod
    def of(cls, opened):
        return None
"""
COMMAND = """\
from plmctl.config.command import About, Command

class Gaps(Command):
    '''Find gaps.'''
    about = About("gaps", place=1)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "frail" / "commands").mkdir(parents=True)
    for file in ("__init__.py", "commands/__init__.py"):
        (tmp_path / "frail" / file).write_text("")
    (tmp_path / "frail" / "near.py").write_text(PART)
    (tmp_path / "own" / "pattern").mkdir(parents=True)
    (tmp_path / "own/pattern/near.yaml").write_text("_target_: frail.near.Near\nreach: 2\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "frail"]:
        del sys.modules[name]


def test_a_forgotten_plugin_is_named_by_the_fix(home: Path) -> None:
    with pytest.raises(UsageError) as raised:
        compose("pretrain", "bert", ["pattern=near"], config_dirs=["own"])
    assert "own/pattern/near.yaml:1 names it" in str(raised.value)
    assert str(raised.value).endswith("fix: --plugin frail")
    made = compose("pretrain", "bert", ["pattern=near"], config_dirs=["own"], plugins=["frail"])
    assert made.pattern.reach == 2


def test_a_package_that_is_nowhere_is_no_fix(home: Path) -> None:
    Path("own/pattern/near.yaml").write_text("_target_: absent_package.near.Near\n")
    with pytest.raises(UsageError) as raised:
        compose("pretrain", "bert", ["pattern=near"], config_dirs=["own"])
    assert "fix: # correct own/pattern/near.yaml:1" in str(raised.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("def x(:", "SyntaxError: invalid syntax"),
        ("import absent_library", "No module named 'absent_library'"),
        ("from plmctl.core.batch import Absent", "cannot import name 'Absent'"),
        ("limit = 1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(
    line: str, why: str, home: Path
) -> None:
    (home / "frail/near.py").write_text(f"{PART}\n{line}\n")
    with pytest.raises(UsageError) as raised:
        compose("pretrain", "bert", ["pattern=near"], config_dirs=["own"], plugins=["frail"])
    place = f"{home}/frail/near.py:{PART.count(chr(10)) + 2}"
    assert str(raised.value).startswith(f"{place}: the plug-in frail cannot be imported (")
    assert why in str(raised.value)
    assert str(raised.value).endswith(f"fix: # correct {place}")
    known_fields(["own"], ["frail"])  # which passes over it


@pytest.mark.parametrize("words", [["gaps", "--plugin", "frail"], ["--help", "--plugin", "frail"]])
@pytest.mark.parametrize("file", ["commands/gaps.py", "__init__.py"])
def test_a_command_that_cannot_be_read_is_named_with_its_line(
    words: list[str], file: str, home: Path
) -> None:
    (home / "frail" / file).write_text(f"{COMMAND}\ndef x(:\n")
    said = plmctl(*words, code=2)
    assert f"{home}/frail/{file}:7: the plug-in frail cannot be imported" in said


def test_a_measure_without_a_name_and_one_with_the_name_of_another_are_refused(home: Path) -> None:
    for name, said in (("", "has no name"), ('name = "layers"', "'layers' is the name of plmctl.")):
        (home / "frail/drift.py").write_text(MEASURE.replace("NAME", name))
        with pytest.raises(UsageError, match=r"frail\.drift\.Drift \(.*drift\.py:4\)") as raised:
            find_measures(["frail"])
        assert said in str(raised.value)
        assert 'name: ClassVar[str] = "drift"' in str(raised.value)
        del sys.modules["frail.drift"]
    (home / "frail/drift.py").write_text(MEASURE.replace("NAME", 'name = "drift"'))
    assert "drift" in find_measures(["frail"])


def test_two_swapped_letters_of_a_short_key_are_recognised() -> None:
    assert guess("tpo", ["text", "top", "order"]) == ["top"]
    assert guess("task.nmae", ["task.name", "task.path"]) == ["task.name"]
    assert guess("tpo", ["top", "opt", "text"]) == []


@part_of("noise")
class Halved:
    def __call__(self, rows: int) -> float:
        return divide(rows)


def divide(rows: int) -> float:
    return rows / 0


def test_an_error_in_the_code_of_a_part_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, report_mistakes():
        Halved()(3)
    assert ended.value.exit_code == 1
    line = inspect.getsourcelines(divide)[1] + 1
    place = f"{__file__}:{line}, in divide: ZeroDivisionError: division by zero"
    assert f"plmctl: {place}\n" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError), hear(DETAIL), report_mistakes():
        Halved()(3)
    with pytest.raises(ZeroDivisionError), report_mistakes():
        _ = 1 / 0  # of no part
