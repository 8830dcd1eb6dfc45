"""A page as a reader of HTML sees it: tags that close, ids, addresses, headings, tables, and what a
keyboard or a screen reader needs.
"""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "br", "hr", "img", "link", "input"}
BOXES = {"table", "figure"}  # each with a name


class Page(HTMLParser):
    """Raises AssertionError for a tag that closes what is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.levels: list[int] = []
        self.labels: list[str] = []  # of tables and pictures
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        known = dict(attrs)
        if "tabindex" in known:
            assert (known["tabindex"], known.get("role")) == ("0", "region")
            self.labels.append(known.get("aria-label") or "")
        if tag == "html":
            assert known.get("lang"), "a screen reader asks for the language"
        for name, value in attrs:
            self.ids += [value or ""] if name == "id" else []
            self.addresses += (
                [value or ""] if name in ("href", "src", "xlink:href", "action", "data") else []
            )
        if tag in ("h1", "h2", "h3"):
            self.headings.append("")
            self.levels.append(int(tag[1]))
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open, f"</{tag}> closes nothing"
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("h1", "h2", "h3"):
            self.headings[-1] += data
        elif {"td", "th"}.intersection(self._open[-2:]):
            self.tables[-1][-1][-1] += data

    def table(self, *head: str) -> list[list[str]]:
        """The rows of the one table whose head begins so."""
        found = [rows[1:] for rows in self.tables if rows[0][: len(head)] == list(head)]
        assert len(found) == 1, f"{head}: {[rows[0] for rows in self.tables]}"
        return found[0]


def parse(text: str) -> Page:
    """The page, once what every page has to be is checked: self-contained, ids once, links that
    lead somewhere.
    """
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert all(address.startswith("#") and address[1:] in page.ids for address in page.addresses)
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert page.tags.count("script") <= 1  # of the page itself
    assert "url(" not in text
    assert "@import" not in text
    assert '<meta name="viewport"' in text
    check_access(page)
    return page


def check_access(page: Page) -> None:
    """One main part, headings that skip no level, a name of its own for each table and picture."""
    assert page.tags.count("main") == 1
    assert page.tags.count("title") >= 1
    assert page.levels[0] == 1
    assert page.levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(page.levels))
    assert len(page.labels) == sum(page.tags.count(tag) for tag in BOXES)
    assert all(page.labels)
    assert len(page.labels) == len(set(page.labels))
