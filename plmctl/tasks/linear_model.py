"""Linear models of words for classes, sets of labels, numbers and choices. `finetune` fits them in
seconds, compares them with its own model, and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.errors import DataError
from plmctl.core.named_values import name_rows
from plmctl.core.rounding import round_floats
from plmctl.storage.atomic import write_bytes, write_json
from plmctl.storage.reading import COPY, read_json, read_tensors
from plmctl.tasks.calibration import decide
from plmctl.tasks.record import Example, Examples
from plmctl.tasks.scores.labels import name_sets
from plmctl.tasks.scores.rouge import words
from plmctl.tasks.sparse_linear import LEAST, Loss, WeightedCounts, count_features, fit_linear
from plmctl.tasks.task import Task

CARD, TENSORS = "linear.json", "linear.safetensors"  # files of a folder with such a model
RUNS = {"words": 1, "words and pairs": 2}  # {model: words of a feature at most}
Row = dict[str, Any]


@dataclass(frozen=True)
class LinearModel:
    """`z = x W + b`, x the weighted counts of a text.

    Args:
        most: Words of a feature at most.
        names: The labels of the K scores; none of a number.
        counts: The features, and how rare they are.
        weights: [V, K] W.
        constant: [K] b.
        scale: [2] the mean and the spread of numbers: a number is `spread z + mean`.
    """

    most: int
    names: list[str]
    counts: WeightedCounts
    weights: Tensor
    constant: Tensor
    scale: Tensor

    def score(self, task: Task, examples: Examples) -> Tensor:
        """[n, K] z of each example, of choices [n, 1] of each choice."""
        texts = KINDS[task.facts.answer].read(examples, self.most)
        return self.counts.rows(texts).times(self.weights) + self.constant

    def answer(self, task: Task, examples: Examples) -> list[Row]:
        """Predictions as the task's own, with the digits that files keep."""
        rows: list[Row] = round_floats(KINDS[task.facts.answer].answer(self, task, examples))
        return rows

    def find_unread(self, examples: Examples) -> set[int]:
        """The numbers of the examples without any known feature, which all get one answer."""
        known = self.counts.number.keys()
        found = enumerate(read(examples, self.most))
        return {number for number, own in found if known.isdisjoint(own)}

    def save(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Write it into a folder, with the config of the run that fitted it."""
        rare = torch.tensor(self.counts.weights, dtype=torch.float64)
        tensors = {"rare": rare, "weights": self.weights, "constant": self.constant}
        tensors = {name: own.contiguous() for name, own in tensors.items()}
        write_bytes(folder / TENSORS, save({**tensors, "scale": self.scale}))
        features = [*self.counts.number]
        card = ModelCard(most=self.most, names=self.names, features=features, config={**config})
        write_json(folder / CARD, card)


class ModelCard(TypedDict):
    """The JSON file of a model; `config` is that of its run."""

    most: int
    names: list[str]
    features: list[str]
    config: dict[str, Any]


def is_linear(folder: Path) -> bool:
    """Whether a folder has a linear model of words."""
    return (folder / CARD).is_file()


def load_linear(folder: Path) -> tuple[LinearModel, dict[str, Any]]:
    """The model of a folder, and the config of its run.

    Raises:
        DataError: A file is missing or damaged, or the two are of different models.
    """
    card = read_json(folder / CARD, ModelCard)
    tensors = read_tensors(folder / TENSORS)
    wide, outputs = len(card["features"]), max(1, len(card["names"]))
    sizes = {"rare": [wide], "weights": [wide, outputs], "constant": [outputs], "scale": [2]}
    if {name: [*own.shape] for name, own in tensors.items()} != sizes:
        what = f"its weights are not those of the features in {CARD}"
        raise DataError(what, file=folder / TENSORS, fix=COPY)
    counts = WeightedCounts(())
    counts.number = {feature: index for index, feature in enumerate(card["features"])}
    counts.weights = tensors.pop("rare").tolist()
    return LinearModel(card["most"], card["names"], counts, **tensors), card["config"]


def fit_models(task: Task, train: Examples) -> dict[str, LinearModel]:
    """Models of words, and of words and pairs. None of tasks with other answers, nor of so many
    labels that there is room for few words.
    """
    kind = KINDS.get(task.facts.answer)
    if kind is None or not any(map(sides_of, train)):
        return {}
    target = kind.describe(task, train)
    outputs = max(1, len(target.names))
    if count_features(len(train), outputs) < LEAST:
        return {}
    found = {}
    for name, most in RUNS.items():
        fitted = fit(kind.read(train, most), outputs, target.loss)
        found[name] = LinearModel(most, target.names, *fitted, target.scale)
    return found


def fit(texts: list[list[str]], outputs: int, loss: Loss) -> tuple[WeightedCounts, Tensor, Tensor]:
    """(the counts, weights and constants) of the least loss; `texts` are features of each."""
    counts = WeightedCounts(texts, count_features(len(texts), outputs))
    return counts, *fit_linear(counts.rows(texts), len(counts.number), outputs, loss)


def read(examples: Examples, most: int) -> list[list[str]]:
    """The features of each example."""
    return [find_features(sides_of(each), most) for each in examples]


def read_choices(examples: Examples, most: int) -> list[list[str]]:
    """The features of each choice of each example, with its text."""
    return [
        find_features([each.fields["text"], choice], most)
        for each in examples
        for choice in each.fields["choices"]
    ]


def count_choices(examples: Examples) -> list[int]:
    """The number of choices of each example."""
    return [len(each.fields["choices"]) for each in examples]


def sides_of(example: Example) -> list[str]:
    """The texts of an example, and the words of the entities that are marked in it."""
    sides = []
    for value in example.fields.values():
        if isinstance(value, str):
            sides.append(value)
        elif isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            sides.append(" ".join(value))
    text = example.fields.get("text")
    for entity in example.fields.get("entities") or ():
        if isinstance(entity, Mapping) and isinstance(text, str):
            sides.append(text[entity["start"] : entity["end"]])
    return sides


def find_features(sides: Sequence[str], most: int) -> list[str]:
    """Runs of at most `most` words; with several texts each by its number, and the words that the
    first two share.
    """
    found: list[str] = []
    known = [words(side) for side in sides]
    for number, own in enumerate(known):
        mark = f"{number} " if len(known) > 1 else ""
        for n in range(1, most + 1):
            runs = zip(*(own[start:] for start in range(n)), strict=False)
            found += [mark + " ".join(run) for run in runs]
    if len(known) > 1:
        found += [f"both {word}" for word in sorted({*known[0]} & {*known[1]})]
    return found


def make_rows(
    task: Task,
    examples: Examples,
    guesses: Sequence[Any],
    shares: Sequence[Mapping[str, float] | list[float]] | None = None,
) -> list[Row]:
    """A prediction for each example, with the probabilities of labels where there are some; the
    entries are in the order of those of fine-tuned models.
    """
    known = [{}] * len(guesses) if shares is None else [{"probabilities": own} for own in shares]
    golds = [None if each.label is None else task.gold_of(each) for each in examples]
    return [
        {"id": each.id, "gold": gold, "guess": guess, **own, **name_sets(each)}
        for each, gold, guess, own in zip(examples, golds, guesses, known, strict=True)
    ]


def make_set_rows(
    task: Task, examples: Examples, names: Sequence[str], probabilities: Tensor
) -> list[Row]:
    """A prediction of any number of labels for each example, from their probabilities [n, K]."""
    found = name_rows(names, probabilities.numpy())
    return make_rows(task, examples, [decide(task, own) for own in found], found)


@dataclass(frozen=True)
class LinearTarget:
    """The aim of a fit.

    Args:
        names: The labels; none of numbers.
        loss: The mean loss of [N, K] scores.
        scale: [2] the mean and the spread of numbers.
    """

    names: list[str]
    loss: Loss
    scale: Tensor


PLAIN = torch.tensor([0.0, 1.0], dtype=torch.float64)


def _describe_classes(task: Task, train: Examples) -> LinearTarget:
    names = sorted({str(task.gold_of(each)) for each in train})
    number = {name: index for index, name in enumerate(names)}
    gold = torch.tensor([number[str(task.gold_of(each))] for each in train])
    return LinearTarget(names, lambda scores: F.cross_entropy(scores, gold), PLAIN)


def _answer_classes(model: LinearModel, task: Task, examples: Examples) -> list[Row]:
    scores = model.score(task, examples)
    best = [model.names[index] for index in scores.argmax(-1).tolist()]
    return make_rows(task, examples, best, name_rows(model.names, scores.softmax(-1).numpy()))


def _describe_sets(task: Task, train: Examples) -> LinearTarget:
    names = sorted({name for each in train for name in each.label})
    gold = torch.tensor([[name in each.label for name in names] for each in train]).double()
    return LinearTarget(names, lambda s: F.binary_cross_entropy_with_logits(s, gold), PLAIN)


def _answer_sets(model: LinearModel, task: Task, examples: Examples) -> list[Row]:
    return make_set_rows(task, examples, model.names, model.score(task, examples).sigmoid())


def _describe_numbers(task: Task, train: Examples) -> LinearTarget:
    gold = torch.tensor([float(task.gold_of(each)) for each in train], dtype=torch.float64)
    mean, spread = gold.mean(), gold.std(correction=0).clamp(min=1e-12)
    wanted = (gold - mean) / spread
    return LinearTarget([], lambda s: F.mse_loss(s[:, 0], wanted), torch.stack([mean, spread]))


def _answer_numbers(model: LinearModel, task: Task, examples: Examples) -> list[Row]:
    mean, spread = model.scale
    return make_rows(task, examples, (model.score(task, examples)[:, 0] * spread + mean).tolist())


def _describe_choices(task: Task, train: Examples) -> LinearTarget:
    """`p(choice) = softmax over the choices of z`."""
    sizes = count_choices(train)
    right = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    right += torch.tensor([int(task.gold_of(each)) for each in train])
    group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))

    def measure(found: Tensor) -> Tensor:
        scores = found[:, 0]
        total = torch.zeros(len(sizes), dtype=scores.dtype).index_add(0, group, scores.exp())
        return (total.log() - scores[right]).mean()

    return LinearTarget([], measure, PLAIN)


def _answer_choices(model: LinearModel, task: Task, examples: Examples) -> list[Row]:
    found = model.score(task, examples)[:, 0].split(count_choices(examples))
    shares = [own.softmax(0).tolist() for own in found]
    return make_rows(task, examples, [int(own.argmax()) for own in found], shares)


@dataclass(frozen=True)
class AnswerKind:
    """A kind of answers: the aim of a fit to examples, predictions of a fitted model, and the
    features of each row of it.
    """

    describe: Callable[[Task, Examples], LinearTarget]
    answer: Callable[[LinearModel, Task, Examples], list[Row]]
    read: Callable[[Examples, int], list[list[str]]] = read


# by what a task says of its answers
KINDS = {
    "class": AnswerKind(_describe_classes, _answer_classes),
    "types": AnswerKind(_describe_sets, _answer_sets),
    "number": AnswerKind(_describe_numbers, _answer_numbers),
    "choice": AnswerKind(_describe_choices, _answer_choices, read_choices),
}
