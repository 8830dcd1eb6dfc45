"""Strings that an algorithm writes: each kind by its definition, lengths, what a name fixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.config.compose import compose
from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_setting
from plmctl.data.survey import TextSource
from plmctl.runs.pretraining import commands_after
from plmctl.text.inputs import find_all
from plmctl.text.reader import read_documents, read_pairs
from plmctl.text.strings import COUNT, SYMBOLS, Strings


def rows(path: str) -> list[tuple[str, str]]:
    numbered = list(Strings(path).rows())
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    assert all(row["text"] == row["source"] + row["target"] for _, row in numbered)
    return [(row["source"], row["target"]) for _, row in numbered]


def test_symbols_are_letters_that_differ() -> None:
    assert len(SYMBOLS) == len(set(SYMBOLS)) == 127
    assert SYMBOLS.isalpha()


@pytest.mark.parametrize("kind", ["copy", "reverse", "duplication"])
def test_words_come_again(kind: str) -> None:
    for source, target in rows(f"strings:{kind}:5-9:300"):
        word = source[1:] if kind == "duplication" else source[:-1]
        assert source == (f"0{word}" if kind == "duplication" else f"{word}=")
        assert target == {"copy": word, "reverse": word[::-1], "duplication": source}[kind]
        assert set(word) <= set(SYMBOLS)
        assert 5 <= len(word) <= 9


def test_sums_are_right() -> None:
    digits = set()
    for source, target in rows("strings:addition:1-4:500"):
        one, other = source.removesuffix("=").split("+")
        assert int(one) + int(other) == int(target)
        assert len(one) == len(other)
        assert one[0] != "0"
        digits.add(len(one))
    assert digits == {1, 2, 3, 4}


def test_every_length_and_symbol_occurs() -> None:
    words = [source[:-1] for source, _ in rows("strings:copy:1-20:2000")]
    assert {len(word) for word in words} == set(range(1, 21))
    assert set("".join(words)) == set(SYMBOLS)


def test_a_name_fixes_the_rows() -> None:
    assert rows("strings:copy:9:50") == rows("strings:copy:9:50")
    assert not set(rows("strings:copy:9:50")) & set(rows("strings:copy:9:51"))
    assert len(rows("strings:copy:3")) == COUNT


def test_they_are_read_as_text_and_as_pairs() -> None:
    path = "strings:reverse:7:40"
    wanted = rows(path)
    assert [document.paragraphs for document in read_documents(path)] == [
        (source + target,) for source, target in wanted
    ]
    pairs = [document.paragraphs for document in read_pairs(path, fields=["source", "target"])]
    assert pairs == wanted
    assert TextSource(path).content() == [{"path": path, "bytes": 0, "changed": [path]}]
    assert find_all([path, path]) == [Strings(path)]


def test_the_next_step_offers_one_of_them() -> None:
    path = "strings:reverse:7:40"
    spec = compose("pretrain", "gpt", [f"data.path={path}"])
    assert spell_setting("prompt", rows(path)[0][0]) in "".join(commands_after(spec))
    assert "Once upon" in "".join(commands_after(compose("pretrain", "gpt")))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("strings:copi:5", r"(?s)did you mean 'copy'.*strings:copy:5"),
        ("strings:copy", r"strings:<kind>:<length>\[:rows\]"),
        ("strings:copy:0", "a length from 1 on"),
        ("strings:copy:9-3", "a length from 1 on"),
        ("strings:copy:5:0", "a length from 1 on"),
        ("strings:copy:5:6:7", "a length from 1 on"),
    ],
)
def test_a_name_of_no_data_set(path: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        find_all(path)


def test_a_file_of_that_name_is_still_a_file(tmp_path: Path) -> None:
    file = tmp_path / "strings:copy:5"
    file.write_text("a", encoding="utf-8")
    assert find_all(str(file)) == [file]
