"""Linear probes: how well a linear map predicts labels from each layer's states (Tenney et al.,
2019; Hewitt and Liang, 2019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.artifacts.loading import Loaded
from plmctl.core.errors import DataError, list_some
from plmctl.core.terminal import counted
from plmctl.storage.reading import parse_json
from plmctl.tasks import batches, inference
from plmctl.tasks.readers.conll import Columns
from plmctl.tasks.record import Example
from plmctl.tasks.tagging import Tagging
from plmctl.text.inputs import need_lines
from plmctl.text.tabular import kind_of

TRAIN, TEST = 4000, 2000  # labelled items at most: enough for a comparison of layers, in seconds
PENALTY = 1e-3  # times the map's squared weights
FEW = 10  # items of a label, to learn from or to score: fewer say little
SHOWN = 5  # labels that a remark names
_LONGEST = 128  # tokens of a row


@dataclass(frozen=True)
class Labels:
    """Labelled words: a column file (CoNLL), or JSON lines `{word, sentence1, sentence2, label}`
    (WiC).
    """

    file: Path
    tokens: int = 0
    tags: int = 1


@dataclass(frozen=True)
class Item:
    """One labelled item: a word in its sentence, or one word in two sentences."""

    positions: Sequence[tuple[int, int]]  # (sentence, word)
    label: str
    word: str


@dataclass(frozen=True)
class ProbeItems:
    """The items for training and scoring, and their sentences."""

    sentences: Sequence[Sequence[str]]
    train: Sequence[Item]
    test: Sequence[Item]


@dataclass(frozen=True)
class ProbeResult:
    """Accuracy on held-out items after each layer, the embedding output first, and of two baselines
    without a model.
    """

    accuracy: list[float]
    majority: float
    by_word: float  # always the label that the word has most often in training
    train: int
    test: int
    classes: int
    # {label: its items for training and for scoring}, of those with few
    rare: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, opened: Loaded, question: ProbeItems) -> Self:
        """Train and score a linear map for each layer of a model.

        For a word in two sentences the map reads `|u - v|` and `u * v` of its states u, v; test
        words are none of training's (Pilehvar and Camacho-Collados, 2019, WiC). The state of a word
        is that of its first piece.
        """
        train, test = question.train, question.test
        labels = sorted({item.label for item in train})
        names = {name: number for number, name in enumerate(labels)}
        used = sorted({each[0] for item in (*train, *test) for each in item.positions})
        states = read_states(opened, [question.sentences[n] for n in used], used)
        x, y = _features(train, states), torch.tensor([names[item.label] for item in train])
        test_x = _features(test, states)
        test_y = torch.tensor([names.get(item.label, -1) for item in test])
        accuracy = [
            float((apply_map(fit_map(a, y, len(names)), b).argmax(-1) == test_y).float().mean())
            for a, b in zip(x, test_x, strict=True)
        ]
        sizes = len(train), len(test), len(names)
        return cls(accuracy, *_floors(train, test), *sizes, count_rare(question))


def split_items(labels: Labels) -> ProbeItems:
    """The items of `labels`: the first four fifths for training, the others for scoring; DataError
    if there are too few.
    """
    sentences, items = read(labels)
    train, test = _split(items)
    if len({item.label for item in train}) < 2 or not test:
        raise DataError("too few labels or sentences for a probe", file=labels.file)
    return ProbeItems(sentences, train, test)


def count_rare(question: ProbeItems) -> dict[str, tuple[int, int]]:
    """{label: its items for training and for scoring}, of labels with fewer than `FEW` of either;
    the rarest first.
    """
    train, test = (Counter(each.label for each in own) for own in (question.train, question.test))
    counts = {label: (train[label], test[label]) for label in {*train, *test}}
    rare = sorted((min(both), label) for label, both in counts.items() if min(both) < FEW)
    return {label: counts[label] for _, label in rare}


def describe_rare(question: ProbeItems) -> str:
    """A remark on labels with few items; "" for none."""
    rare = count_rare(question)
    if not rare:
        return ""
    named = [f"{label} {train:,} and {test:,}" for label, (train, test) in rare.items()]
    return (
        f"{counted(len(rare), 'label')} with fewer than {FEW} items to learn from or to score, so"
        f" accuracy says little of these: {list_some(named, SHOWN)}."
    )


@dataclass(frozen=True)
class Map:
    """A linear map of standardised features: `W (x - mean) / deviation + b`."""

    mean: Tensor
    deviation: Tensor
    weight: Tensor  # [K, W]
    bias: Tensor


def fit_map(x: Tensor, y: Tensor, classes: int) -> Map:
    """The map with the least `mean CE(W z + b, y) + PENALTY / 2 |W|^2`, z the standardised x [N,
    W]; by L-BFGS.
    """
    mean, deviation = x.mean(0), x.std(0).clamp_min(1e-6)
    z = (x - mean) / deviation
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias], max_iter=60, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(z @ weight.T + bias, y) + PENALTY / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return Map(mean, deviation, weight.detach(), bias.detach())


def apply_map(linear: Map, x: Tensor) -> Tensor:
    """[N, K] the logits of a map."""
    return (x - linear.mean) / linear.deviation @ linear.weight.T + linear.bias


def read(labels: Labels) -> tuple[list[list[str]], list[Item]]:
    """(sentences as words, items in the order of the file)."""
    if not labels.file.is_file():
        raise DataError("no such file", file=labels.file)
    if kind_of(labels.file) in (".jsonl", ".json"):
        return _pairs(labels.file)
    examples = Columns(splits={}).read_file(
        labels.file, {"tokens": labels.tokens, "tags": labels.tags}
    )
    sentences = [list(example.fields["words"]) for example in examples]
    items = [
        Item([(n, w)], tag, sentences[n][w].lower())
        for n, example in enumerate(examples)
        for w, tag in enumerate(example.label)
    ]
    return sentences, items


def _pairs(file: Path) -> tuple[list[list[str]], list[Item]]:
    sentences: list[list[str]] = []
    items = []
    for number, line in need_lines(file):
        try:
            row: dict[str, Any] = parse_json(line) if line.strip() else {}
            texts = [str(row[name]).split() for name in ("sentence1", "sentence2")] if row else []
            word = str(row["word"]) if row else ""
            items += (
                [Item(_find_word(word, texts, len(sentences)), str(row["label"]), word)]
                if row
                else []
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            names = "word, sentence1, sentence2, label"
            raise DataError(f"not a JSON object with {names}", file=file, line=number) from error
        sentences += texts
    return sentences, items


def _find_word(word: str, texts: Sequence[Sequence[str]], start: int) -> list[tuple[int, int]]:
    """(sentence, word) for each text: the word with the longest common prefix with `word`, since
    the files do not give its position.
    """

    def common(other: str) -> int:
        other = other.lower()
        unlike = (n for n, (a, b) in enumerate(zip(word.lower(), other, strict=False)) if a != b)
        return next(unlike, min(len(word), len(other)))

    return [
        (start + n, max(range(len(words)), key=lambda w: (common(words[w]), -w)))
        for n, words in enumerate(texts)
    ]


def _split(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Four fifths and the rest, cut between sentences; for pairs every fifth word is held out, with
    all of its items.
    """
    if items and len(items[0].positions) > 1:
        words = list(dict.fromkeys(item.word for item in items))
        known = {word for index, word in enumerate(words) if index % 5 < 4}
        train, test = (
            [item for item in items if (item.word in known) == first] for first in (True, False)
        )
        return train[:TRAIN], test[:TEST]
    cut = len(items) * 4 // 5
    while 0 < cut < len(items) and items[cut - 1].positions[0][0] == items[cut].positions[0][0]:
        cut += 1
    return list(items[: min(cut, TRAIN)]), list(items[cut : cut + TEST])


