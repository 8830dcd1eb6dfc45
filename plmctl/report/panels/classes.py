"""Predictions of classes and numbers: confusion matrices, calibration, and the worst mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.report.charts import draw_lines
from plmctl.report.page import Block, Chart, Paragraph, TableBlock
from plmctl.report.panel import panel_of
from plmctl.report.subject import ReportedRun, SplitPredictions
from plmctl.report.text import clip, format_percent
from plmctl.tasks.calibration import BINS, measure_calibration
from plmctl.tasks.scores.metrics import find_ranks

CLASSES = 20  # rows of a matrix; of more classes, the pairs that are confused most often
MOST = 10  # mistakes, and classes that a remark names
FEW, LOW = 20, 0.5  # rows of a class, and its recall, below which a remark says so
FITTED = ", on the rows that the calibration was fitted on, so it is too good"
FAR = "Scores that are furthest from the gold ones."
RANKED = "Scores whose rank among all, from 0 to 1, is furthest from that of the gold ones."
SURE = "Wrong answers by the probability that the model gives them."


@panel_of(SplitPredictions, order=10, title="Confusion", brief=True)
def confusion(found: SplitPredictions) -> list[Block]:
    """A matrix of classes."""
    rows = found.rows
    if not has_class_probabilities(rows[0]) or not isinstance(rows[0].get("gold"), str):
        return []
    labels = list(rows[0]["probabilities"])
    counts = Counter((str(row["gold"]), str(row["guess"])) for row in rows)
    if len(labels) <= CLASSES:
        return [draw_matrix(labels, counts)]
    often = [[gold, guess, str(n)] for (gold, guess), n in counts.most_common() if gold != guess][
        :CLASSES
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
    right_share = format_percent(right / max(1, sum(columns)))
    rows.append(["precision", *precision, f"accuracy {right_share}"])
    return TableBlock(["gold \\ guess", *labels, "recall"], rows, [*shade, []])


@panel_of(SplitPredictions, order=10.1, title="Classes")
def per_class(found: SplitPredictions) -> list[Block]:
    """Precision, recall, F1 and the number of rows of each class, and remarks on weak classes."""
    rows = found.rows
    if not has_class_probabilities(rows[0]) or not isinstance(rows[0].get("gold"), str):
        return []
    gold = Counter(str(row["gold"]) for row in rows)
    guessed = Counter(str(row["guess"]) for row in rows)
    right = Counter(str(row["gold"]) for row in rows if row["gold"] == row["guess"])
    lines = [
        [
            name,
            *(
                format_percent(right[name] * weight / total) if total else ""
                for weight, total in (
                    (1, guessed[name]),
                    (1, gold[name]),
                    (2, gold[name] + guessed[name]),
                )
            ),
            f"{gold[name]:,}",
        ]
        for name in rows[0]["probabilities"]
    ]
    notes = []
    if few := [f"{name} ({n})" for name, n in reversed(gold.most_common()) if n < FEW]:
        notes.append(f"Fewer than {FEW} rows, so that one row changes much: {_list_first(few)}.")
    missed = {name: right[name] / n for name, n in gold.items() if right[name] < LOW * n}
    if missed:
        worst = sorted(missed.items(), key=lambda item: item[1])
        said = [f"{name} ({format_percent(share)})" for name, share in worst]
        notes.append(f"Most rows are missed of: {_list_first(said)}.")
    weights = (found.run.log.config.get("task") or {}).get("class_weights", "")
    rare = any(gold[name] * len(gold) < len(rows) for name in missed)
    if rare and weights is None:
        notes.append("task.class_weights=balanced gives rare classes more weight in training.")
    table = TableBlock(["class", "precision", "recall", "F1", "rows"], lines)
    return [table, *([Paragraph(" ".join(notes))] if notes else [])]


@panel_of(SplitPredictions, order=14, title="Calibration")
def calibration(found: SplitPredictions) -> list[Block]:
    """The expected calibration error, and a picture of it."""
    rows = found.rows
    if rows[0].get("gold") is None or not has_class_probabilities(rows[0]):
        return []
    _, bins = measure_calibration(rows)
    about = (
        f"{describe_error(found.run, found.split, rows)} Above the dashed line guesses are right"
        " more often than they say."
    )
    picture = draw_lines(
        {"share that is right": [(each.confidence, each.accuracy) for each in bins]},
        title=f"calibration of {found.run.name}, {found.split}",
        x="probability of the guess",
        y="share that is right",
        guides={"as they say": [(0.0, 0.0), (1.0, 1.0)]},
    )
    return [Paragraph(about), Chart(f"calibration-{found.run.name}-{found.split}", picture)]


def describe_error(run: ReportedRun, split: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A sentence on the calibration error of a split; "" where no label has a probability."""
    if not rows or rows[0].get("gold") is None or not has_class_probabilities(rows[0]):
        return ""
    fitted = run.decided is not None and run.decided.is_fitted_to(split, len(rows))
    return (
        f"Expected calibration error: {format_percent(measure_calibration(rows)[0])}, of"
        f" {len(rows):,} examples of {split} in {BINS} intervals of the probability of the guess"
        f"{FITTED if fitted else ''}."
    )


