"""The pictures of docs/ are those that the parts draw, and the site builds without a warning."""

from __future__ import annotations

import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import plmctl
from plmctl.core.extras import EXTRAS
from plmctl.report.style import STYLE
from tests.report import parsed
from tests.test_imports import ORDER

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def read_script(name: str) -> Any:
    """A script of docs/, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_pictures_are_current_and_well_formed() -> None:
    drawn = dict(read_script("pictures").draw_all())
    assert len(drawn) == 4
    for file, content in drawn.items():
        assert file.read_text(encoding="utf-8") == content, f"{file.name} is stale: make docs"
        picture = ElementTree.fromstring(content)
        assert picture.get("aria-label"), "what a screen reader says"


def test_the_picture_of_rooms_has_every_room_in_its_order() -> None:
    floors = read_script("pictures").FLOORS
    drawn = [room for rooms in floors.values() for room in rooms]
    assert drawn == [*ORDER]


def test_report_in_the_site_is_that_of_the_stored_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = read_script("report_page")
    page = parsed.parse(script.draw_report())
    stored = json.loads(script.STORED.read_text(encoding="utf-8"))
    assert page.headings[0] == stored["study.json"]["title"]
    assert {row[0] for row in page.table("arm", "n")} == set(stored["study.json"]["arms"])
    assert {"Findings", "Curves by arm", "Cost of an arm", "Jobs"} <= set(page.headings)
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    assert script.store(script.restore(stored)) == stored


def test_report_in_the_site_follows_its_switch() -> None:
    page = read_script("report_page").embed(f"<style>{STYLE}</style><body></body>")
    assert re.findall("@media[^{]*", page) == ["@media(prefers-color-scheme:dark)"]  # all it turns
    assert re.search(
        r'addEventListener\("message".*data\.scheme.*</script></body>', page, re.DOTALL
    )
    assert "frame.contentWindow.postMessage({ scheme }" in (DOCS / "site.js").read_text()


def test_search_runs_in_a_page_that_is_opened_from_a_file(tmp_path: Path) -> None:
    hook = read_script("search_order")
    page = '<body><script src="../assets/javascripts/bundle.1.min.js"></script><script src="b.js">'
    scripts = re.findall('src="([^"]*)"', hook.on_post_page(page))
    assert scripts == ["../search_file.js", "../assets/javascripts/bundle.1.min.js", "b.js"]
    with pytest.raises(ValueError, match="bundle"):
        hook.on_post_page('<script src="site.js"></script>')
    index = tmp_path / "search/search_index.json"
    index.parent.mkdir()
    index.write_text('{"docs": []}', encoding="utf-8")
    hook.on_post_build({"site_dir": str(tmp_path)})
    assert (tmp_path / "search/search_index.js").read_text() == 'var __index = {"docs": []}'


def test_every_column_of_a_table_has_a_name() -> None:
    """A screen reader says it before each cell."""
    nameless = [
        f"{page.relative_to(ROOT)}: {head}"
        for page in DOCS.rglob("*.md")
        for head in re.findall(
            r"^\|(.*)\|\n\|(?: *:?-+:? *\|)+$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
        if not all(cell.strip() for cell in head.split("|"))
    ]
    assert not nameless


def test_the_page_on_installing_has_every_extra() -> None:
    page = (DOCS / "start/install.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)))
    assert sorted(named) == sorted(EXTRAS)


def test_reference_has_every_public_name() -> None:
    """Functions on one page, each class on a page of its own, which the page of all names."""
    folder = DOCS / "reference"
    pages = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}
    shown = {
        line.rpartition(".")[2]: name
        for name, page in pages.items()
        for line in page.splitlines()
        if line.startswith("::: ")
    }
    assert {name for name in plmctl.__all__ if not name.startswith("_")} <= shown.keys()
    for name, page in shown.items():
        assert page == "index.md" or f"[{name}]({page})" in pages["index.md"], name
        own = getattr(plmctl, name, None)
        assert isinstance(own, type) == (page != "index.md") or own is None, name


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page is built, with `strict` a warning is an error, and no link is broken."""
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(ROOT)
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    pages = {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.html")}
    sources = DOCS.rglob("*.md")
    wanted = {file.relative_to(DOCS).with_suffix(".html").as_posix() for file in sources}
    assert wanted <= pages
    assert "plmctl.noise.base.Noise" in (tmp_path / "reference/noise.html").read_text()
    # a server shows 404.html under any address, so its links begin at the root
    read = {page: Links(page) for page in tmp_path.rglob("*.html") if page.name != "404.html"}
    assert sum(len(page.targets) for page in read.values()) > 1000
    assert not [
        f"{page.relative_to(tmp_path)}: {target}"
        for page, links in read.items()
        for target in links.targets
        if not leads_somewhere(page, target, read)
    ]


class Links(HTMLParser):
    """What a page links to or shows, and the names of its places."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.names: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.names |= {name for key in ("id", "name") if (name := known.get(key))}
        own = {target for key in ("href", "src") if (target := known.get(key))}
        self.targets |= {each for each in own if not each.startswith(("https:", "http:", "data:"))}


def leads_somewhere(page: Path, target: str, read: dict[Path, Links]) -> bool:
    """Whether the file of a link exists, and has the place that the link names."""
    path, _, name = target.partition("#")
    file = (page.parent / path.partition("?")[0]).resolve() if path else page
    file = file / "index.html" if file.is_dir() else file
    return file.is_file() and (not name or file not in read or name in read[file].names)
