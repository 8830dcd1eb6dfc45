"""Wikitext (the markup of MediaWiki) to plain text with its links.

Own code: mwparserfromhell reads 1.3 MB/s a core, and this five times as much, with the same words
in running text (benchmarks/linking.py; tests compare them). Templates are not expanded: this needs
the wiki itself.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote

# marks that the cleaned text carries until its offsets are known: START number MIDDLE text END
_START, _MIDDLE, _END = "\ue000", "\ue001", "\ue002"
_OWN = re.compile("[\ue000-\ue00f]")
# characters of <nowiki> that would be markup
_HIDDEN = {ord(char): 0xE003 + n for n, char in enumerate("[]{}|='<>*#")}
_SHOWN = {code: chr(char) for char, code in _HIDDEN.items()}

# tags that are removed with their content
_WITHOUT = (
    "ref|references|math|chem|ce|gallery|timeline|score|syntaxhighlight|source|imagemap|hiero"
    "|graph|mapframe|maplink|templatedata|templatestyles|inputbox|table|includeonly"
)
_VERBATIM = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<nowiki\s*/>|<nowiki>(?P<plain>.*?)</nowiki>|<pre\b[^<>]*>(?P<pre>.*?)</pre\s*>"
    rf"|<(?P<name>{_WITHOUT})\b(?:[^<>/]|/(?!>))*(?:/>|>.*?</(?P=name)\s*>)",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<(?:(br|p|/p|div|/div|li|tr|td)\b|/?[a-zA-Z])[^<>]*>", re.IGNORECASE)
# templates whose last argument is what a reader sees, and measures
_VISIBLE = re.compile(
    r"\{\{\s*(?:lang|lang-\w+|nowrap|nobr|transl|small|smallcaps|sic|abbr)\s*\|"
    r"(?:[^{}|\[\]]*\|)*?([^{}|=]*)(?:\|[^{}|=]*=[^{}|]*)*\}\}"
    r"|\{\{\s*(?:convert|cvt)\s*\|([^{}|]+)\|([^{}|]+)[^{}]*\}\}",
    re.IGNORECASE,
)
# templates that stand for a sign
_SIGNS = {"ndash": "–", "mdash": "—", "spaced ndash": " – ", "snd": " – ", "'": "'", '"': '"'}
_SIGN = re.compile(r"\{\{\s*(" + "|".join(map(re.escape, _SIGNS)) + r")\s*\}\}", re.IGNORECASE)
_BRACES = re.compile(r"\{\{+|\}\}+|^[ \t:]*\{\||^[ \t]*\|\}(?!\})", re.MULTILINE)
_SQUARE = re.compile(r"\[\[|\]\]")
_EXTERNAL = re.compile(r"\[(?:https?:|ftp:|mailto:|//)[^\s\]]*(?:[ \t]+([^\]\n]*))?\]")
_QUOTES = re.compile(r"'{2,5}")
_MAGIC = re.compile(r"__[A-Z]+__")
_HEADING = re.compile(r"^(=+)[ \t]*(.*?)[ \t]*=+[ \t]*$", re.MULTILINE)
_ITEM = re.compile(r"^[*#:;]+[ \t]*", re.MULTILINE)
_RULE = re.compile(r"^-{4,}", re.MULTILINE)
_EMPTY = re.compile(r"\((?:[\s,;:–-]|\ue000\d+\ue001\ue002)*\)")
_OPENING = re.compile(r"\(\s*[;,]\s*")  # start of "(/IPA/; 1809–1865)" without its template
_SPACES = re.compile(r"[ \t\xa0\u200b]+")
_BEFORE = re.compile(r" +([,.;:)\]])")
_MARKED = re.compile(r"\ue000(\d+)\ue001|\ue002")
# letters that belong to a link before them: [[dog]]s
_TRAIL = re.compile("[a-zß-öø-ÿā-žа-яёα-ω]+")
_REDIRECT = re.compile(r"\s*#[^\s\[:]+\s*:?\s*\[\[([^\]|]*)")
_FOREIGN = re.compile(r"(?:simple|[a-z]{2,3}(?:-[a-z-]+)?):")
_OTHER_WIKI = re.compile(r"[a-z][a-z-]+:\S")  # wikt:word
_INFOBOX = re.compile(
    r"\{\{\s*(?:infobox[ _]([^|}\n<]+?)|(?:automatic[ _])?(taxobox|speciesbox|chembox)[^|}\n<]*?)"
    r"\s*[|}\n<]",
    re.IGNORECASE,
)


class WikiLink(NamedTuple):
    """A mention in a text."""

    start: int
    end: int
    title: str  # title of the page, as the wiki would spell it; "" is the page itself


class Article(NamedTuple):
    """The content of a page."""

    text: str  # a paragraph a line
    links: list[WikiLink]  # in order, without overlap
    categories: list[str]
    boxes: list[str]  # subjects of its infoboxes


class Wiki:
    """How one wiki names its pages.

    Args:
        namespaces: {name: number}, the main one without a name.
        first_letter: whether the first letter of a title is upper case.
        without: sections that are left out with all below them, by their headings.
        lists: whether lines of lists are text.
    """

    def __init__(
        self,
        namespaces: dict[str, int],
        *,
        first_letter: bool = True,
        without: Collection[str] = (),
        lists: bool = True,
    ) -> None:
        self.namespaces = {name.casefold(): number for name, number in namespaces.items() if name}
        self.namespaces |= {"file": 6, "image": 6, "media": -2, "category": 14}
        self.first_letter, self.lists = first_letter, lists
        self.without = {name.casefold() for name in without}

    def title(self, target: str) -> str:
        """The title that a link's target means: without its section, spelt as the wiki does."""
        name = target.partition("#")[0]
        if "%" in name:
            name = unquote(name)
        name = " ".join(html.unescape(name).replace("_", " ").split()).lstrip(":").strip()
        return name[:1].upper() + name[1:] if self.first_letter else name

    def namespace(self, title: str) -> int:
        """The number of a title's namespace; 0 is that of articles."""
        prefix, colon, _ = title.partition(":")
        return self.namespaces.get(prefix.strip().casefold(), 0) if colon else 0

    def redirect(self, text: str) -> str:
        """Where the text of a page sends its reader; "" where it does not."""
        if text[:1] != "#" and not text.lstrip().startswith("#"):
            return ""
        found = _REDIRECT.match(text)
        return self.title(found[1]) if found else ""

    def read(self, text: str) -> Article:
        """The text, links, categories and infoboxes of a page."""
        boxes = [
            (found[1] or found[2]).partition("/")[0].strip().replace("_", " ").lower()
            for found in _INFOBOX.finditer(text)
        ]
        text = _OWN.sub("", text).replace("\r", "")
        text = _VERBATIM.sub(_show_verbatim, text)
        text = _SIGN.sub(lambda found: _SIGNS[found[1].lower()], text)
        text = _VISIBLE.sub(_show_template, text)
        text = remove_braces(text)
        text, links, categories = self._find_links(text)
        text = self._clean(text)
        return Article(*_place(text, links), categories, boxes)

    def _find_links(self, text: str) -> tuple[str, list[str], list[str]]:
        """The text with marks instead of its links; their titles; the categories of the page."""
        links: list[str] = []
        categories: list[str] = []
        open_: list[tuple[int, list[str]]] = []  # position of the text inside, pieces before
        pieces: list[str] = []
        at = 0
        for found in _SQUARE.finditer(text):
            begin, end = found.span()
            if begin < at:
                continue
            if found[0] == "[[":
                pieces.append(text[at:begin])
                open_.append((end, pieces))
                pieces, at = [], end
            elif open_:
                pieces.append(text[at:begin])
                inside = "".join(pieces)
                _, pieces = open_.pop()
                trail = _TRAIL.match(text, end)
                at = trail.end() if trail else end
                shown = self._show_link(inside, links, categories, trail[0] if trail else "")
                pieces.append(shown)
        pieces.append(text[at:])
        while open_:  # never closed: plain text
            rest = pieces
            _, pieces = open_.pop()
            pieces += rest
        return "".join(pieces), links, categories

    def _show_link(self, inside: str, links: list[str], categories: list[str], trail: str) -> str:
        """The visible text of a link, marked if it leads to an article."""
        target, pipe, shown = inside.partition("|")
        if _START in target or "\n" in target:  # brackets around another link
            return inside.rpartition("|")[2] + trail
        target = target.strip()
        number = 0 if target.startswith("#") else self.namespace(target.lstrip(":"))
        if not target.startswith(":"):
            if number in (6, -2):
                return trail
            if number == 14:
                categories.append(self.title(target).partition(":")[2].strip())
                return trail
            if not pipe and _FOREIGN.match(target):
                return trail
        shown = shown if pipe else target.lstrip(":")
        if pipe and not shown.strip():  # [[Rome (film)|]]
            shown = re.sub(r"\s*\([^()]*\)$|,.*$", "", target.partition(":")[2] or target)
        if _START in shown:  # a link inside of a link: the inner one counts
            return shown + trail
        shown = " ".join((shown + trail).split())
        title = self.title(target)
        if number != 0 or not shown or not title or _OTHER_WIKI.match(target):
            return shown
        links.append(title)
        return f"{_START}{len(links) - 1}{_MIDDLE}{shown}{_END}"

    def _clean(self, text: str) -> str:
        """The text without the markup of lines, tags, quotes and sections."""
        text = _EXTERNAL.sub(lambda found: found[1] or "", text)
        text = _TAG.sub(lambda found: "\n" if found[1] else "", text)
        text = _MAGIC.sub("", _QUOTES.sub("", text))
        text = self._cut_sections(text)
        if self.lists:
            text = _ITEM.sub("", text)
        else:
            text = re.sub(r"^[*#:;].*$", "", text, flags=re.MULTILINE)
        text = html.unescape(_RULE.sub("", text)).translate(_SHOWN)
        text = _SPACES.sub(" ", text)
        text = _BEFORE.sub(r"\1", _OPENING.sub("(", _EMPTY.sub("", text)))
        lines = (_SPACES.sub(" ", line).strip() for line in text.split("\n"))
        return "\n".join(line for line in lines if line.strip("|!{}-*#:; "))

    def _cut_sections(self, text: str) -> str:
        """The text without headings, and without the sections that are left out."""
        pieces: list[str] = []
        at, skipped = 0, 0  # depth of the section that is left out
        for found in _HEADING.finditer(text):
            if not skipped:
                pieces.append(text[at : found.start()])
            at, depth = found.end(), len(found[1])
            if not skipped or depth <= skipped:
                name = _MARKED.sub("", found[2]).strip().casefold()
                skipped = depth if name in self.without else 0
        if not skipped:
            pieces.append(text[at:])
        return "\n".join(pieces)


