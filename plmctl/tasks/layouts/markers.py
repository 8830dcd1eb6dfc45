"""Marks around the entities of a text: which tokens they are, where they stand, and which part of
a long text stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from plmctl.core.errors import ConfigError
from plmctl.tasks.facts import ModelNeeds

Style = Literal["none", "symbols", "types", "tokens"]
Characters = tuple[int, int]  # [start, end) of an entity in its text
Mark = tuple[Sequence[int], Sequence[int]]  # tokens before and behind an entity
# the first mark of an entity: ERNIE's (thunlp/ERNIE), and one pair more for the words of a type
SYMBOLS = (("#", "#"), ("$", "$"))
TYPED = (("@ * {} *", "@"), ("# ^ {} ^", "#"))


@dataclass(frozen=True)
class MarkedText:
    """A marked text: its tokens, the span [first, end) of each entity, and the length of its mark.
    A span begins with its mark and ends before the mark behind it. `lost`: entities that were cut
    off.
    """

    ids: list[int]
    spans: list[tuple[int, int]]
    cut: int = 0
    before: tuple[int, ...] = ()  # tokens of the mark before each entity
    lost: int = 0

    @property
    def starts(self) -> list[int]:
        """The first token of each entity itself."""
        before = self.before or (0,) * len(self.spans)
        return [
            min(first + more, end - 1)
            for (first, end), more in zip(self.spans, before, strict=True)
        ]


def make_marks(style: Style, tokenizer: Any, *, types: Sequence[str], first_new: int) -> list[Mark]:
    """The marks of each entity of an example, in its order.

    none; symbols: `# head #` and `$ tail $` (Zhang et al., 2019, arXiv:1905.07129, released code);
    types: `@ * person * head @` and `# ^ city ^ tail #` (Zhou and Chen, 2022, arXiv:2102.01373,
    sec. 3.2); tokens: new ones, [E1] [/E1] [E2] [/E2] (Baldini Soares et al., 2019,
    arXiv:1906.03158, sec. 3.2).

    Args:
        types: The type of each entity; "" where it is unknown.
        first_new: the id of the first new token.
    """
    if style == "none":
        return [((), ()) for _ in types]
    if style == "tokens":
        return [([first_new + 2 * n], [first_new + 2 * n + 1]) for n in range(len(types))]
    marks: list[Mark] = []
    for number, name in enumerate(types):
        before, behind = (TYPED if style == "types" and name else SYMBOLS)[number]
        words = name.replace("_", " ").replace("/", " ").lower()
        texts = before.format(words), behind
        marks.append((_encode(texts[0], tokenizer, style), _encode(texts[1], tokenizer, style)))
    return marks


def add_needs(needs: ModelNeeds, style: Style, entities: int) -> ModelNeeds:
    """`needs`, with those of the marks around entities."""
    return replace(
        needs,
        new_tokens=needs.new_tokens + (2 * entities if style == "tokens" else 0),
        reads_ids=needs.reads_ids or style == "tokens",
    )


def spell(style: Style) -> list[str]:
    """The characters of the marks, for a tokenizer that learns from the texts of a task."""
    return ["# $ @ * ^"] if style in ("symbols", "types") else []


def _encode(text: str, tokenizer: Any, style: Style) -> list[int]:
    ids = list(tokenizer.encode(text))
    if not ids or tokenizer.vocab.unk in ids:
        allowed = f"a style whose marks the tokenizer knows; '{text}' is not all known"
        raise ConfigError("task.marks", style, allowed, fix="task.marks=tokens")
    return ids


def mark(
    ids: Sequence[int],
    offsets: Sequence[Characters],
    entities: Sequence[Characters],
    marks: Sequence[Mark],
) -> MarkedText:
    """The tokens of a text with marks around its entities; of entities one inside the other, the
    longer one has the outer marks.

        ids 5 6 7 8, entities of tokens 1 and 2..3    ->    5 # 6 # $ 7 8 $, spans [1, 3), [4, 7)
    """
    places = [_find(offsets, span) for span in entities]
    order = sorted(range(len(places)), key=lambda n: (places[n][0] - places[n][1], n))
    made: list[int] = []
    first, end = [0] * len(places), [0] * len(places)
    for position, token in enumerate(ids):
        for n in order:
            if places[n][0] == position:
                first[n] = len(made)
                made += marks[n][0]
        made.append(token)
        for n in reversed(order):
            if places[n][1] == position:
                end[n] = len(made)
                made += marks[n][1]
    lengths = tuple(len(before) for before, _ in marks)
    return MarkedText(made, list(zip(first, end, strict=True)), before=lengths)


def shorten(marked: MarkedText, room: int) -> MarkedText:
    """A part of at most `room` tokens that has the beginnings of all entities, if possible. The
    text is cut on the left only as far as that needs. An entity that is cut off is its last token.
    """
    over = len(marked.ids) - room
    if over <= 0:
        return marked
    begins = [first for first, _ in marked.spans]
    ends = [end for _, end in marked.spans]
    left = max(0, min(min(begins), over, max(ends) - room))
    spans = [
        (min(first - left, room - 1), max(1, min(end - left, room))) for first, end in marked.spans
    ]
    lost = sum(first - left >= room for first, _ in marked.spans)
    return MarkedText(marked.ids[left : left + room], spans, over, marked.before, lost)


def _find(offsets: Sequence[Characters], span: Characters) -> tuple[int, int]:
    """First and last token of an entity; where it has none, the token behind it."""
    begins, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
    first = min(int(np.searchsorted(ends, span[0], side="right")), max(0, len(ends) - 1))
    return first, max(first, int(np.searchsorted(begins, span[1], side="left")) - 1)
