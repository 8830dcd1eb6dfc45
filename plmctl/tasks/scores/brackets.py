"""Labelled brackets of trees of phrases, counted as evalb does (Sekine and Collins, 1997; with
COLLINS.prm, by which parsers of the Penn Treebank are compared: Black et al., 1991).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from plmctl.tasks.phrase_tree import Branch, TaggedWord
from plmctl.tasks.scores.metrics import divide_counts

# words with these tags are taken out, and phrases with these labels are not counted
DELETED = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
EQUAL = {"PRT": "ADVP"}
NAMES = ("f1", "precision", "recall", "exact")
Bracket = tuple[str, int, int]  # label, first word, the word behind the last


def describe_brackets(name: str) -> str:
    """The kind of a metric of `NAMES`."""
    whole = "share of sentences with all brackets right"
    return whole if name == "exact" else "labelled brackets, micro average as in evalb"


def find_brackets(tree: Branch) -> Counter[Bracket]:
    """The count of each bracket of a tree, over the words that stay; parts of speech are no
    brackets, and a phrase without such words is none.
    """
    found: Counter[Bracket] = Counter()
    _count(tree, 0, found)
    return found


def _count(tree: Branch, start: int, found: Counter[Bracket]) -> int:
    """Add the brackets of a tree whose first word is number `start`; the number behind its last."""
    if isinstance(tree, TaggedWord):
        return start + (tree.tag not in DELETED)
    end = start
    for child in tree.children:
        end = _count(child, end, found)
    if end > start and tree.label not in DELETED:
        found[EQUAL.get(tree.label, tree.label), start, end] += 1
    return end


def score_trees(golds: Sequence[Branch], guesses: Sequence[Branch]) -> dict[str, float]:
    """Precision, recall and F1 of all brackets together, and the share of sentences whose brackets
    are all right.
    """
    right = present = guessed = exact = 0
    for gold, guess in zip(golds, guesses, strict=True):
        own, other = find_brackets(gold), find_brackets(guess)
        both = (own & other).total()
        right, present, guessed = right + both, present + own.total(), guessed + other.total()
        exact += own == other
    precision, recall, f1 = divide_counts(right, guessed, present)
    whole = exact / len(golds) if golds else 0.0
    return {"f1": f1, "precision": precision, "recall": recall, "exact": whole}
