"""A page as a reader of HTML sees it: tags that close, ids, addresses, headings, tables."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Raises AssertionError for a tag that closes what is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.headings: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            self.ids += [value or ""] if name == "id" else []
            self.addresses += (
                [value or ""] if name in ("href", "src", "xlink:href", "action", "data") else []
            )
        if tag in ("h1", "h2", "h3"):
            self.headings.append("")
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
        elif self._open and self._open[-1] in ("td", "th"):
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
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    assert '<meta name="viewport"' in text
    return page
