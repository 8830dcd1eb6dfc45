"""Entities of a text as tags in it: `the <e1>cat</e1> sat on the <e2>mat</e2>`."""

from __future__ import annotations

import re
from typing import Any

_TAG = re.compile(r"</?e[0-9]>")


def read_tags(line: str, entities: int) -> list[Any]:
    """The text without its tags, then the characters [start, end) of <e1>, <e2>, ...; ValueError
    where a tag is missing or stands twice.

        "a <e1>cat</e1>"    ->    ["a cat", (2, 5)]
    """
    text, places, last = "", {}, 0
    for tag in _TAG.finditer(line):
        text += line[last : tag.start()]
        last = tag.end()
        if tag[0] in places:
            raise ValueError(f"{tag[0]} stands twice in {line[:80]!r}")
        places[tag[0]] = len(text)
    text += line[last:]
    names = [(f"<e{n}>", f"</e{n}>") for n in range(1, entities + 1)]
    for name in (name for pair in names for name in pair):
        if name not in places:
            raise ValueError(f"no {name} in {line[:80]!r}")
    return [text, *((places[begin], places[end]) for begin, end in names)]
