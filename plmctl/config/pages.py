"""`plmctl docs`: the pages of the documentation, as a checkout or an installed wheel has them."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from plmctl.config.recipes import docs_dir
from plmctl.core.errors import UsageError, find_meant, list_some, nearest
from plmctl.core.terminal import print_meanings, screen, tell

INDEX = "llms.txt"  # written by docs/tables.py in the form of llmstxt.org
# a name whose docstring the site shows, with options of the site
_CLASS = re.compile(r"^::: ([\w.]+)\.(\w+)\n(?: +.*\n)*", re.MULTILINE)
_LINE = re.compile(r"^- \[(.+)\]\((\S+)\.md\): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class ListedPage:
    """A page in the index of the documentation."""

    name: str  # its path without the ending: "howto/resume"
    title: str
    about: str  # its first sentence

    @property
    def file(self) -> Path:
        """The Markdown text of the page."""
        return docs_dir() / f"{self.name}.md"


def list_pages() -> list[ListedPage]:
    """All pages, in the order of the site."""
    found = _LINE.findall((docs_dir() / INDEX).read_text(encoding="utf-8"))
    return [ListedPage(name, title, about) for title, name, about in found]


def show(what: str, *, as_json: bool) -> None:
    """Show a page, or list those of a folder, or all pages.

    Args:
        what: A page (`howto/resume`), the last part of its name (`resume`), a folder (`howto`), or
            "" for all pages.

    Raises:
        UsageError: No page, or several pages, have this name.
    """
    name, pages = what.removeprefix("docs/").removesuffix(".md").strip("/"), list_pages()
    listed = [page for page in pages if page.name.startswith(f"{name}/")] if name else pages
    if not name.isascii():  # names are English: 中文 is a word of a title or of a first sentence
        listed = [page for page in pages if name in f"{page.title} {page.about}"]
    chosen = None if listed else _find(name, pages)
    text = _CLASS.sub(_read_docstring, chosen.file.read_text(encoding="utf-8")) if chosen else ""
    if as_json:
        each = {**asdict(chosen), "text": text} if chosen else [asdict(page) for page in listed]
        tell(json.dumps(each, indent=1, ensure_ascii=False))
    elif chosen:
        _print(text)
    else:
        print_meanings([(page.name, page.about) for page in listed])


def _find(name: str, pages: list[ListedPage]) -> ListedPage:
    """The page of this name, or the only one whose name ends with it."""
    found = [page for page in pages if page.name == name]
    found = found or [page for page in pages if page.name.endswith(f"/{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        names = [page.name for page in found]
        raise UsageError(
            f"several pages are named '{name}': {list_some(names)}\n  fix: plmctl docs {names[0]}"
        )
    known = {page.name.rpartition("/")[2]: page.name for page in reversed(pages)}
    known |= {page.name: page.name for page in pages}
    meant = find_meant(name, known)
    fix = f"plmctl docs {known[meant]}" if meant else "plmctl docs lists all pages"
    raise UsageError(f"there is no page '{name}'{nearest(name, known)}\n  fix: {fix}")


def _read_docstring(found: re.Match[str]) -> str:
    """The docstring of a public name, where a page has only its mark."""
    named = getattr(importlib.import_module(found[1]), found[2])
    return f"`{found[1]}.{found[2]}`\n\n{inspect.getdoc(named)}\n"


def _print(page: str) -> None:
    """Print Markdown: with styles in a terminal, as it stands in a pipe or a file."""
    from rich.markdown import Markdown

    console = screen()
    if console.is_terminal:
        # comments mark generated tables
        console.print(Markdown(re.sub(r"<!--.*?-->\n?", "", page), hyperlinks=False))
    else:
        tell(page, end="")