def read_states(
    loaded: Loaded, sentences: Sequence[Sequence[str]], numbers: Sequence[int]
) -> dict[tuple[int, int], Tensor]:
    """{(sentence, word): [L + 1, W]} the states of first pieces after each layer."""
    longest = min(_LONGEST, loaded.model.backbone.max_length or _LONGEST)
    reader: Any = Columns(splits={})
    task = Tagging(name="probe", reader=reader, columns={}, max_length=longest, metrics=[])
    examples = [
        Example(str(n), {"words": list(words)}) for n, words in zip(numbers, sentences, strict=True)
    ]
    rows = inference.encode_split(task, "probe", examples, loaded.tokenizer).rows
    states = {}
    for index in _chunks(len(rows.key)):
        with torch.inference_mode():
            recorded = loaded.model(
                batches.collate(rows, index), record=frozenset({"hidden"})
            ).recorded
        if not recorded:
            raise DataError("this model does not record the states between its layers")
        layers = torch.stack(list(recorded["hidden"]))  # [L + 1, B, T, W]
        first, last = np.searchsorted(rows.spans["word"][:, 0], [index[0], index[-1] + 1])
        for row, start, _, word in rows.spans["word"][first:last].tolist():
            sentence = numbers[int(rows.values["example"][row])]
            states[sentence, word] = layers[:, row - int(index[0]), start].float().clone()
    return states


def _chunks(count: int, size: int = 32) -> Iterator[np.ndarray]:
    yield from (np.arange(start, min(start + size, count)) for start in range(0, count, size))


def _features(items: Sequence[Item], states: dict[tuple[int, int], Tensor]) -> Tensor:
    """[L + 1, N, W], of pairs [L + 1, N, 2 W]."""
    features = []
    for item in items:
        u, *rest = (states[position] for position in item.positions)
        features.append(torch.cat([(u - rest[0]).abs(), u * rest[0]], -1) if rest else u)
    return torch.stack(features, 1)


def _floors(train: Sequence[Item], test: Sequence[Item]) -> tuple[float, float]:
    """(accuracy of the most frequent label, of the most frequent label of each word)."""
    most = Counter(item.label for item in train).most_common(1)[0][0]
    of_word: dict[str, Counter[str]] = {}
    for item in train:
        of_word.setdefault(item.word, Counter())[item.label] += 1
    known = {word: counts.most_common(1)[0][0] for word, counts in of_word.items()}
    majority = sum(item.label == most for item in test)
    by_word = sum(item.label == known.get(item.word, most) for item in test)
    return majority / len(test), by_word / len(test)
