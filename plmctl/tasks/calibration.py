"""Whether probabilities are what they say, and two numbers that make decisions better: a
temperature of the probabilities, and a threshold of a label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from plmctl.core.errors import ConfigError, UsageError
from plmctl.tasks.answers.base import HALF, Threshold
from plmctl.tasks.fitted_rows import FittedRows, join_origins
from plmctl.tasks.inference import UNKNOWN
from plmctl.tasks.intervals import find_own_intervals, wilson
from plmctl.tasks.record import Examples
from plmctl.tasks.scores.types import find_threshold
from plmctl.tasks.task import Task

Row = Mapping[str, Any]
BINS = 15
WARMEST = 20.0  # the hottest temperature tried; the coldest is 1 by it
TRIED = 200  # thresholds, from equally many probabilities each
UNSURE = "unsure"  # the entry of a prediction whose guess has too small a probability
MET, MISSED, UNDECIDED = "met", "missed", "undecided"  # verdicts on a wished accuracy
LEAST = 1e-12  # a probability below it is taken for it


INSIDE = "the temperature in its weights"  # where `convert` has left 1 of it
TEMPERATURE, THRESHOLD, SURE = "temperature", "threshold", "sure"  # parts that are fitted
Origins = tuple[FittedRows, ...]  # several of an ensemble


@dataclass(frozen=True)
class LabelDecision:
    """The change to the probabilities of a model before a label is chosen.

    Args:
        temperature: T of `p_k^(1/T) / sum_j p_j^(1/T)`; of several labels each, of its odds.
        threshold: the least probability of `label`, or of any number of labels one for all, or
            {label: its own}; None: as the task decides.
        label: The positive one of two labels; the threshold applies to its probability.
        fitted: {`TEMPERATURE`, `THRESHOLD` or `SURE`: the rows that this part is from}.
        sure: The least probability of a guess; a less probable one is `UNSURE`.
        goal: The accuracy of answered rows that `sure` was fitted for; 0: not known.
    """

    temperature: float = 1.0
    threshold: Threshold | None = None
    label: str | None = None
    fitted: Mapping[str, Origins] = field(default_factory=dict)
    sure: float = 0.0
    goal: float = 0.0

    @classmethod
    def fitted_on(
        cls,
        split: str,
        temperature: float = 1.0,
        threshold: Threshold | None = None,
        label: str | None = None,
        sure: float = 0.0,
    ) -> LabelDecision:
        """A decision of which all parts are from one split, as earlier versions kept it."""
        parts = {THRESHOLD: threshold is not None, SURE: bool(sure)}
        parts[TEMPERATURE] = temperature != 1 or not any(parts.values())
        known = {part: (FittedRows(split),) for part, there in parts.items() if there and split}
        return cls(temperature, threshold, label, known, sure)

    def describe(self) -> str:
        """`temperature 1.31, threshold 0.27 of yes, fitted on dev; unsure below 0.9, fitted on
        test`.
        """
        said: dict[str, list[str]] = {}
        for part, words in self._spell_parts().items():
            said.setdefault(self.spell_origin(part), []).append(words)
        return "; ".join(
            ", ".join([*words, *([f"fitted on {origin}"] if origin else [])])
            for origin, words in said.items()
        )

    def _spell_parts(self) -> dict[str, str]:
        """{part: its value in words}."""
        parts = {}
        if self.temperature != 1:
            parts[TEMPERATURE] = _describe_temperature(self.temperature)
        elif TEMPERATURE in self.fitted:
            parts[TEMPERATURE] = INSIDE
        if isinstance(self.threshold, Mapping):
            low, high = min(self.threshold.values()), max(self.threshold.values())
            count = len(self.threshold)
            parts[THRESHOLD] = f"thresholds of {count} labels, from {low:.4g} to {high:.4g}"
        elif self.threshold is not None:
            of = f" of {self.label}" if self.label else ""
            parts[THRESHOLD] = f"threshold {self.threshold:.4g}{of}"
        if self.sure:
            goal = f" for accuracy {self.goal:g}" if self.goal else ""
            parts[SURE] = f"unsure below {self.sure:.4g}{goal}"
        return parts

    def spell_origin(self, part: str) -> str:
        """The rows that a part was fitted to, in words; "" where they are not known."""
        return self.spell_origins().get(part, "")

    def spell_origins(self) -> dict[str, str]:
        """{part: the rows that it was fitted to}."""
        return {part: join_origins(origins) for part, origins in self.fitted.items()}

    def find_refitted(self, split: str, examples: Examples) -> set[str]:
        """The parts that were fitted to rows like these."""
        return {
            part
            for part, origins in self.fitted.items()
            if any(origin.covers(split, examples) for origin in origins)
        }

    def check(self, task: Task, row: Row) -> None:
        """ConfigError where predictions like this one lack a named probability."""


@dataclass(frozen=True)
class AskedDecision(LabelDecision):
    """A decision whose least probability of an answer a user has named, not a fit."""

    def describe(self) -> str:
        fitted = LabelDecision(self.temperature, self.threshold, self.label, self.fitted)
        return "; ".join(
            filter(None, (fitted.describe(), f"unsure below {self.sure:.4g}, as asked"))
        )

    def check(self, task: Task, row: Row) -> None:
        if not has_labels(row):
            allowed = f"null: task={task.name} gives no probability of one label"
            raise ConfigError("unsure_below", self.sure, allowed, fix="leave it out")


def ask_sure(decision: LabelDecision | None, least: float | None) -> LabelDecision | None:
    """The decision with the least probability that a user has named; None: as it is."""
    if least is None:
        return decision
    own = decision or LabelDecision()
    fitted = {part: origins for part, origins in own.fitted.items() if part != SURE}
    return AskedDecision(own.temperature, own.threshold, own.label, fitted, least)


def _describe_temperature(temperature: float) -> str:
    """Its value, and what it means at an end of the search, where the loss would go on falling."""
    meanings = {WARMEST: "the guesses are hardly better than chance", 1 / WARMEST: "all are right"}
    for bound, meaning in meanings.items():
        if math.isclose(temperature, bound, rel_tol=1e-6):
            return f"temperature {bound:g} (the end of the search, no optimum: {meaning})"
    return f"temperature {temperature:.4g}"


def join_decisions(
    tasks: Sequence[Task], kept: Sequence[LabelDecision | None]
) -> LabelDecision | None:
    """The decision of an ensemble: the mean of the thresholds of its members, from their
    checkpoints, else from their tasks. It is None where no checkpoint has one and the tasks have
    the same. The least probability of an answer is the mean, too.

    The mean probability is above the mean threshold where the members are above their own ones
    on average: `mean_i p_i >= mean_i t_i` is `mean_i (p_i - t_i) >= 0`.
    """
    found, known = _join_thresholds(tasks, kept), [each for each in kept if each and each.sure]
    if not known:
        return found
    own = found or LabelDecision()
    goals = {each.goal for each in known}
    return replace(
        own,
        fitted={**own.fitted, SURE: _join_fitted(known, SURE)},
        sure=math.fsum(each.sure for each in known) / len(kept),
        goal=goals.pop() if len(goals) == 1 else 0.0,
    )


def _join_thresholds(
    tasks: Sequence[Task], kept: Sequence[LabelDecision | None]
) -> LabelDecision | None:
    known = [each for each in kept if each is not None and each.threshold is not None]
    if not known and all(_threshold_of(task) == _threshold_of(tasks[0]) for task in tasks):
        return None
    fitted = {THRESHOLD: _join_fitted(known, THRESHOLD)} if known else {}
    if known and (label := known[0].label) is not None:
        sides = [_side_of(each, label) for each in kept]
        return LabelDecision(1.0, math.fsum(sides) / len(sides), label, fitted)
    names = tasks[0].names
    spread = [_spread(task, each, names) for task, each in zip(tasks, kept, strict=True)]
    mean = {name: math.fsum(each[name] for each in spread) / len(spread) for name in names}
    return LabelDecision(1.0, mean, fitted=fitted)


def _join_fitted(known: Sequence[LabelDecision], part: str) -> Origins:
    """The rows of a part of all members."""
    return tuple(dict.fromkeys(own for each in known for own in each.fitted.get(part, ())))


def _side_of(decision: LabelDecision | None, label: str) -> float:
    """The threshold of `label`, one of two, which another model may state for the other one."""
    if decision is None or not isinstance(decision.threshold, float):
        return HALF
    return decision.threshold if decision.label == label else 1 - decision.threshold


def _threshold_of(task: Task) -> Threshold:
    """The threshold in the settings of a task, which may decide each label by itself."""
    return task.answer.threshold if task.answer else HALF


def _spread(task: Task, decision: LabelDecision | None, names: Sequence[str]) -> dict[str, float]:
    """{label: its threshold} of a model that decides each label by itself."""
    kept = decision.threshold if decision else None
    threshold = _threshold_of(task) if kept is None else kept
    if isinstance(threshold, Mapping):
        return {name: float(threshold.get(name, HALF)) for name in names}
    return dict.fromkeys(names, float(threshold))


@dataclass(frozen=True)
class Bin:
    """The guesses whose probability is within one interval."""

    confidence: float  # the mean probability
    accuracy: float  # the share that is right
    count: int


def measure_calibration(rows: Sequence[Row], bins: int = BINS) -> tuple[float, list[Bin]]:
    """(the expected calibration error, its intervals with guesses): `ECE = sum_b |b| / n
    |accuracy(b) - confidence(b)|` over equal intervals of the probability of the guess (Guo et al.,
    2017, arXiv:1706.04599, sec. 2).

    Args:
        rows: {"gold", "guess", "probabilities"}, one guess each.
    """
    sure = np.array([_find_sure(row) for row in rows])
    right = np.array([str(row["gold"]) == str(row["guess"]) for row in rows])
    place = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    found = [
        Bin(float(sure[own].mean()), float(right[own].mean()), int(own.sum()))
        for own in (place == number for number in range(bins))
        if own.any()
    ]
    error = math.fsum(each.count * abs(each.accuracy - each.confidence) for each in found)
    return error / max(1, len(rows)), found


def measure_loss(rows: Sequence[Row]) -> float:
    """The mean of `-ln p(label)`, of several labels each summed over them; rows of a label that the
    model lacks stay out.
    """
    rows = _leave_new(rows)
    sides = ((np.log(_soften(_logits(row), 1.0)), _find_gold(row)) for row in rows)
    return -math.fsum(float(side[gold].sum()) for side, gold in sides) / len(rows)


def fit_sure(rows: Sequence[Row], accuracy: float) -> float:
    """The least threshold at which the answered rows have this accuracy, so that most rows are
    answered (El-Yaniv and Wiener, 2010, "On the Foundations of Noise-free Selective
    Classification"): `min {t : sum_i [p_i >= t] right_i >= accuracy sum_i [p_i >= t]}`.

    Args:
        rows: {"gold", "guess", "probabilities"}, one guess each; those of `UNKNOWN` have no answer.
        accuracy: The wished share.

    Raises:
        UsageError: No threshold reaches it, or the rows have no such guesses.
    """
    if not has_labels(rows[0]) or any(row["gold"] is None for row in rows):
        raise UsageError(
            "abstain: it needs labelled texts, one guess each, and its probability"
            "\n  fix: leave abstain out"
        )
    rows = [row for row in rows if not row.get(UNKNOWN)] or rows
    sure = np.array([_find_sure(row) for row in rows])
    right = np.array([str(row["gold"]) == str(row["guess"]) for row in rows])
    order = np.argsort(-sure, kind="stable")
    shares = np.cumsum(right[order]) / np.arange(1, len(rows) + 1)
    last = np.append(sure[order][1:] != sure[order][:-1], True)  # the last of equal ones
    reached = np.flatnonzero(last & (shares >= accuracy))
    if not len(reached):
        best = float(shares[last].max())
        raise UsageError(
            f"abstain={accuracy:g}: no threshold reaches this accuracy; the best has {best:.4f}"
            f"\n  fix: abstain={math.floor(best * 100) / 100:g}"
        )
    return float(sure[order][reached[-1]])


def measure_answered(rows: Sequence[Row], goal: float = 0.0) -> dict[str, Any]:
    """{rows, share} of the answered rows; of labelled ones also {accuracy, interval}, with 95%.
    With a wished accuracy also {goal, verdict}: the interval is above it, below it, or holds it.
    """
    own = [dict(row) for row in rows if not row.get(UNSURE)]
    found: dict[str, Any] = {"rows": len(own), "share": len(own) / len(rows)}
    if not own or any(row["gold"] is None for row in own):
        return found
    found |= _score_right(own)
    ends = find_own_intervals(own, _score_right, ["accuracy"]).get("accuracy")
    if ends is None:  # draws of bundles that are alike do not differ
        units = len({row.get("bundle", number) for number, row in enumerate(own)})
        ends = wilson(found["accuracy"] * units, units)
    found["interval"] = ends
    if not goal:
        return found
    verdict = MET if ends[0] >= goal else MISSED if ends[1] < goal else UNDECIDED
    return found | {"goal": goal, "verdict": verdict}


def describe_answered(known: Mapping[str, Any], count: int) -> str:
    """How many of `count` rows are answered, and how well, by `measure_answered`."""
    share = f"{known['rows']:,} of {count:,} rows ({known['share']:.1%})"
    if "accuracy" not in known:
        return share
    ends = " (95% {:.4f} to {:.4f})".format(*known["interval"]) if "interval" in known else ""
    goal = ", goal {goal:g} {verdict}".format(**known) if "goal" in known else ""
    accuracy = f"accuracy {known['accuracy']:.4f}{ends} of these{goal}"
    return f"{share}, {accuracy}; the others are {UNSURE}"


def _score_right(rows: Sequence[Row]) -> dict[str, float]:
    """The share of right guesses."""
    return {"accuracy": sum(str(row["gold"]) == str(row["guess"]) for row in rows) / len(rows)}


def _find_sure(row: Row) -> float:
    """The probability of the guess."""
    return float(row["probabilities"][row["guess"]])


def has_labels(row: Row) -> bool:
    """Whether one of several labels is guessed, each with its probability."""
    known, guess = row.get("probabilities"), row.get("guess")
    return isinstance(known, Mapping | list) and isinstance(guess, str | int)


def fit_decision(
    task: Task,
    rows: Sequence[Row],
    wanted: Sequence[str],
    *,
    origin: FittedRows,
    kept: LabelDecision | None = None,
) -> LabelDecision:
    """The temperature of the least loss, then the threshold of the best first metric, on labelled
    rows. Only the `wanted` ones are fitted. A kept temperature stays else, and a kept threshold is
    fitted again to a new temperature.

    Args:
        task: The task.
        rows: The predictions, without a decision.
        wanted: "temperature", and "threshold" or "thresholds".
        origin: The rows, as the decision names them.
        kept: The earlier decision; None for the first one.

    Raises:
        UsageError: The predictions have no such thing.
    """
    several = isinstance(rows[0].get("guess"), list)
    if not isinstance(rows[0].get("probabilities"), Mapping | list):
        raise UsageError(
            f"calibrate: task={task.name} predicts no probabilities of labels"
            "\n  fix: leave calibrate out"
        )
    if any(row["gold"] is None for row in rows):
        raise UsageError("calibrate: these texts have no labels\n  fix: split=dev")
    if {"threshold", "thresholds"} <= {*wanted}:
        raise UsageError(
            "calibrate: threshold is one for all labels, thresholds are one for each"
            "\n  fix: calibrate=[thresholds]"
        )
    if "thresholds" in wanted and not several:
        raise UsageError(
            f"calibrate: task={task.name} guesses one label, and thresholds are of any number"
            " each\n  fix: calibrate=[threshold]"
        )
    old = kept or LabelDecision()
    own = {part: known for part, known in old.fitted.items() if part == TEMPERATURE}
    found = LabelDecision(old.temperature, fitted=own)
    if TEMPERATURE in wanted:
        own = {TEMPERATURE: (origin,)}
        found = LabelDecision(_fit_temperature(rows), fitted=own)
    own = {**own, THRESHOLD: (origin,)}
    again = isinstance(old.threshold, Mapping) and not {"threshold"} & {*wanted}
    if "thresholds" in wanted or again:
        return replace(found, threshold=_fit_each(rows, found.temperature), fitted=own)
    if "threshold" in wanted or old.threshold is not None:
        label, threshold = _fit_one(task, rows, found.temperature)
        return replace(found, threshold=threshold, label=label, fitted=own)
    return found


def _fit_each(rows: Sequence[Row], temperature: float) -> dict[str, float]:
    """{label: the threshold of its best F1}, a half where no row has the label (SCut: Yang, 2001,
    "A Study on Thresholding Strategies for Text Categorization", sec. 2.3).
    """
    tempered = [_temper(row, temperature)["probabilities"] for row in rows]
    found = {}
    for name in tempered[0]:
        gold = [[name] if name in row["gold"] else [] for row in rows]
        threshold, _ = find_threshold(gold, [{name: known[name]} for known in tempered])
        found[name] = threshold if any(gold) else HALF
    return found


def _fit_one(task: Task, rows: Sequence[Row], temperature: float) -> tuple[str | None, float]:
    """(the label of two, the threshold of the best first metric)."""
    several = isinstance(rows[0].get("guess"), list)
    names = list(rows[0]["probabilities"])
    if not several and (isinstance(rows[0]["probabilities"], list) or len(names) != 2):
        raise UsageError(
            f"calibrate: task={task.name} chooses among {len(names)} labels, and a threshold is of"
            " two, or of several labels each\n  fix: calibrate=[temperature]"
        )
    label = None if several else str(getattr(task.scores, "positive", None) or names[-1])
    tempered = [_temper(row, temperature) for row in rows]
    values = [
        p
        for own in tempered
        for name, p in own["probabilities"].items()
        if label is None or name == label
    ]
    edges = np.unique(np.quantile(values, np.linspace(0, 1, TRIED + 1)))
    tried = [*((edges[1:] + edges[:-1]) / 2).tolist(), HALF]
    metric = task.metrics[0]
    sign = 1 if task.directions.larger(metric) else -1

    def rank(threshold: float) -> tuple[float, float]:
        """The threshold nearest to a half is the best of equal ones."""
        own = LabelDecision(temperature, threshold, label)
        return sign * task.score(apply_decision(task, rows, own))[metric], -abs(threshold - HALF)

    return label, max(tried, key=rank)


def apply_decision(
    task: Task, rows: Sequence[Row], decision: LabelDecision
) -> list[dict[str, Any]]:
    """The predictions with the probabilities of the temperature, the labels of the threshold, and
    `UNSURE` for those of a smaller probability than wanted.
    """
    chosen = [choose(task, _temper(row, decision.temperature), decision) for row in rows]
    return mark_unsure(chosen, decision.sure)


def mark_unsure(rows: Sequence[dict[str, Any]], least: float) -> list[dict[str, Any]]:
    """The predictions, with `UNSURE` for a guess of a smaller probability than `least`, and of a
    text of which the model reads little; 0: none is.
    """
    return [
        {**row, UNSURE: True}
        if least and has_labels(row) and (row.get(UNKNOWN) or _find_sure(row) < least)
        else row
        for row in rows
    ]


def choose(task: Task, row: dict[str, Any], decision: LabelDecision) -> dict[str, Any]:
    """The prediction with the label, or labels, that its probabilities give by the threshold."""
    known, threshold = row["probabilities"], decision.threshold
    if isinstance(known, list):
        return {**row, "guess": max(range(len(known)), key=known.__getitem__)}
    if threshold is None or isinstance(row["guess"], list):
        return {**row, "guess": decide(task, known, threshold)}
    other = next(name for name in known if name != decision.label)
    return {**row, "guess": decision.label if known[decision.label] >= threshold else other}


def decide(task: Task, known: Mapping[str, float], threshold: Threshold | None = None) -> Any:
    """The label, or labels, for these probabilities; the likeliest label without an answer."""
    if task.answer:
        return task.answer.decide(known, threshold)
    return max(known, key=known.__getitem__)


def _logits(row: Row) -> np.ndarray:
    """[K] log probabilities; of several labels each [K, 2], also those of "not this one"."""
    known = row["probabilities"]
    p = np.maximum(np.array(list(known.values()) if isinstance(known, Mapping) else known), LEAST)
    if isinstance(row["guess"], list):
        return np.log(np.stack([p, np.maximum(1 - p, LEAST)], -1))
    return np.log(p)


def _soften(logits: np.ndarray, inverse: float) -> np.ndarray:
    """softmax(logits / T) of the last dimension."""
    scaled = inverse * logits
    weights = np.exp(scaled - scaled.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _temper(row: Row, temperature: float) -> dict[str, Any]:
    if temperature == 1:
        return dict(row)
    found, known = _soften(_logits(row), 1 / temperature), row["probabilities"]
    values = (found[..., 0] if found.ndim > 1 else found).tolist()
    named = dict(zip(known, values, strict=True)) if isinstance(known, Mapping) else values
    return {**row, "probabilities": named}


def _fit_temperature(rows: Sequence[Row]) -> float:
    """The T of the least mean negative log-likelihood (Guo et al., 2017, sec. 4.2), by bisection of
    its slope in 1/T, which is never falling.
    """
    rows = _leave_new(rows)
    sides = [_logits(row) for row in rows]
    golds = [_find_gold(row) for row in rows]

    def slope(inverse: float) -> float:
        """The slope of the loss: the expected logit less that of the label."""
        return math.fsum(
            float((_soften(side, inverse) * side).sum() - side[gold].sum())
            for side, gold in zip(sides, golds, strict=True)
        )

    low, high = math.log(1 / WARMEST), math.log(WARMEST)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) < 0 else (low, middle)
    return math.exp(-(low + high) / 2)


def _leave_new(rows: Sequence[Row]) -> list[Row]:
    """The rows whose label has a probability."""
    return [
        row
        for row in rows
        if not (has_labels(row) and isinstance(row["probabilities"], Mapping))
        or str(row["gold"]) in row["probabilities"]
    ]


def _find_gold(row: Row) -> Any:
    """Where the logit of the label stands in `_logits`."""
    known = row["probabilities"]
    if isinstance(row["guess"], list):
        own = set(row["gold"])
        return np.arange(len(known)), np.array([int(name not in own) for name in known])
    return list(known).index(str(row["gold"])) if isinstance(known, Mapping) else int(row["gold"])