def remove_braces(text: str) -> str:
    """The text without templates `{{...}}`, parameters `{{{...}}}` and tables `{|...|}`, nested or
    not; braces that nothing closes go alone.
    """
    open_: list[tuple[int, int]] = []  # (position, braces: 2, 3, or 0 of a table)
    spans: list[tuple[int, int]] = []
    loose: list[tuple[int, int]] = []
    for found in _BRACES.finditer(text):
        begin, end = found.span()
        sign = found[0]
        if sign[-1] == "{":  # the innermost of an odd number is a parameter
            odd = (end - begin) % 2
            inner = end - 3 if odd else end
            open_ += [(at, 2) for at in range(begin, inner, 2)] + [(end - 3, 3)] * odd
        elif sign[0] == "}":
            while end - begin >= 2 and any(size for _, size in open_):
                while not open_[-1][1]:  # a table that its template ends
                    open_.pop()
                start, size = open_.pop()
                size = min(size, end - begin)
                begin += size
                spans.append((start, begin))
            if end > begin:
                loose.append((begin, end))
        elif sign.endswith("{|"):
            open_.append((begin, 0))
        else:
            while open_ and open_[-1][1]:
                at, size = open_.pop()
                loose.append((at, at + size))
            if open_:
                spans.append((open_.pop()[0], end))
    loose += [(at, at + (size or 2)) for at, size in open_]
    return _without(text, sorted([*spans, *loose]))


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """The text without sorted spans, of which some lie in others."""
    pieces, at = [], 0
    for begin, end in spans:
        if end > at:
            pieces.append(text[at : max(at, begin)])
            at = end
    return "".join([*pieces, text[at:]])


def _place(text: str, titles: list[str]) -> tuple[str, list[WikiLink]]:
    """The text without marks, and where its links are."""
    pieces: list[str] = []
    links: list[WikiLink] = []
    size = at = start = 0
    number = -1
    for found in _MARKED.finditer(text):
        piece = text[at : found.start()]
        pieces.append(piece)
        size, at = size + len(piece), found.end()
        if found[1]:
            start, number = size, int(found[1])
        elif number >= 0:
            inside = pieces[-1]
            left = start + len(inside) - len(inside.lstrip())
            right = size - len(inside) + len(inside.rstrip())
            if left < right and len(inside) == size - start:
                links.append(WikiLink(left, right, titles[number]))
            number = -1
    return "".join([*pieces, text[at:]]), links


def _show_verbatim(found: re.Match[str]) -> str:
    """The remains of a comment (nothing), of <nowiki> (its text) and of tags that are removed with
    their content.
    """
    plain = found["plain"] if found["plain"] is not None else found["pre"]
    return "" if plain is None else plain.translate(_HIDDEN)


def _show_template(found: re.Match[str]) -> str:
    return found[1] if found[1] is not None else f"{found[2]} {found[3]}"
