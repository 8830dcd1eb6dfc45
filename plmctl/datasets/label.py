"""Texts without labels become a training set, by what fine-tuned models say of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain
from pathlib import Path
from typing import Any

from plmctl.core.terminal import counted
from plmctl.storage.formulas import guard
from plmctl.tasks.calibration import LabelDecision, choose
from plmctl.tasks.inference import has_empty_text
from plmctl.tasks.predictions import BUNDLE, TABLES, beside
from plmctl.tasks.readers.tables import TEXTS
from plmctl.tasks.record import Example
from plmctl.tasks.task import Task
from plmctl.text.letters import normalize_spaces
from plmctl.text.tabular import MARK, TableSpelling, kind_of, spell_row

GUESSED = ("guess", "probability")  # columns with the answers of models
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

    def line(self, *, bundled: bool = False) -> str:
        """As a row of the new files; `bundled`: with its bundle."""
        return _spell_row(self.example, self.label, self.shares, bundled)


@dataclass(frozen=True)
class LeftOut:
    """The texts that are left out.

    Args:
        places: The file and line of each.
        known: The number of texts in the labelled examples, dev or test.
        empty: The empty ones.
        bundled: The texts whose bundle is in dev or test.
        alone: The number of others without a bundle, where the task has bundles.
        unread: The texts of which the models know few tokens.
    """

    places: Collection[str]
    known: int
    empty: Sequence[Example]
    bundled: Sequence[Example]
    alone: int
    unread: Sequence[Example]

    @classmethod
    def find(
        cls,
        texts: Sequence[Example],
        known: Mapping[str, Sequence[Example]],
        *,
        bundled: bool,
        unread: Collection[str] = (),
    ) -> LeftOut:
        """Those among `texts`.

        Args:
            known: The examples of each split.
            bundled: Whether the task has bundles.
            unread: The file and line of texts that the models cannot read.
        """
        seen = {content_of(example) for examples in known.values() for example in examples}
        held = {each.bundle for name in known for each in known[name] if name != "train"} - {""}
        held = held if bundled else set()
        empty = [each for each in texts if has_empty_text(each)]
        rest = [each for each in texts if not has_empty_text(each)]
        repeated = [each for each in rest if content_of(each) in seen]
        rest = [each for each in rest if content_of(each) not in seen]
        of_held = [each for each in rest if each.bundle in held]
        alone = sum(not each.bundle for each in rest) if bundled else 0
        strange = [each for each in rest if each.bundle not in held and each.place in unread]
        places = {each.place for each in (*empty, *repeated, *of_held, *strange)}
        return cls(places, len(repeated), empty, of_held, alone, strange)

    def describe(self) -> dict[str, str]:
        """{reason: the texts of it}, as far as there are any."""
        said = {}
        if self.known:
            said["known texts"] = f"{self.known:,} in the labelled examples, dev or test: left out"
        if self.empty:
            first = self.empty[0].place
            said["left out"] = f"{counted(len(self.empty), 'empty text')}, the first {first}"
        if self.unread:
            first = self.unread[0].place
            said["unknown texts"] = (
                f"{len(self.unread):,}, whose tokens the model hardly knows: left out, the first"
                f" {first}"
            )
        if self.bundled:
            many = counted(len({each.bundle for each in self.bundled}), "bundle")
            said["bundles of dev or test"] = (
                f"{counted(len(self.bundled), 'text')} of {many}: left out, since training on them"
                " would make scores of dev and test too good"
            )
        if self.alone:
            said["texts without a bundle"] = (
                f"{self.alone:,}, which may belong to one of dev or test"
            )
        return said


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


def count_different(guesses: Iterable[Guess]) -> int:
    """The number of different texts."""
    return len({content_of(guess.example) for guess in guesses})


def name_columns(columns: Mapping[str, Any]) -> dict[str, str]:
    """{role: the name of its column}: that of the task, or the role where it is a number."""
    roles = (*TEXTS, *([BUNDLE] if columns.get(BUNDLE) is not None else []), "label")
    return {r: columns[r] if isinstance(columns.get(r), str) else r for r in roles}


def read_own(examples: Sequence[Example], columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns of each example in its file; columns by number are left out."""
    by_file: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        by_file[example.place.rpartition(":")[0]].append(example)
    found: dict[str, dict[str, Any]] = {}
    numbers = {column for column in columns.values() if isinstance(column, int)}
    for file, own in by_file.items():
        left_out = numbers if kind_of(Path(file)) in TABLES else ()
        for example, row in zip(own, beside(file, own, [{}] * len(own)), strict=True):
            cells = enumerate(row.items())
            found[example.place] = {name: v for n, (name, v) in cells if n not in left_out}
    return [found[example.place] for example in examples]


