"""HTML becomes text."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser

from plmctl.cleaning.rule import Drop, TextRule
from plmctl.cleaning.text_view import TextView
from plmctl.core.parts import part_of
from plmctl.text.markup import TAG


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOID = _names("area base br col embed hr img input link meta source track wbr")
PARAGRAPHS = _names(
    "article aside blockquote body dl figure footer form h1 h2 h3 h4 h5 h6 header hr main ol p pre"
    " section table title ul"
)
LINES = _names("br caption dd div dt figcaption li nav option summary tr")
CELLS = _names("td th")
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_LINE, _PARAGRAPH = "\0", "\1"  # breaks among the pieces, which no text has
_SPACE = re.compile(r"\s+")
_BREAKS = re.compile(rf"[ \n]*[{_LINE}{_PARAGRAPH}][ \n{_LINE}{_PARAGRAPH}]*")


@part_of("rule")
class HtmlText(TextRule):
    """Documents with HTML become text: tags go, character references are read, and blocks are lines
    or paragraphs. A document without HTML stays as it is.

    It takes menus out by their tags alone; the rules of quality take out the rest of them.

    Args:
        skip: The elements that go with all that is in them.
    """

    def __init__(
        self,
        *,
        skip: Sequence[str] = (
            *("script", "style", "noscript", "template", "svg", "iframe", "textarea"),
            *("select", "button", "nav", "rt", "rp"),
        ),
    ) -> None:
        self.skip = frozenset(name.lower() for name in skip)

    def apply(self, view: TextView) -> TextView | Drop:
        if not TAG.search(view.text):
            found = _REFERENCE.search(view.text)
            text = html.unescape(view.text) if found else view.text
            return view if text == view.text else TextView(text)
        reader = _Reader(self.skip)
        reader.feed(view.text)
        reader.close()
        text = reader.text
        return TextView(text) if text else Drop("no text in its HTML")


class _Reader(HTMLParser):
    """The text of the elements that are not in `skip`."""

    def __init__(self, skip: frozenset[str]) -> None:
        super().__init__(convert_charrefs=True)
        self._skip, self._pieces = skip, list[str]()
        self._stack, self._open = list[str](), Counter[str]()

    @property
    def text(self) -> str:
        """The text, with a break for each run of them."""
        joined = "".join(self._pieces)
        broken = _BREAKS.sub(lambda run: "\n\n" if _PARAGRAPH in run[0] else "\n", joined)
        return broken.strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)
        if tag not in VOID:
            self._stack.append(tag)
            self._open[tag] += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open[tag]:  # elements inside are closed with it
            self._open[last := self._stack.pop()] -= 1
            if last == tag:
                break
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if any(self._open[name] for name in self._skip):
            return
        data = data.replace(_LINE, "").replace(_PARAGRAPH, "")
        if not self._open["pre"]:
            data = _SPACE.sub(" ", data)
            if data.startswith(" ") and self._pieces and self._pieces[-1].endswith(" "):
                data = data[1:]
        self._pieces.append(data)

    def _break(self, tag: str) -> None:
        if tag in PARAGRAPHS:
            self._pieces.append(_PARAGRAPH)
        elif tag in LINES:
            self._pieces.append(_LINE)
        elif tag in CELLS:
            self._pieces.append(" ")
