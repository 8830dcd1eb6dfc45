"""Tagged spans: precision and recall of each type, kinds of errors, and sentences with errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from plmctl.report.page import Block, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import SplitPredictions
from plmctl.report.text import format_percent
from plmctl.tasks.readers.tag_spelling import describe_unmarked
from plmctl.tasks.scores.metrics import Entity, entities

MOST = 10
KINDS = {  # kinds of a gold or guessed span that is not exactly right, the first that fits
    "another type": "the same words, another type",
    "other bounds": "words in common",
    "missed": "no guess has a word of it",
    "made up": "a guess without a word of any gold span",
}


@panel_of(SplitPredictions, order=10.5, title="Spans", brief=True)
def panel(found: SplitPredictions) -> list[Block]:
    """Tables of types and of errors."""
    if not (pairs := _read_pairs(found)):
        return []
    kinds = sorted({span[0] for pair in pairs for spans in pair for span in spans})
    counts = Counter(kind for golds, guesses in pairs for kind in classify_errors(golds, guesses))
    wrong = TableBlock(
        ["error", "spans", "meaning"],
        [[kind, str(counts[kind]), what] for kind, what in KINDS.items()],
    )
    head = ["type", "gold", "guessed", "right", "precision", "recall"]
    return [TableBlock(head, [_row(kind, pairs) for kind in kinds]), wrong]


@panel_of(SplitPredictions, order=10.6, title="Sentences with wrong spans")
def sentences(found: SplitPredictions) -> list[Block]:
    """A table of the sentences with most errors."""
    pairs, rows = _read_pairs(found), found.rows
    unlike = [index for index, (golds, guesses) in enumerate(pairs) if golds != guesses]
    worst = sorted(unlike, key=lambda index: -len(pairs[index][0] ^ pairs[index][1]))[:MOST]
    lines = [
        [_mark_spans(rows[index]["words"], spans) for spans in pairs[index]] for index in worst
    ]
    return [TableBlock(["gold", "guess"], lines)] if lines else []


def _read_pairs(found: SplitPredictions) -> list[tuple[set[Entity], set[Entity]]]:
    """The gold and guessed spans of each sentence; none where tags mark no spans."""
    rows = found.rows
    if "words" not in rows[0] or rows[0].get("gold") is None:
        return []
    if describe_unmarked(tag for row in rows for tag in (*row["gold"], *row["guess"])):
        return []
    return [(entities(row["gold"]), entities(row["guess"])) for row in rows]


def _row(kind: str, pairs: Sequence[tuple[set[Entity], set[Entity]]]) -> list[str]:
    gold, guess = (sum(span[0] == kind for pair in pairs for span in pair[side]) for side in (0, 1))
    right = sum(span[0] == kind for golds, guesses in pairs for span in golds & guesses)
    return [
        kind,
        str(gold),
        str(guess),
        str(right),
        *(format_percent(right / n) if n else "" for n in (guess, gold)),
    ]


def classify_errors(gold: set[Entity], guess: set[Entity]) -> list[str]:
    """One of `KINDS` for every span that is not exactly right; a gold span and the guess that
    overlaps it are one error.
    """
    errors, matched = [], set()
    for _, first, last in sorted(gold - guess):
        others = {span for span in guess - gold if span[1] <= last and first <= span[2]}
        matched |= others
        same = any(span[1:] == (first, last) for span in others)
        errors.append("another type" if same else "other bounds" if others else "missed")
    return errors + ["made up"] * len(guess - gold - matched)


def _mark_spans(words: Sequence[str], spans: set[Entity]) -> str:
    """The words with their spans in brackets: `[EU]ORG rejects ...`."""
    begins = {first: "[" for _, first, _ in spans}
    ends = {last: f"]{kind}" for kind, _, last in spans}
    return " ".join(
        f"{begins.get(index, '')}{word}{ends.get(index, '')}" for index, word in enumerate(words)
    )
