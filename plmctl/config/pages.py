"""`plmctl docs`: the pages of the documentation, as a checkout or an installed wheel has them."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from plmctl.config.recipes import docs_dir
from plmctl.core.errors import UsageError, find_meant, list_some, nearest
from plmctl.core.terminal import print_meanings, screen, tell
from plmctl.text.sentences import CJK

INDEX = "llms.txt"  # written by docs/tables.py in the form of llmstxt.org
# a name whose docstring the site shows, with options of the site
_CLASS = re.compile(r"^::: ([\w.]+)\.(\w+)\n(?: +.*\n)*", re.MULTILINE)
_WORD = re.compile(rf"[{CJK}]{{1,2}}|[^\W_{CJK}]+")
# a heading of any level but the first, and the text below it
_SECTION = re.compile(r"^##+ (.*)\n((?:(?!##+ ).*\n?)*)", re.MULTILINE)
SHOWN = 8  # pages that a search lists
# pages that explain come before pages of figures
WEIGHTS = {"start/": 2.0, "howto/": 1.5, "concepts/": 1.5, "glossary": 1.5, "commands/": 1.2}
WEIGHTS |= {"zh/": 1.5, "results/": 0.5, "reference/": 0.5}
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
        what: A page (`howto/resume`), the last part of its name (`resume`), a folder (`howto`), ""
            for all pages, or words that pages are searched for.

    Raises:
        UsageError: Several pages have this name, or nothing has these words.
    """
    name, pages = what.removeprefix("docs/").removesuffix(".md").strip("/"), list_pages()
    listed = [page for page in pages if page.name.startswith(f"{name}/")] if name else pages
    hits = [] if listed else _search(name, pages)
    chosen = None if listed or hits else _find(name, pages)
    text = _CLASS.sub(_read_docstring, chosen.file.read_text(encoding="utf-8")) if chosen else ""
    if as_json:
        each = {**asdict(chosen), "text": text} if chosen else [asdict(page) for page in listed]
        each = [{**asdict(hit.page), "heading": hit.heading} for hit in hits] or each
        tell(json.dumps(each, indent=1, ensure_ascii=False))
    elif chosen:
        _print(text)
    elif hits:
        print_meanings([(hit.page.name, hit.line) for hit in hits])
    else:
        print_meanings([(page.name, page.about) for page in listed])


@dataclass(frozen=True)
class Hit:
    """A section of a page that has some words."""

    page: ListedPage
    heading: str  # "" before the first heading below the title
    score: float

    @property
    def line(self) -> str:
        """The titles of page and section."""
        return f"{self.page.title}: {self.heading}" if self.heading else self.page.title


def _search(what: str, pages: list[ListedPage]) -> list[Hit]:
    """The best section of the best pages for words that are no name of a page.

    Whole words come first, then beginnings of words. Where nothing has them whole, a page with a
    name like `what` is meant.
    """
    names = {page.name.rpartition("/")[2] for page in pages} | {page.name for page in pages}
    words = list(dict.fromkeys(_WORD.findall(what.lower())))
    if what in names or not words:
        return []
    hits = _rank([re.compile(_spell(word, whole=True)) for word in words], pages)
    if not hits and find_meant(what, names):
        return []
    named = {hit.page.name for hit in hits}
    more = _rank([re.compile(_spell(word, whole=False)) for word in words], pages)
    return [*hits, *(hit for hit in more if hit.page.name not in named)][:SHOWN]


def _spell(word: str, *, whole: bool) -> str:
    """A pattern for a word in the singular and the plural, or for its beginning; Chinese stands
    without spaces.
    """
    if not word.isascii():
        return re.escape(word)
    stem = word.removesuffix("s") if len(word) > 3 else word
    return (
        rf"\b{re.escape(stem)}s?\b" if whole else rf"\b{re.escape(stem[: max(6, len(stem) - 3)])}"
    )


def _rank(patterns: list[re.Pattern[str]], pages: list[ListedPage]) -> list[Hit]:
    """The sections with the most words of `patterns`, one of each page. Words in titles count more,
    and rare words.
    """
    sections = [
        (page, heading, text)
        for page in pages
        for heading, text in _SECTION.findall(f"## \n{page.file.read_text(encoding='utf-8')}")
    ]
    found = [[pattern.findall(text.lower()) for pattern in patterns] for _, _, text in sections]
    rare = [
        math.log(1 + len(sections) / (1 + sum(bool(row[n]) for row in found)))
        for n in range(len(patterns))
    ]
    best: dict[str, Hit] = {}
    for (page, heading, _), counts in zip(sections, found, strict=True):
        named = f"{page.name} {page.title}".lower(), heading.lower()
        score = 0.0
        weights = (value for start, value in WEIGHTS.items() if page.name.startswith(start))
        preferred = next(weights, 1.0)
        for pattern, weight, times in zip(patterns, rare, counts, strict=True):
            inside = sum(bool(pattern.search(title)) for title in named)
            score += (
                preferred
                * weight
                * (len(times) / (len(times) + 2) + inside + 2 * bool(times or inside))
            )
        if score > best.get(page.name, Hit(page, "", 0.0)).score and any(counts):
            best[page.name] = Hit(page, heading.strip(), score)
    return sorted(best.values(), key=lambda hit: -hit.score)[:SHOWN]


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