def make_table(
    labelled: Sequence[Example],
    asked: Sequence[Guess],
    names: Mapping[str, str],
    own: Sequence[Mapping[str, Any]] = (),
) -> list[list[Any]]:
    """A table for people: rows whose label is to be filled in, and behind them labelled examples.
    The columns stand as in the files. Behind them stand the guess of the models and its
    probability.

    Args:
        asked: The texts without a label.
        names: {role: the name of its column}.
        own: The columns that the files have of `asked` and `labelled`.
    """
    examples = [*(guess.example for guess in asked), *labelled]
    fields = [{**each.fields, BUNDLE: each.bundle} for each in examples]
    roles = [role for role in names if role != "label" and any(role in each for each in fields)]
    said = GUESSED if asked else ()
    ends: list[list[Any]] = [["", guess.label, round(guess.sure, 4)] for guess in asked]
    kept = [dict(row) for row in own or [{}] * len(fields)]
    for example, row in zip(labelled, kept[len(asked) :], strict=True):
        ends.append([example.label, *(row.pop(name, "") for name in said)])  # an earlier answer
    order = [*dict.fromkeys(chain.from_iterable((*kept[len(asked) :], *kept)))]
    mine = [*(names[role] for role in roles), names["label"]]
    first = [name for name in mine[:-1] if name not in order]
    last = [name for name in mine[-1:] if name not in order]
    spare = {"", *names.values(), *roles} - {*mine}
    order = [*first, *(name for name in order if name not in spare), *last]
    renamed = {name: f"source_{name}" for name in said if name not in mine}
    rows = [[*(renamed.get(name, name) for name in order), *said]]
    for each, (label, *answer), row in zip(fields, ends, kept, strict=True):
        cells = row | {names[role]: each.get(role, "") for role in roles} | {mine[-1]: label}
        rows.append([*(cells.get(name, "") for name in order), *answer])
    return rows


def spell_table(rows: Sequence[Sequence[Any]], how: TableSpelling) -> str:
    """The rows of `make_table` as a file."""
    spelt = (spell_row([guard(str(how.spell(cell))) for cell in row], how.sign) for row in rows)
    return MARK + "".join(f"{row}{how.end}" for row in spelt)


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
    """The texts of an example without regard to case and white space: of equal ones, the others
    are copies.
    """
    texts = (str(example.fields.get(role, "")) for role in TEXTS)
    return tuple(normalize_spaces(text.casefold()) for text in texts)


def spell_labelled(
    examples: Sequence[Example], names: Sequence[str], *, bundled: bool = False
) -> Iterator[str]:
    """A line for each labelled example.

    Args:
        bundled: Whether each has its bundle.
    """
    for example in examples:
        stated = example.shares or {example.label: 1.0}
        shares = {name: stated.get(name, 0.0) for name in names}
        yield _spell_row(example, example.label, shares, bundled)


def _spell_row(example: Example, label: str, shares: Mapping[str, float], bundled: bool) -> str:
    texts = {role: example.fields[role] for role in TEXTS if role in example.fields}
    bundle = {BUNDLE: example.bundle} if bundled else {}
    row = {**texts, **bundle, "label": label, "probabilities": dict(shares)}
    return json.dumps(row, ensure_ascii=False) + "\n"
