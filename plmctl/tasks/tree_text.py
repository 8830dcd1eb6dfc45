"""Trees of phrases as text that a model writes, and the tree of any text (Vinyals et al., 2015,
arXiv:1412.7449, sec. 2.2 and 3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from plmctl.tasks.phrase_tree import DEEPEST, ROOT, Branch, Phrase, TaggedWord

WORD = "XX"  # stands for every word, whatever its part of speech
_TOKEN = re.compile(r"[()]|[^()\s]+")


class ReadTree(NamedTuple):
    """The tree of a text, and whether the text is one of just these words."""

    tree: Branch
    well_formed: bool


def write_tree(tree: Branch) -> str:
    """The brackets of a tree, each with its label at both ends, and `WORD` for each word:
    "(S (NP XX )NP (VP XX )VP )S".
    """
    if isinstance(tree, TaggedWord):
        return WORD
    return f"({tree.label} {' '.join(map(write_tree, tree.children))} ){tree.label}"


def read_tree(text: str, words: Sequence[TaggedWord]) -> ReadTree:
    """The tree over `words` that a text of brackets means, in any spacing and case; labels are in
    upper case.

    Any text is some tree. Missing words stand at its end; surplus words are left out, as are
    brackets that were never opened and phrases without words. Open brackets end at the end.
    """
    builder = _Builder(words)
    for sign, name in _split(text):
        if sign == "(":
            builder.open(name)
        elif sign == ")":
            builder.close()
        elif sign == WORD:
            builder.add_word()
            builder.well_formed &= not name
        else:
            builder.well_formed = False
    return builder.finish()


def _split(text: str) -> Iterator[tuple[str, str]]:
    """(a bracket or WORD, what stands behind it) in their order, behind ("", what stands before
    all); pieces of a label are joined.
    """
    sign, name = "", ""
    for token in _TOKEN.findall(text.upper()):
        if token not in "()" and token != WORD:
            name += token  # a part of a label; the one at the other end adds nothing
            continue
        if sign or name:
            yield sign, name
        sign, name = token, ""
    if sign or name:
        yield sign, name


@dataclass
class _Builder:
    words: Sequence[TaggedWord]
    well_formed: bool = True
    placed: int = 0  # words
    too_deep: int = 0  # brackets below the deepest one that are open
    stack: list[tuple[str, list[Branch]]] = field(default_factory=lambda: [("", [])])

    def open(self, label: str) -> None:
        self.well_formed &= bool(label)
        if len(self.stack) > DEEPEST:
            self.too_deep += 1
            self.well_formed = False
            return
        self.stack.append((label, []))

    def close(self) -> None:
        if self.too_deep:
            self.too_deep -= 1
            return
        if len(self.stack) == 1:
            self.well_formed = False
            return
        label, children = self.stack.pop()
        self.well_formed &= bool(children)
        above = self.stack[-1][1]
        above += [Phrase(label, tuple(children))] if label and children else children

    def add_word(self) -> None:
        if self.placed == len(self.words):
            self.well_formed = False
            return
        self.stack[-1][1].append(self.words[self.placed])
        self.placed += 1

    def finish(self) -> ReadTree:
        closed = len(self.stack) == 1 and self.placed == len(self.words)
        self.well_formed &= closed and len(self.stack[0][1]) == 1
        self.too_deep = 0
        while len(self.stack) > 1:
            self.close()
        found = [*self.stack[0][1], *self.words[self.placed :]]
        return ReadTree(
            found[0] if len(found) == 1 else Phrase(ROOT, tuple(found)), self.well_formed
        )