@panel_of(SplitPredictions, order=11, title="Most confidently wrong")
def mistakes(found: SplitPredictions) -> list[Block]:
    """A table of the worst examples."""
    rows = found.rows
    numbers = isinstance(rows[0].get("guess"), float)
    if rows[0].get("gold") is None or not (numbers or has_class_probabilities(rows[0])):
        return []
    ranked = numbers and have_other_scale(rows)
    weights = measure_ranks(rows) if ranked else [_weight(row) for row in rows]
    wrong = [index for index, row in enumerate(rows) if row["gold"] != row["guess"]]
    wrong = [index for index in wrong if weights[index] or not ranked]
    worst = sorted(wrong, key=lambda index: -weights[index])[:MOST]
    fields, note = found.load_texts()
    measure = ("distance of ranks" if ranked else "distance") if numbers else "probability"
    head = ["id", "gold", "guess", measure]
    lines = []
    for index in worst:
        row, weight = rows[index], weights[index]
        probability = f"{weight:.2f}" if numbers else format_percent(weight)
        text = [clip(join_texts(fields[index]))] if fields else []
        lines.append(
            [str(row["id"]), _label(row, "gold"), _label(row, "guess"), probability, *text]
        )
    told = (RANKED if ranked else FAR) if numbers else SURE
    count = "" if numbers else f" {len(wrong):,} of {len(rows):,} are wrong."  # no score is exact
    about = f"{told}{count} {note}".strip()
    table: list[Block] = [TableBlock([*head, *(["text"] if fields else [])], lines)]
    return [Paragraph(about), *(table if lines else [])]


def _list_first(words: Sequence[str]) -> str:
    """The first of many, and how many are left: the table has all."""
    more = f" and {len(words) - MOST:,} more" if len(words) > MOST else ""
    return ", ".join(words[:MOST]) + more


def _weight(row: Mapping[str, Any]) -> float:
    if isinstance(row["guess"], float):
        return abs(row["gold"] - row["guess"])
    return float(row["probabilities"][row["guess"]])


def have_other_scale(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether guesses are cosines, and gold scores have another scale, such as 0 to 5."""
    guess, gold = (max(abs(float(row[name])) for row in rows) for name in ("guess", "gold"))
    return guess <= 1.0 + 1e-6 < gold


def measure_ranks(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """How far the rank of each guess is from that of its gold score, as a share of all; equal
    scores have the mean of their ranks.
    """
    guess, gold = (find_ranks([float(row[name]) for row in rows]) for name in ("guess", "gold"))
    return [abs(a - b) / max(1, len(rows) - 1) for a, b in zip(guess, gold, strict=True)]


def _label(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f}" if isinstance(row[name], float) else str(row[name])


def has_class_probabilities(row: Mapping[str, Any]) -> bool:
    """Whether a prediction chooses one of several labels, each with its probability."""
    known, guess = row.get("probabilities"), row.get("guess")
    if isinstance(known, Mapping):
        return isinstance(guess, str) and guess in known
    return isinstance(known, list) and isinstance(guess, int) and 0 <= guess < len(known)


def join_texts(fields: Mapping[str, Any]) -> str:
    """The texts of an example on one line; without what only marks them."""
    words = [
        " ".join(value) if isinstance(value, list) and name == "words" else value
        for name, value in fields.items()
        if isinstance(value, str) or all(isinstance(each, str) for each in value)
    ]
    return " ‖ ".join(
        " / ".join(value) if isinstance(value, list) else str(value) for value in words
    )
