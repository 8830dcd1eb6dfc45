"""`plmctl docs`: the pages of the documentation in a terminal, in a pipe and as JSON."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from rich.console import Console

from plmctl.config import pages
from plmctl.noise.base import Noise
from tests.command import plmctl as command

DOCS = Path(__file__).parents[2] / "docs"


def test_every_page_is_listed_with_its_first_words() -> None:
    listed = json.loads(command("docs", "--json"))
    names = {page["name"] for page in listed}
    assert names == {
        file.relative_to(DOCS).with_suffix("").as_posix() for file in DOCS.rglob("*.md")
    }
    assert all(page["about"] and "](" not in page["about"] for page in listed)
    lines = command("docs").splitlines()
    assert len(lines) == len(listed)
    assert any(line.startswith("howto/resume  ") for line in lines)
    (first, *_), others = command("docs", "start").splitlines(), command("docs", "start/")
    assert first.startswith("start/install ")
    assert len(others.splitlines()) == len([name for name in names if name.startswith("start/")])


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("perplexity", "glossary"),
        ("significance", "concepts/studies"),  # it has "significant"
        ("attention heads", "commands/report"),
        ("中文", "zh/chinese-text"),
        ("中文分词", "zh/chinese-text"),
        ("HOLM", "concepts/studies"),
    ],
)
def test_words_find_pages(words: str, page: str) -> None:
    lines = command("docs", *words.split()).splitlines()
    assert page in [line.split()[0] for line in lines]
    assert len(lines) <= pages.SHOWN
    hits = json.loads(command("docs", words, "--json"))
    assert [hit["name"] for hit in hits] == [line.split()[0] for line in lines]


def test_a_page_with_all_words_in_its_heading_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "a": "# A\n\nred\n\n## Cats\n\nred cat",
        "b": "# B\n\nred red red red",
        "c": "# C\n\nno",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.md").write_text(text)
    monkeypatch.setattr(pages, "docs_dir", lambda: tmp_path)
    listed = [pages.ListedPage(name, name.upper(), "") for name in texts]
    hits = pages._search("red cats", listed)
    assert [(hit.page.name, hit.heading) for hit in hits] == [("a", "Cats"), ("b", "")]
    assert pages._search("blue", listed) == []


@pytest.mark.parametrize("name", ["start/install", "install", "docs/start/install.md"])
def test_a_page_in_a_pipe_is_its_file(name: str) -> None:
    text = (DOCS / "start/install.md").read_text(encoding="utf-8")
    assert command("docs", name) == text
    assert json.loads(command("docs", name, "--json"))["text"] == text


def test_a_page_of_the_reference_has_the_docstring() -> None:
    shown = command("docs", "reference/noise")
    assert inspect.getdoc(Noise) in shown
    assert ":::" not in shown
    assert "show_root" not in shown


def test_a_page_in_a_terminal_is_rendered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pages, "screen", lambda: Console(force_terminal=True, width=80))
    pages.show("commands/index", as_json=False)
    shown = capsys.readouterr().out
    assert "\x1b[1" in shown
    assert "<!--" not in shown
    assert "|---|" not in shown


@pytest.mark.parametrize(
    ("name", "problem", "fix"),
    [
        ("instal", "did you mean 'install'?", "plmctl docs start/install"),
        ("search", "several pages are named 'search'", "plmctl docs howto/search"),
        ("qqqqqq", "there is no page 'qqqqqq'", "plmctl docs  # lists all pages"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(name: str, problem: str, fix: str) -> None:
    shown = command("docs", name, code=2)
    assert problem in shown
    assert f"fix: {fix}" in shown
