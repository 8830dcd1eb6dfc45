"""Templates of a cloze: a text around a gap, in pieces, and filled with an example."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.spelling import spell_setting
from plmctl.tasks.layouts import encode
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example

GAP = "mask"


@dataclass(frozen=True)
class Piece:
    """A piece of a template: words of its own, a text of the example, or the gap.

    Args:
        before: words, or the space in front of a text or a gap.
        name: The name of the text, or of the gap; "" for words.
    """

    before: str
    name: str = ""


def spell_template(names: Sequence[str]) -> str:
    """A template with all of `names`, as a shell takes it."""
    texts = " ".join(f"{{{name}}}" for name in names if name != GAP)
    return spell_setting("task.template", f"{texts} It was {{{GAP}}}.")


def split_template(template: str, columns: Mapping[str, Any]) -> list[Piece]:
    """The pieces of `"{text} It was {mask}."`; a space stands at the begin of the piece behind it,
    as byte-level vocabularies have it.

        >>> split_template("{text} It was {mask}.", {"text": 0})
        [Piece("", "text"), Piece(" It was"), Piece(" ", "mask"), Piece(".")]

    Raises:
        ConfigError: It has no gap or several, or a name that is none of the columns.
    """
    known = [*(name for name in TEXTS if columns.get(name) is not None), GAP]
    found = re.findall(r"\{(\w*)\}", template)
    for name in found:
        if name not in known:
            allowed = f"with {', '.join(f'{{{each}}}' for each in known)}{nearest(name, known)}"
            raise ConfigError("task.template", template, allowed, fix=spell_template(known))
    for name in known:
        if found.count(name) != 1:
            allowed = f"{{{name}}} once; here it is {found.count(name)} times"
            raise ConfigError("task.template", template, allowed, fix=spell_template(known))
    pieces: list[Piece] = []
    space = ""
    for part in filter(None, re.split(r"(\{\w+\})", template)):
        words = part.rstrip()
        if part.startswith("{"):
            pieces.append(Piece(space, part[1:-1]))
            space = ""
        else:
            if words:
                pieces.append(Piece(f"{space}{words}"))
            space = part[len(words) :]
    return pieces


class FilledTemplate:
    """A template with the tokens of an example in it.

    Args:
        pieces: the tokens of each piece.
        places: The positions of the texts and of the gap among them.
    """

    def __init__(self, pieces: list[list[int]], places: Mapping[str, int]) -> None:
        self.pieces, self.places = pieces, places

    @property
    def ids(self) -> list[int]:
        """All tokens."""
        return [token for piece in self.pieces for token in piece]

    @property
    def words(self) -> int:
        """The number of tokens of the texts, which may be cut."""
        return sum(self._lengths())

    @property
    def gap(self) -> int:
        """The position of the gap among the tokens."""
        return sum(len(piece) for piece in self.pieces[: self.places[GAP]])

    def cut(self, room: int) -> int:
        """Cut the texts to `room` tokens together, the longer one first; how many are left."""
        kept = encode.longest_first(*self._lengths(), room)
        for name, length in zip(TEXTS, kept, strict=True):
            if name in self.places:
                place = self.places[name]
                self.pieces[place] = self.pieces[place][:length]
        return sum(kept)

    def _lengths(self) -> tuple[int, int]:
        first, second = (
            len(self.pieces[self.places[name]]) if name in self.places else 0 for name in TEXTS
        )
        return first, second


def fill_template(
    parts: Sequence[Piece], example: Example, tokenizer: Any, gap: int
) -> FilledTemplate:
    """The template with the texts of an example; `gap`: the token in its gap."""
    texts = {name: example.fields.get(name, "") for name in TEXTS}
    pieces = [
        [gap]
        if part.name == GAP
        else tokenizer.encode(f"{part.before}{texts[part.name] if part.name else ''}")
        for part in parts
    ]
    return FilledTemplate(pieces, {part.name: n for n, part in enumerate(parts) if part.name})
