"""Nothing that users write steers a terminal: brackets stay, control characters are shown, and
there is one way to print.
"""

from __future__ import annotations

import ast
import io
import json
import re
from pathlib import Path

import pytest
from rich.table import Table

from plmctl.core import terminal
from plmctl.core.errors import ConfigError, ConfigErrors, DataError, first_with_fix, raise_all
from plmctl.core.rounding import spell_size

PACKAGE = Path(__file__).parents[2] / "plmctl"


def test_control_characters_are_spelled_and_the_rest_stays() -> None:
    steering = "a\x1b[31mb\x07\x9b2J\r\x7f\u202e\udcff"
    assert terminal.visible(steering) == r"a\u001b[31mb\u0007\u009b2J\u000d\u007f\u202e\udcff"
    plain = "tab\tline\nÄ 语言 [bold]x[/bold] :smile: \u200d"
    assert terminal.visible(plain) == plain


def test_one_of_a_thing_has_no_plural() -> None:
    numbers = {0: "0 documents", 1: "1 document", 2000: "2,000 documents"}
    assert {number: terminal.counted(number, "document") for number in numbers} == numbers


def test_json_stays_the_same_json() -> None:
    record = {"text": "\x1b[2J\x9b\x7f语"}
    shown = terminal.visible(json.dumps(record, ensure_ascii=False))
    assert json.loads(shown) == record
    assert shown.isprintable()


def test_tables_print_cells_and_titles_as_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("noise", title="jobs in [bold]/x\x1b[31m")
    table.add_row("noise=[token_mask] :smile:")
    table.add_row("\x1b[2Jcleared")
    terminal.screen().print(table)
    terminal.screen().print("[red]line[/red] \x1b[0m")
    shown = capsys.readouterr().out
    for text in (
        "jobs in [bold]/x\\u001b[31m",
        "noise=[token_mask] :smile:",
        "\\u001b[2Jcleared",
        "[red]line[/red] \\u001b[0m",
    ):
        assert text in shown
    assert "\x1b" not in shown


def test_lines_go_where_they_belong(capsys: pytest.CaptureFixture[str]) -> None:
    other = io.StringIO()
    terminal.tell("out\x1b")
    terminal.remark("err\x1b")
    terminal.tell("file\x1b", file=other, end="\r")
    assert capsys.readouterr() == ("out\\u001b\n", "err\\u001b\n")
    assert other.getvalue() == "file\\u001b\r"


def test_nothing_is_printed_another_way() -> None:
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if file.name != "terminal.py" and re.search(r"\b(print|Console)\b", text):
            names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            assert not names & {"print", "Console"}, f"{file}: use plmctl.core.terminal"


def test_a_table_that_is_too_wide_comes_in_parts_with_whole_cells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = ["arm", "mean", "verdict", "published"]
    rows = [[f"{name} {'x' * 12}", "0.525", "undecided", "71.5 F1"] for name in "abcdef"]
    shown = {}
    for width in (80, 40, 30):
        monkeypatch.setenv("COLUMNS", str(width))
        terminal.print_parts(head, rows)
        shown[width] = capsys.readouterr().out
        assert max(map(len, shown[width].splitlines())) <= width
    assert [text.count("a xxxxxxxxxxxx") for text in shown.values()] == [1, 2, 3]
    for text in shown.values():
        assert text.count("undecided") == text.count("71.5 F1") == 6


def test_an_error_is_told_once_in_its_longest_words() -> None:
    short, long = DataError("gone", file="a"), DataError("gone\n  data: there", file="a")
    with pytest.raises(DataError) as caught:
        raise_all([short, long, short])
    assert caught.value is long


def test_an_error_in_few_lines_keeps_its_fix() -> None:
    error = ConfigError("optim.lr", -1, "above 0", fix="optim.lr=1e-3")
    assert first_with_fix(str(error)) == "optim.lr=-1: above 0\n  fix: optim.lr=1e-3"
    other = DataError("no triples", file="a.tsv")
    assert first_with_fix(str(other)) == "a.tsv: no triples"
    both = str(ConfigErrors([other, error]))
    assert first_with_fix(both) == (
        "2 problems in the configuration: a.tsv: no triples\n  fix: optim.lr=1e-3"
    )


def test_a_framed_table_keeps_its_cells_in_a_narrow_terminal_and_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = ["metric", "dev", "95% of dev", "test", "95% of test"]
    rows = [["a long name of a metric, " * 3, "0.5", "0.4000 to 0.6000", "0.7", "0.6 to 0.8"]]
    monkeypatch.delenv("COLUMNS", raising=False)
    terminal.print_columns("scores", head, rows)
    terminal.print_table(head, rows)
    whole = capsys.readouterr().out
    assert whole.count(rows[0][0]) == 2
    assert max(map(len, whole.splitlines())) > 80
    monkeypatch.setenv("COLUMNS", "50")
    terminal.print_columns("scores", head, [["accuracy", *rows[0][1:]]])
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 50
    for cell in (*head, "accuracy", *rows[0][1:]):
        assert cell in narrow
    assert "…" not in narrow


def test_small_sizes_are_not_zero() -> None:
    assert [spell_size(size) for size in (80, 12_345, 99_999, 123_456, 4e6)] == [
        "80 bytes", "12.3 kB", "100.0 kB", "0.1 MB", "4.0 MB"
    ]  # fmt: skip
