"""Confusion matrices of classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from plmctl.report.examples import has_class_probabilities
from plmctl.report.page import Block, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import SplitPredictions
from plmctl.report.text import format_percent

MOST = 20  # classes of a matrix; of more, the pairs that are confused most often


@panel_of(SplitPredictions, order=50, title="Confusion")
def panel(found: SplitPredictions) -> list[Block]:
    """A matrix of classes."""
    rows = found.rows
    if not has_class_probabilities(rows[0]) or not isinstance(rows[0].get("gold"), str):
        return []
    labels = list(rows[0]["probabilities"])
    counts = Counter((str(row["gold"]), str(row["guess"])) for row in rows)
    if len(labels) <= MOST:
        return [draw_matrix(labels, counts)]
    often = [[gold, guess, str(n)] for (gold, guess), n in counts.most_common() if gold != guess][
        :MOST
    ]
    return [
        Paragraph(f"{len(labels)} classes: the pairs confused most often."),
        TableBlock(["gold", "guess", "examples"], often),
    ]


def draw_matrix(labels: Sequence[str], counts: Mapping[tuple[str, str], int]) -> TableBlock:
    """Gold classes down, guesses across, shaded by their share of the gold class; recall and
    precision at the edges.
    """
    rows, shade = [], []
    for gold in labels:
        own = [counts.get((gold, guess), 0) for guess in labels]
        total = sum(own)
        rows.append(
            [
                gold,
                *map(str, own),
                format_percent(counts.get((gold, gold), 0) / total) if total else "",
            ]
        )
        shade.append([0.0, *(n / total if total else 0.0 for n in own)])
    columns = [sum(counts.get((gold, guess), 0) for gold in labels) for guess in labels]
    precision = [
        format_percent(counts.get((name, name), 0) / n) if n else ""
        for name, n in zip(labels, columns, strict=True)
    ]
    right = sum(counts.get((name, name), 0) for name in labels)
    rows.append(["precision", *precision, format_percent(right / max(1, sum(columns)))])
    return TableBlock(["gold \\ guess", *labels, "recall"], rows, [*shade, []])
