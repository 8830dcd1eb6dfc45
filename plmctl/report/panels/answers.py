"""Question answering: the kinds of wrong answers, and the most confident wrong ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import SplitPredictions
from plmctl.report.text import clip, format_percent
from plmctl.tasks.scores.squad import Overlap, exact, f1

MOST = 10
KINDS = {
    "exact": "an answer of the file",
    "overlap": "words in common with one",
    "elsewhere": "no word in common",
    "should be empty": "an answer to a question that has none",
    "left empty": "no answer to a question that has one",
    "rightly empty": "no answer to an unanswerable question",
}


def classify_answer(
    row: Mapping[str, Any], *, threshold: float | None, overlap: Overlap = "bag"
) -> str:
    """One of `KINDS`; above the odds `threshold` the answer is empty, None if every question has an
    answer.
    """
    golds, guess = row["golds"], answer(row, threshold)
    if not golds:
        return "should be empty" if guess else "rightly empty"
    if not guess:
        return "left empty"
    if max(exact(gold, guess, overlap=overlap) for gold in golds):
        return "exact"
    shared = max(f1(gold, guess, overlap=overlap) for gold in golds)
    return "overlap" if shared > 0 else "elsewhere"


def answer(row: Mapping[str, Any], threshold: float | None) -> str:
    """The predicted answer: empty above the threshold."""
    return "" if threshold is not None and row["null_odds"] > threshold else str(row["guess"] or "")


@panel_of(SplitPredictions, order=10.7, title="Answers")
def panel(found: SplitPredictions) -> list[Block]:
    """The kinds of wrong answers, and the worst of them."""
    rows = found.rows
    if not {"golds", "n_best"} <= rows[0].keys():
        return []
    task = found.run.log.config.get("task") or {}
    threshold = float(task.get("null_threshold") or 0.0) if task.get("version") == 2 else None
    overlap: Overlap = task.get("overlap") or "bag"
    kinds = [classify_answer(row, threshold=threshold, overlap=overlap) for row in rows]
    counts = Counter(kinds)
    table = TableBlock(
        ["answer", "questions", "share", "meaning"],
        [
            [name, str(counts[name]), format_percent(counts[name] / len(rows)), what]
            for name, what in KINDS.items()
            if counts[name]
        ],
    )
    wrong = [index for index, kind in enumerate(kinds) if kind not in ("exact", "rightly empty")]
    worst = sorted(wrong, key=lambda index: rows[index]["null_odds"])[:MOST]
    fields, note = found.load_texts()
    lines = [
        [
            kinds[index],
            clip(" / ".join(dict.fromkeys(rows[index]["golds"])) or "(none)", 120),
            clip(answer(rows[index], threshold) or "(none)", 120),
            *([clip(fields[index]["question"])] if fields else []),
        ]
        for index in worst
    ]
    head = ["error", "gold", "guess", *(["question"] if fields else [])]
    about = Paragraph(f"Wrong answers that the model prefers most to none. {note}".strip())
    worst_ones: list[Block] = [about, TableBlock(head, lines)] if lines else []
    return [table, *worst_ones]
