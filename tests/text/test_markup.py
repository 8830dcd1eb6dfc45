"""Texts in HTML are found and said, with a command that takes the tags out."""

from __future__ import annotations

import gzip
import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.text.markup import is_html, measure_html, spell_remedy
from tests.command import plmctl

HTML = "<p>A film &amp; a <b>book</b>:<br />{}</p>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>One</p>", True),
        ("It was good.<br /><br />It was not.", True),
        ("one&nbsp;two", True),
        ("<DIV class='a'>x</DIV>", True),
        ("", False),
        ("a < b and c > d", False),
        ("List<int> x; std::vector<T> y; <e1> here </e1>", False),
        ("The tag <p> begins a paragraph. " + "Nothing else is said of it. " * 90, False),
    ],
)
def test_what_is_html(text: str, expected: bool) -> None:
    assert is_html(text) is expected


@pytest.fixture(scope="module")
def texts(small_text: Path) -> list[str]:
    """Forty texts, of which each fourth is HTML."""
    words = " ".join(small_text.read_text(encoding="utf-8").split())
    plain = [words[400 * n : 400 * (n + 1)] for n in range(40)]
    return [HTML.format(text) if n % 4 == 0 else text for n, text in enumerate(plain)]


def test_the_share(texts: list[str]) -> None:
    assert measure_html(texts) == pytest.approx(0.25)
    assert measure_html([]) == 0


@pytest.mark.parametrize("name", ["a b.jsonl", "页's.txt"])
def test_the_remedy_runs_as_it_is_pasted(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, text = tmp_path / name, HTML.format("zwölf > 3")
    rows = name.endswith(".jsonl")
    file.write_text(json.dumps({"body x": text, "n": 1}) + "\n" if rows else f"{text}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    _, *words = shlex.split(spell_remedy(name, "body x" if rows else "text"))
    plmctl(*words)
    written = gzip.decompress((tmp_path / "plain/00000.jsonl.gz").read_bytes())
    row = json.loads(written)
    assert row["n" if rows else "id"] == (1 if rows else f"{name}/0")
    assert row["text"].split() == ["A", "film", "&", "a", "book:", "zwölf", ">", "3"]


def test_it_is_said_where_text_is_read(texts: list[str], tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": row}) + "\n" for row in texts), encoding="utf-8")
    said = {
        "tokenize": ["tokenize", "tokenizer.vocab_size=300", f"out={tmp_path / 'out'}"],
        "check": ["data", "check"],
        "pretrain": ["pretrain", "bert", "size=tiny", "tokenizer.vocab_size=300", "train.steps=1"],
    }
    said["pretrain"] += [f"run.dir={tmp_path / 'run'}", "data.cache_dir=" + str(tmp_path / "cache")]
    for words in said.values():
        result = CliRunner().invoke(
            make_app(), [*words, f"data.path={file}"], env={"COLUMNS": "400"}
        )
        shown = " ".join(result.output.split())
        assert "of the documents have HTML in them" in shown
        assert "rule=[html]'" in shown
