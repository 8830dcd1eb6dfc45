"""The worth of the scores of a fine-tuned model, in plain words. Simple models may be as good, and
the split may have chosen the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from plmctl.core.rounding import round_floats
from plmctl.core.terminal import counted
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores.metrics import is_larger_better
from plmctl.tasks.scores.swaps import ALONE, SwapTest, correct

FILE = "baselines.json"  # a file of a run: the scores of models without pretraining
TESTS = "p_of_baselines"  # the entry of result.json: {split: {model: the record of a SwapTest}}
CHOICE = "chosen_on"  # the entry of result.json: {split: the validations of which it took the best}
LEAKED = "texts_in_train"  # the entry of result.json: {split: its examples with a text of train}
READ = "training_examples"  # the entry of result.json: how many the models have read, and all
ALPHA = 0.05  # a difference with a smaller p-value counts as one
UNBEATEN = "baselines not beaten"  # the name of the lines in tables of scores
ONE_ANSWER = "one answer"  # the same of a model that does not tell the examples apart
SHOWN = 40  # characters of such an answer
Scores = Mapping[str, Mapping[str, float | None]]  # {split: {metric: value}}
Simple = Mapping[str, Mapping[str, Mapping[str, float]]]  # {split: {model: {metric: value}}}


def list_choices(result: Mapping[str, Any] | None) -> list[str]:
    """A remark on each split that has chosen the checkpoint of a run."""
    known = result or {}
    tested = "test" in (known.get("metrics") or {})
    other = "test" if tested else "a test split (a file, or task.test_share=0.2)"
    return [
        f"{split} chose the checkpoint, as the best of {count} validations on it, so its scores are"
        f" a little high; {other} has no part in the choice"
        for split, count in (known.get(CHOICE) or {}).items()
    ]


def folder_of(run: Path, model: str) -> Path:
    """The folder with the predictions of a model without pretraining, by split."""
    return run / "baselines" / model.replace(" ", "-")


def find_run(folder: Path) -> Path | None:
    """The run around a folder by `folder_of`; None for other folders."""
    run = Path(os.path.normpath(folder / "../.."))
    own = folder_of(run, folder.absolute().name)
    return run if (run / FILE).is_file() and own.exists() and own.samefile(folder) else None


def list_unbeaten(
    scores: Scores,
    simple: Simple,
    metric: str,
    *,
    lower: Collection[str] = (),
    tests: Mapping[str, Mapping[str, Any]] | None = None,
    read: Mapping[str, int] | None = None,
) -> list[str]:
    """A line for each split on which a model without pretraining has as good a score, or a better
    one. Scores are equal where their stored digits are. "Worse" is a claim on one of several
    models, so its p-value is Holm's for all that were tested on the split. "Better than all of
    them" needs no correction: each difference has to hold by itself (Berger, 1982).

    Args:
        scores: The scores of the fine-tuned model.
        simple: The scores of the others, on the same examples.
        metric: the first one of the task.
        lower: The metrics of the task of which a lower value is better.
        tests: The entry TESTS of result.json, as far as models were tested on the same examples.
        read: The entry READ of result.json.
    """
    lines, sign = [], 1 if is_larger_better(metric, lower) else -1
    for split, own in scores.items():
        if (value := own.get(metric)) is None:
            continue
        known = {name: of[metric] for name, of in simple.get(split, {}).items() if metric in of}
        ahead = {name: sign * _subtract(other, value) for name, other in known.items()}
        worse = any(gain > 0 for gain in ahead.values())
        named = [name for name, gain in ahead.items() if gain > 0 or (gain == 0 and not worse)]
        if not named:
            continue
        records = (tests or {}).get(split, {})
        family = {name: SwapTest.read(records[name]) for name in known if name in records}
        holm = dict(zip(family, correct([test.p for test in family.values()]), strict=True))
        tested = {name: family[name] for name in named if name in family}
        least = min(tested, key=lambda name: tested[name].p, default="")
        how, end = _judge(holm.get(least)) if worse else ("is no better than", "answers as well")
        others = ", ".join(
            f"{name} {known[name]:.4f}" + (f", p {tested[name].spell()}" if name in tested else "")
            for name in named
        )
        others += _describe_tests(tested.values())
        if worse and least and len(family) > 1:
            corrected = tested[least].spell(holm[least])
            others += f"; by Holm for {len(family)} simple models, the least p is {corrected}"
        lines.append(
            f"{split}: {metric} {value:.4f} {how} without pretraining ({others}): a simple"
            f" model, trained in seconds, {end}{describe_read(read)}"
        )
    return lines


def describe_read(read: Mapping[str, int] | None) -> str:
    """` (it read 10,000 of 30,000 training examples, the fine-tuning 1,280)`; "" of runs of earlier
    versions.
    """
    if not read:
        return ""
    simple, tuned, everything = read["simple models"], read["fine-tuning"], read["all"]
    if simple == tuned:
        return (
            f" (both read the same {everything:,} training examples)"
            if simple == everything
            else (f" (each read {simple:,} of {everything:,} training examples)")
        )
    return (
        f" (simple models read {simple:,} of {everything:,} training examples, the fine-tuning"
        f" {tuned:,})"
    )


def list_unscored(scores: Scores, simple: Simple) -> list[str]:
    """A line for each split on which no model without pretraining is scored, where some are."""
    return [
        f"{split}: no simple model was scored on {split}"
        for split in scores
        if simple and split not in simple
    ]


def describe_one_answer(rows: Predictions) -> str:
    """`gives the answer 'x' to all 383 rows`, where all guesses are the same and the right answers
    are not; else "".

    Args:
        rows: {"gold" or "golds", "guess", ...} of each example.
    """
    if not rows or any("guess" not in row for row in rows):
        return ""
    guess = str(rows[0]["guess"])
    if any(str(row["guess"]) != guess for row in rows):
        return ""
    if len({str(row.get("golds", row.get("gold"))) for row in rows}) < 2:
        return ""
    short = guess if len(guess) <= SHOWN else f"{guess[:SHOWN]}..."
    return f"gives the answer {short!r} to all {counted(len(rows), 'row')}"


def _describe_tests(tests: Iterable[SwapTest]) -> str:
    """`; p by swaps: exact, not corrected`; "" where there is no p-value, or one of an earlier
    version.
    """
    ways = dict.fromkeys(test.way for test in tests)
    return f"; p by swaps: {' or '.join(ways)}, {ALONE}" if ways and all(ways) else ""


def _judge(p: float | None) -> tuple[str, str]:
    """(how a lower score is related, what the other model does), by the least corrected p-value."""
    if p is None:
        return "is no better than", "scores better; no test says whether that is chance"
    if p < ALPHA:
        return "is worse than", "answers better"
    return "is below that", "is not distinguishable from it"


def _subtract(one: float, other: float) -> float:
    return float(round_floats(one) - round_floats(other))
