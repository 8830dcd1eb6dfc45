"""Trees of phrases: bracketed text, what is taken out of it, and labels of words that say the same
as a tree.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

ROOT = "TOP"
ROOTS = ("", ROOT, "ROOT", "S1")  # labels above a whole sentence, which are no phrases
TRACE = "-NONE-"  # the tag of an omitted word
CHAIN, PARTS = "+", "~"  # between labels of a chain, and between the parts of a word's label
DEEPEST = 200  # brackets inside each other
_TOKEN = re.compile(r"[()]|[^()\s]+")


@dataclass(frozen=True)
class TaggedWord:
    """A word of a tree, with its part of speech."""

    tag: str
    word: str

    def __str__(self) -> str:
        return f"({self.tag} {self.word})"


@dataclass(frozen=True)
class Phrase:
    """A constituent: its label, and what is in it."""

    label: str
    children: tuple[Phrase | TaggedWord, ...]

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.children))})"


Branch = Phrase | TaggedWord


class BracketError(ValueError):
    """Brackets that make no tree, and the line where it shows."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class _Open:
    """A bracket that is not closed yet."""

    line: int
    names: list[str] = field(default_factory=list)  # a label, and a word
    children: list[Branch] = field(default_factory=list)

    def close(self, line: int) -> Branch:
        if len(self.names) == 2:
            return TaggedWord(*self.names)
        if not self.children:
            raise BracketError(
                line, f"({''.join(self.names)}) has neither a word nor phrases in it"
            )
        return Phrase("".join(self.names), tuple(self.children))


def parse_trees(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Branch]]:
    """(the line where it begins, the tree) of every tree of numbered lines of brackets, as in the
    Penn Treebank; BracketError for other text.
    """
    stack: list[_Open] = []
    for line, text in lines:
        for token in _TOKEN.findall(text):
            if token == "(":
                if len(stack) == DEEPEST:
                    raise BracketError(line, f"more than {DEEPEST} brackets inside each other")
                if stack and len(stack[-1].names) == 2:
                    raise BracketError(
                        line, f"a phrase behind the word '{stack[-1].names[1][:40]}'"
                    )
                stack.append(_Open(line))
            elif not stack:
                what = "a ) too many" if token == ")" else f"'{token[:40]}' stands in no brackets"
                raise BracketError(line, what)
            elif token == ")":
                last = stack.pop()
                made = last.close(line)
                if stack:
                    stack[-1].children.append(made)
                else:
                    yield last.line, made
            elif stack[-1].children or len(stack[-1].names) == 2:
                raise BracketError(
                    line, f"'{token[:40]}' stands behind the contents of its brackets"
                )
            else:
                stack[-1].names.append(token)
    if stack:
        raise BracketError(stack[0].line, "the tree that begins here does not end")


def clean(tree: Branch) -> Branch | None:
    """The tree without traces, phrases that these leave empty, functions behind labels (NP-SBJ-1
    becomes NP), and a root without a meaning; None where nothing is left.
    """
    if isinstance(tree, TaggedWord):
        return None if tree.tag == TRACE else tree
    children = tuple(kept for child in tree.children if (kept := clean(child)) is not None)
    label = re.sub(r"(?<=.)[-=].*", "", tree.label)
    if not children:
        return None
    if label in ROOTS:
        return children[0] if len(children) == 1 else Phrase(ROOT, children)
    return Phrase(label, children)


def words_of(tree: Branch) -> list[TaggedWord]:
    """The words in their order."""
    if isinstance(tree, TaggedWord):
        return [tree]
    return [word for child in tree.children for word in words_of(child)]


def linearise(tree: Branch) -> list[str]:
    """A label `n~c~u` for each word w_i of a tree (Gomez-Rodriguez and Vilares, 2018,
    arXiv:1810.08994, sec. 3 and 4.1: the relative scale, and a leaf's unary chain). The number n
    counts the phrases that w_i and w_(i+1) are in together, less the same number of the word
    before. The lowest of them is c; u are the phrases of w_i alone. Phrases that have the same
    words are one, "S+VP". The last word has u alone.
    """
    paths = list(_find_paths(tree, (), itertools.count()))
    labels, before = [], 0
    for (one, own), (other, _) in itertools.pairwise(paths):
        common = sum(1 for _ in itertools.takewhile(_same, zip(one, other, strict=False)))
        labels.append(PARTS.join((f"{common - before:+d}", one[common - 1][1], own)))
        before = common
    return [*labels, PARTS.join(("", "", paths[-1][1]))]


def _same(pair: tuple[object, object]) -> bool:
    return pair[0] == pair[1]


def _find_paths(
    tree: Branch, above: tuple[tuple[int, str], ...], numbers: Iterator[int]
) -> Iterator[tuple[tuple[tuple[int, str], ...], str]]:
    """((number, label) of each phrase above a word, the chain of its own phrases)."""
    chain: list[str] = []
    while isinstance(tree, Phrase) and len(tree.children) == 1:
        chain.append(tree.label)
        tree = tree.children[0]
    if isinstance(tree, TaggedWord):
        yield above, CHAIN.join(chain)
        return
    own = (*above, (next(numbers), CHAIN.join([*chain, tree.label])))
    for child in tree.children:
        yield from _find_paths(child, own, numbers)


@dataclass
class _Level:
    """A phrase that is being built."""

    label: str = ""
    children: list[Branch | _Level] = field(default_factory=list)

    def finish(self) -> list[Branch]:
        """Itself, or its children where no word gave it a label."""
        found = [
            made
            for child in self.children
            for made in (child.finish() if isinstance(child, _Level) else [child])
        ]
        return [_wrap(self.label, found)] if self.label else found


def _wrap(chain: str, children: Sequence[Branch]) -> Branch:
    """The phrases of a chain around `children`; one child without a chain is itself."""
    made = tuple(children)
    for label in reversed(chain.split(CHAIN) if chain else []):
        made = (Phrase(label, made),)
    return made[0]


def build_tree(labels: Sequence[str], words: Sequence[TaggedWord]) -> Branch:
    """The tree of `linearise`d labels, and some tree of any others: a phrase has the first label
    that a word gives it; one without a label is left out; no number leads above the root.
    """
    root = _Level()
    path, level = [root], 0  # path[k] holds phrases of level k + 1
    for at, (label, word) in enumerate(zip(labels, words, strict=True)):
        step, common, own = [*label.split(PARTS), "", ""][:3]
        last = at == len(words) - 1
        following = 0 if last else max(1, level + (int(step) if step else 0))
        following = min(following, DEEPEST)
        while len(path) <= max(level, following):
            path[-1].children.append(lower := _Level())
            path.append(lower)
        path[-1].children.append(_wrap(own, [word]))
        del path[following + 1 :]
        if not last and not path[-1].label:
            path[-1].label = common
        level = following
    found = root.finish()
    return found[0] if len(found) == 1 else Phrase(ROOT, tuple(found))


def read_bracketed(text: str) -> Branch:
    """The tree of a text of brackets, which is one."""
    ((_, tree),) = parse_trees([(1, text)])
    return tree
