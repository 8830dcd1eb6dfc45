"""The first reading of an encyclopedia: each page becomes one line of a scratch file, whatever
pages come later.

    ["a", title, text, [[start, end, title], ...], [types]]     an article
    ["r", title, target]                                        a redirect
    ["c", title, [targets]]                                     what a title may mean
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plmctl.knowledge.dump import Dump, Page
from plmctl.knowledge.kinds import find_types, is_choice, is_list
from plmctl.knowledge.wikitext import Wiki
from plmctl.storage.gate import open_file
from plmctl.storage.journal import Journal

PAGES = "pages.jsonl"
_COMMIT = 10.0  # seconds of work that a kill may cost
Show = Callable[[int, int], None]  # (bytes of the export that are read, all of them)


@dataclass(frozen=True)
class PageReading:
    """How the pages of an encyclopedia are read.

    Args:
        types: The sources of types: heads, categories, infobox, qualifier.
        lists: whether lines of lists are text.
        without: headings of sections that are left out.
    """

    types: tuple[str, ...]
    lists: bool
    without: tuple[str, ...]


def collect_pages(file: Path, reading: PageReading, journal: Journal, show: Show) -> dict[str, Any]:
    """Write a line for each page of an export to the scratch file, or go on where an earlier start
    was stopped.

    Returns:
        The facts about the export: "site", "licence", "language", "counted", and its "problem" if
        it is cut off.
    """
    if "export" in journal.state:
        return dict(journal.state["export"])
    done = journal.state.get("pages", {"read": 0, "bytes": 0, "counted": {}})
    counted, last = Counter[str](done["counted"]), time.monotonic()
    place = journal.scratch / PAGES
    dump = Dump(file, lambda at, size, _: show(at, size))
    wiki: Wiki | None = None
    with open_file(place, "r+b" if place.exists() else "w+b") as stream:
        stream.truncate(done["bytes"])
        stream.seek(done["bytes"])
        number = 0
        for number, page in enumerate(dump, 1):
            if number <= done["read"]:
                continue
            wiki = wiki or _open_wiki(dump, reading)
            if line := read_page(page, wiki, reading, counted):
                stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            if time.monotonic() - last > _COMMIT:
                stream.flush()
                state = {"read": number, "bytes": stream.tell(), "counted": dict(counted)}
                journal.commit(pages=state)
                last = time.monotonic()
    export = {
        "site": dump.site.name,
        "language": dump.site.language,
        "first_letter": dump.site.first_letter,
        "namespaces": dump.site.namespaces,
        "counted": dict(counted),
        "problem": dump.problem,
    }
    journal.commit(export=export)
    return export


def _open_wiki(dump: Dump, reading: PageReading) -> Wiki:
    return Wiki(
        dump.site.namespaces,
        first_letter=dump.site.first_letter,
        without=reading.without,
        lists=reading.lists,
    )


def read_page(page: Page, wiki: Wiki, reading: PageReading, counted: Counter[str]) -> list[Any]:
    """The line of a page, empty where it is of no use; `counted` says what it was."""
    title = wiki.title(page.title)
    target = wiki.redirect(page.text) or wiki.title(page.redirect)
    if page.namespace or wiki.namespace(title):
        counted["pages of other namespaces"] += 1
    elif not title:
        counted["pages without a title"] += 1
    elif target:
        counted["redirects"] += 1
        return ["r", title, target]
    elif is_choice(title, page.text):
        counted["disambiguation pages"] += 1
        return ["c", title, _list_choices(wiki, page.text)]
    elif is_list(title):
        counted["lists"] += 1
    else:
        article = wiki.read(page.text)
        counted["articles"] += 1
        links = [list(link) for link in article.links]
        return ["a", title, article.text, links, find_types(title, article, reading.types)]
    return []


def _list_choices(wiki: Wiki, text: str) -> list[str]:
    """The choices of a disambiguation page: the first link of each line of its lists."""
    items = "\n".join(line.lstrip("*#: ") for line in text.split("\n") if line[:1] in "*#")
    article = wiki.read(items)
    lines, begin, found = article.text.split("\n"), 0, dict[str, None]()
    for line in lines:
        first = [link for link in article.links if begin <= link.start < begin + len(line)][:1]
        found |= {link.title: None for link in first if link.title}
        begin += len(line) + 1
    return list(found)
