"""Texts without labels become a training set, by what fine-tuned models say of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from plmctl.storage.formulas import guard
from plmctl.tasks.calibration import LabelDecision, choose
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.text.tabular import MARK, spell_row

TINY = 1e-30  # the probability of a label that has rounded to 0


@dataclass(frozen=True)
class Guess:
    """A text with its likeliest label.

    Args:
        label: the likeliest one, or what a kept threshold says.
        sure: its probability.
        shares: {label: probability} at the temperature of the setting.
    """

    example: Example
    label: str
    sure: float
    shares: Mapping[str, float]

    def line(self) -> str:
        """As a row of the new files."""
        return _spell_row(self.example, self.label, self.shares)


def make_guess(
    example: Example,
    answers: Sequence[Mapping[str, Any]],
    *,
    weights: Sequence[float] | None = None,
    temperature: float = 1.0,
    decide: Callable[[Mapping[str, float]], str] | None = None,
) -> Guess:
    """The common prediction of several models for a text: `softmax_l(sum_m w_m s_m(l) / (T sum_m
    w_m))`, s_m(l) the score of label l. Here the score is log p_m(l), which differs from it by a
    number that softmax removes (PET: Schick and Schuetze, 2021, arXiv:2001.07676, sec. 3.3).

    `decide`: the label of these probabilities, with T = 1; None: the likeliest.
    """
    given = weights or [1.0] * len(answers)
    sides = [answer["probabilities"] for answer in answers]
    scores = {
        name: math.fsum(
            weight * math.log(max(side[name], TINY))
            for weight, side in zip(given, sides, strict=True)
        )
        / math.fsum(given)
        for name in sides[0]
    }
    plain, soft = _normalise(scores, 1.0), _normalise(scores, temperature)
    best = decide(plain) if decide else max(plain, key=plain.__getitem__)
    return Guess(example, best, plain[best], soft)


def choose_guesses(guesses: Sequence[Guess], *, threshold: float, share: float) -> list[Guess]:
    """Those of at least the threshold, and of each label the share that is surest, one at least; in
    their order.
    """
    of_labels: dict[str, list[int]] = defaultdict(list)
    for place, guess in enumerate(guesses):
        if guess.sure >= threshold:
            of_labels[guess.label].append(place)
    kept: set[int] = set()
    for places in of_labels.values():
        surest = sorted(places, key=lambda place: -guesses[place].sure)
        kept.update(surest[: max(1, round(share * len(places)))])
    return [guesses[place] for place in sorted(kept)]


def measure_margin(shares: Sequence[float]) -> float:
    """1 less the distance of the two likeliest (Scheffer et al., 2001, IDA)."""
    first, second = nlargest(2, [*shares, 0.0])
    return 1 - (first - second)


def measure_entropy(shares: Sequence[float]) -> float:
    """`-sum_l p(l) log p(l)` in nats (Shannon, 1948)."""
    return -math.fsum(share * math.log(share) for share in shares if share)


def measure_confidence(shares: Sequence[float]) -> float:
    """1 less the probability of the likeliest (Lewis and Gale, 1994, SIGIR)."""
    return 1 - max(shares)


MEASURES: dict[str, Callable[[Sequence[float]], float]] = {
    "margin": measure_margin,
    "entropy": measure_entropy,
    "confidence": measure_confidence,
}


def choose_uncertain(guesses: Iterable[Guess], *, count: int, by: str) -> list[Guess]:
    """The guesses of which the models are least sure, most uncertain first; of equal texts one.

    Args:
        guesses: The guesses, with probabilities at the temperature 1.
        count: The most texts that are chosen.
        by: A name of `MEASURES`.
    """
    different: dict[tuple[str, ...], Guess] = {}
    for guess in guesses:
        different.setdefault(content_of(guess.example), guess)
    measure = MEASURES[by]
    return nlargest(count, different.values(), key=lambda g: measure([*g.shares.values()]))


def name_columns(columns: Mapping[str, Any]) -> dict[str, str]:
    """{role: the name of its column}: that of the task, or the role where it is a number."""
    return {
        role: columns[role] if isinstance(columns.get(role), str) else role
        for role in (*TEXTS, "label")
    }


def spell_table(
    labelled: Sequence[Example],
    asked: Sequence[Guess],
    names: Mapping[str, str],
    own: Sequence[Mapping[str, Any]] = (),
) -> str:
    """A table for people: rows whose label is to be filled in, and behind them labelled examples.
    Each of the first has the guess of the models and its probability, too. Behind them stand the
    other columns of its file, such as an id.

    Args:
        labelled: The labelled examples.
        asked: The texts without a label.
        names: {role: the name of its column}.
        own: The columns that the file of `asked` has of each.
    """
    fields = [guess.example.fields for guess in asked] + [each.fields for each in labelled]
    roles = [role for role in TEXTS if any(role in own for own in fields)]
    behind: list[list[Any]] = [["", guess.label, round(guess.sure, 4)] for guess in asked]
    behind += [[example.label, "", ""] for example in labelled]
    head = [*(names[role] for role in roles), names["label"], "guess", "probability"]
    more = [name for name in dict.fromkeys(name for row in own for name in row) if name]
    more = [name for name in more if name not in {*names.values(), *roles}]
    rows = [[*head, *(f"source_{name}" if name in head else name for name in more)]]
    rest = [[row.get(name, "") for name in more] for row in own]
    rest += [[""] * len(more)] * (len(fields) - len(own))
    for each, end, kept in zip(fields, behind, rest, strict=True):
        rows.append([*(each.get(role, "") for role in roles), *end, *kept])
    spelt = (spell_row([guard(str(cell)) for cell in row]) for row in rows)
    return MARK + "".join(f"{row}\n" for row in spelt)


def name_only_label(labels: Mapping[str, int]) -> str:
    """The label that all of several texts have; "" where they have different ones."""
    return next(iter(labels)) if len(labels) == 1 and sum(labels.values()) > 1 else ""


def _normalise(scores: Mapping[str, float], temperature: float) -> dict[str, float]:
    top = max(scores.values())
    powers = {name: math.exp((score - top) / temperature) for name, score in scores.items()}
    total = math.fsum(powers.values())
    return {name: power / total for name, power in powers.items()}


def decide(task: Task, decision: LabelDecision, probabilities: Mapping[str, float]) -> str:
    """The label of these probabilities."""
    row = {"guess": "", "probabilities": probabilities}
    return str(choose(task, row, decision)["guess"])


def content_of(example: Example) -> tuple[str, ...]:
    """The texts of an example, by which it is known again."""
    return tuple(str(example.fields.get(role, "")) for role in TEXTS)


def spell_labelled(examples: Sequence[Example], names: Sequence[str]) -> Iterator[str]:
    """A line for each labelled example; `names`: all labels."""
    for example in examples:
        stated = example.shares or {example.label: 1.0}
        shares = {name: stated.get(name, 0.0) for name in names}
        yield _spell_row(example, example.label, shares)


def _spell_row(example: Example, label: str, shares: Mapping[str, float]) -> str:
    texts = {role: example.fields[role] for role in TEXTS if role in example.fields}
    row = {**texts, "label": label, "probabilities": dict(shares)}
    return json.dumps(row, ensure_ascii=False) + "\n"
