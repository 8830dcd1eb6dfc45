"""Results that nobody named a file for are written over by newer ones, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.storage.earlier import keep_earlier


def write(file: Path, text: str, **how: bool) -> None:
    with keep_earlier(file, **how):
        file.write_text(text)


def test_every_earlier_result_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "dev.jsonl"
    for text in ("one", "one", "two", "three", "three"):
        write(file, text)
    kept = {path.name: path.read_text() for path in (tmp_path / "earlier").iterdir()}
    assert (file.read_text(), kept) == ("three", {"dev-1.jsonl": "one", "dev-2.jsonl": "two"})
    said = capsys.readouterr().err.splitlines()
    assert [line.count("had other results") for line in said] == [1, 1]


def test_asked_to_write_over_it_keeps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "dev.jsonl"
    write(file, "one")
    write(file, "one")
    write(file, "two", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["dev.jsonl"]


def test_a_result_that_is_not_written_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "dev.jsonl"
    write(file, "one")
    with pytest.raises(ZeroDivisionError), keep_earlier(file):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["dev.jsonl"]
