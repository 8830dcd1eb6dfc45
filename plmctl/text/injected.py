"""Tokens for whole words or names, in addition to the pieces of a tokenizer. Their vectors come
from other models (Schick and Schütze, 2020: BERTRAM; Poerner et al., 2020: E-BERT).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from plmctl.core.errors import DataError
from plmctl.text.backend import Backend, Cut, Span, cut_nowhere
from plmctl.text.letters import JOINTS, compose, find_words

FILE = "injected.json"  # in a tokenizer's folder
Form = Literal["plain", "replace", "slash", "before"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True)
class InjectedToken:
    """A token for a word or name.

    Args:
        token: The spelling in the vocabulary.
        form: The use of the token in a text. "plain": none; "replace": instead of the pieces;
            "slash": behind them and a slash; "before": before a slash and them.
        cased: the text must have the same capital letters.
    """

    text: str
    token: str
    form: Form
    cased: bool = False


class InjectedBackend:
    """A `Backend`: `inner`, and tokens of whole words.

        slash    unicycle -> uni ##cycle / <word:unicycle>
        before   Paris -> <word:Paris> / paris
        replace  unicycle -> <word:unicycle>

    Among names of several words the longest counts; a name begins and ends with a word. A token
    that is added to the pieces covers no character.
    """

    def __init__(self, inner: Backend, added: Sequence[InjectedToken]) -> None:
        self.inner, self.added = inner, tuple(added)
        self.tokens = [*inner.tokens, *(entry.token for entry in added)]
        self.special = inner.special
        self.cut: Cut = cut_nowhere  # a part may be a word that is none in the text
        self._known: dict[bool, dict[str, int]] = {True: {}, False: {}}
        self._longest = 0  # words of a name
        for number, entry in enumerate(self.added):
            if entry.form != "plain":
                key = compose(entry.text if entry.cased else entry.text.lower())
                self._known[entry.cased].setdefault(key, number)
                self._longest = max(self._longest, len(list(find_words(entry.text, joints=JOINTS))))
        self._slash = inner.encode("a / b")[len(inner.encode("a")) : -len(inner.encode(" b"))]

    def reserve(self, tokens: Collection[str]) -> None:
        """Let none of these tokens stand for text either."""
        self.inner.reserve(tokens)
        self.special = self.inner.special

    def encode(self, text: str) -> list[int]:
        """The ids of `text`."""
        return self.encode_offsets(text)[0] if self._find(text) else self.inner.encode(text)

    def encode_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Ids, and for each the span of characters of `text` that it covers."""
        ids, spans = self.inner.encode_offsets(text)
        out: list[int] = []
        out_spans: list[Span] = []
        done = 0
        for start, end, number in self._find(text):
            first, last = _find_covered(text, spans, start, end, done)
            if first == last:
                continue  # its pieces are not its own
            pieces, own = ids[first:last], [len(self.inner.tokens) + number]
            form = self.added[number].form
            out += ids[done:first]
            out_spans += spans[done:first]
            if form == "replace":
                out += own
                out_spans.append((start, end))
            else:
                behind = [*self._slash, *own] if form == "slash" else []
                before = [*own, *self._slash] if form == "before" else []
                out += [*before, *pieces, *behind]
                out_spans += [(spans[first][0],) * 2] * len(before) + spans[first:last]
                out_spans += [(end, end)] * len(behind)
            done = last
        return [*out, *ids[done:]], [*out_spans, *spans[done:]]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; a token that is added to pieces is left out."""
        plain: list[int] = []
        skip, slash = 0, len(self._slash)
        for token in ids:
            number = token - len(self.inner.tokens)
            if skip and number < 0:
                skip -= 1
            elif number < 0:
                plain.append(token)
            elif self.added[number].form == "slash":
                del plain[len(plain) - slash :]
            elif self.added[number].form == "before":
                skip = slash
            else:
                plain += self.inner.encode(f" {self.added[number].text}")
        return self.inner.decode(plain)

    def normalize(self, text: str) -> str:
        """As `inner`."""
        return self.inner.normalize(text)

    def files(self) -> dict[str, bytes]:
        """The files of `inner`, and the tokens."""
        entries = [asdict(entry) for entry in self.added]
        content = json.dumps(entries, ensure_ascii=False, indent=0)
        return {**self.inner.files(), FILE: content.encode()}

    def _find(self, text: str) -> list[tuple[int, int, int]]:
        """(start, end, number of the token) of each word or name, from left to right."""
        words = [match.span() for match in find_words(text, joints=JOINTS)] if self._longest else []
        found, at = [], 0
        while at < len(words):
            step = 1
            for count in range(min(self._longest, len(words) - at), 0, -1):
                start, end = words[at][0], words[at + count - 1][1]
                number = self._look_up(text[start:end])
                if number is not None:
                    found.append((start, end, number))
                    step = count
                    break
            at += step
        return found

    def _look_up(self, name: str) -> int | None:
        number = self._known[True].get(compose(name))
        return self._known[False].get(compose(name.lower())) if number is None else number


def _find_covered(
    text: str, spans: Sequence[Span], start: int, end: int, since: int
) -> tuple[int, int]:
    """The tokens from number `since` on that cover characters start..end - 1 and no others, with
    pieces of white space before them; an empty range where a token covers more.
    """
    inside = [
        number
        for number in range(since, len(spans))
        if spans[number][0] < end and spans[number][1] > start
    ]
    if not inside or spans[inside[0]][0] < start or spans[inside[-1]][1] > end:
        return since, since
    first = inside[0]
    while first > since and not text[slice(*spans[first - 1])].strip():
        first -= 1
    return first, inside[-1] + 1


def read_added(content: bytes, file: object) -> list[InjectedToken]:
    """The tokens of a file; DataError for a damaged one."""
    try:
        entries = [InjectedToken(**entry) for entry in json.loads(content)]
        if any(
            entry.form not in FORMS
            or not isinstance(entry.text, str)
            or type(entry.cased) is not bool
            for entry in entries
        ):
            raise ValueError("a token of no known form")
    except (ValueError, TypeError) as error:
        raise DataError(
            f"not a list of tokens ({error})", file=file, fix="copy the whole folder again"
        ) from error
    return entries
