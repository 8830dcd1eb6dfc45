"""From the collected pages of an encyclopedia to entities, their names, and text with marks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from plmctl.knowledge.dictionary import Dictionary, Mention
from plmctl.knowledge.directory import Entity
from plmctl.knowledge.kinds import strip_qualifier
from plmctl.knowledge.tables import Problems

Row = dict[str, Any]


@dataclass
class Encyclopedia:
    """The entities of the pages in a scratch file.

    Args:
        pages: the file that `collect_pages` wrote.
        first_letter: whether titles begin with an upper case letter.
        outside: whether titles that the pages only link to are entities, too.
        least_mentions: The least number of links to such an article.
        tables: further types by title.
        problems: counts what is not usable.
        source: The name of the pages in messages.
    """

    pages: Path
    outside: bool = True
    least_mentions: int = 1
    tables: Mapping[str, list[str]] = field(default_factory=dict)
    problems: Problems = field(default_factory=Problems)
    source: str = ""

    def __post_init__(self) -> None:
        self.redirects: dict[str, str] = {}
        self.articles: dict[str, None] = {}
        choices: dict[str, list[str]] = {}
        for kind, title, *rest in self._lines():
            if kind == "r":
                self.redirects[title] = rest[0]
            elif kind == "a":
                self.articles[title] = None
            else:
                choices[title] = rest[0]
        self.resolved = self._resolve()
        self.ids: dict[str, int] = {}
        self.names: list[Counter[str]] = []
        self._count_names(choices)

    def _lines(self) -> Iterator[list[Any]]:
        with self.pages.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)

    def _resolve(self) -> dict[str, str]:
        """{a redirect's title: the article at the end of its chain}, without those in a circle."""
        ends: dict[str, str] = {}
        lost: set[str] = set()
        for title in self.redirects:
            way: dict[str, None] = {}
            at = title
            while at in self.redirects and at not in self.articles:
                if at in ends or at in lost or at in way:
                    break
                way[at] = None
                at = self.redirects[at]
            if at in way or at in lost:
                if at in way:
                    circle = [*way][[*way].index(at) :]
                    way_round = " -> ".join([*circle, at])
                    self.problems.note("redirect", "in a circle", f"{self.source}: {way_round}")
                lost |= way.keys()
            else:
                ends |= dict.fromkeys(way, ends.get(at, at))
        return ends

    def resolve(self, title: str) -> str:
        """The article that a link to a title leads to."""
        return self.resolved.get(title, title)

    def _count_names(self, choices: Mapping[str, list[str]]) -> None:
        """Give ids, articles first, and count the names by which links call each entity."""
        counts: Counter[str] = Counter()
        for row in self._articles():
            counts.update(self.resolve(title) for _, _, title in row[3] if title)
        self.ids = {title: number for number, title in enumerate(self.articles)}
        for title, count in counts.items() if self.outside else ():
            gone = title in choices or title in self.redirects
            if title not in self.ids and count >= self.least_mentions and not gone:
                self.ids[title] = len(self.ids)
        self.names = [Counter({title: 0}) for title in self.ids]
        for title, number in self.ids.items():
            self.names[number][strip_qualifier(title)] += 0
        for title in self.redirects:
            if (number := self.ids.get(self.resolve(title), -1)) >= 0:
                self.names[number][strip_qualifier(title)] += 0
        for title, targets in choices.items():
            for target in targets:
                if (number := self.ids.get(self.resolve(target), -1)) >= 0:
                    self.names[number][strip_qualifier(title)] += 0
        for row in self._articles():
            for start, end, title in row[3]:
                if (number := self.ids.get(self.resolve(title), -1)) >= 0:
                    self.names[number][row[2][start:end]] += 1

    def _articles(self) -> Iterator[list[Any]]:
        return (row for row in self._lines() if row[0] == "a")

    def entities(self) -> Iterator[Entity]:
        """The entities in the order of their ids."""
        articles = self._articles()
        for title, names in zip(self.ids, self.names, strict=True):
            types, text = list(self.tables.get(title, ())), ""
            if title in self.articles:
                row = next(articles)
                types += [kind for kind in row[4] if kind not in types]
                text = row[2].partition("\n")[0]
            yield Entity(title, tuple(names.most_common()), tuple(types), text)

    def rows(self, repeated: Dictionary | None, skip: int) -> Iterator[Row]:
        """The documents with their marks.

        Args:
            repeated: The function that finds further mentions of an article's links; None: links
                alone.
            skip: articles that are done already.
        """
        for _, title, text, links, _ in islice(self._articles(), skip, None):
            marks = [
                Mention(start, end, self.ids[found])
                for start, end, target in links
                if (found := self.resolve(target)) in self.ids
            ]
            counted = {"links": len(marks)}
            if repeated is not None and text:
                known = {mark.id for mark in marks} | {self.ids[title]}
                marks = merge(marks, repeated.link_among(text, known))
            counted["repeated"] = len(marks) - counted["links"]
            yield {"title": title, "text": text, "entity": marks, "counted": counted}

    def make_dictionary(self, **settings: Any) -> Dictionary:
        """The names of all entities."""
        names = (
            (name, number, count)
            for number, each in enumerate(self.names)
            for name, count in each.items()
        )
        return Dictionary(names, **settings)


def merge(marks: list[Mention], others: list[Mention]) -> list[Mention]:
    """All `marks`, and those of `others` that overlap none, in order."""
    if not marks:
        return others
    kept, at = [], 0
    for other in others:
        while at < len(marks) and marks[at].end <= other.start:
            at += 1
        if at == len(marks) or other.end <= marks[at].start:
            kept.append(other)
    return sorted([*marks, *kept])
