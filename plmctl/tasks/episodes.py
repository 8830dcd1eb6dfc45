"""Few-shot episodes: N classes, K labelled examples of each, and examples that ask for theirs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.heads.base import cross_entropy, widen
from plmctl.objectives.base import Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.intervals import wilson
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.base import RowLayout
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.task import Task, TaskSettings, need

Compare = Literal["prototype", "nearest"]
Distance = Literal["euclidean", "cosine", "dot"]
NORMAL = 1.96  # standard errors on either side of a mean: 95%
METRICS = ("accuracy", "interval")
SHOT = Field("[n]", "int", "class of a shot in its episode, -1 of a query")
LABEL = Field("[N]", "int", "class of a query in its episode")
NONE = "single texts have no shots: eval without input, of the files of task.path"


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings(TaskSettings):
    """Settings of few-shot episodes.

    Args:
        ways: classes of an episode, N.
        shots: labelled examples of each, K.
        queries: The query examples of each class.
        episodes: {split: how many are drawn}.
        compare: with the mean of the K vectors of a class, or with the nearest of them.
        distance: between two vectors.
        temperature: divides the scores.
        seed: The seed of the episodes.
    """

    ways: int
    shots: int
    queries: int
    episodes: Mapping[str, int]
    compare: Compare = "prototype"
    distance: Distance = "euclidean"
    temperature: float = 1.0
    seed: int = 0


class Episodes:
    """Draws episodes, and compares vectors in them.

    An episode has N classes of a split, K shots and some queries of each, all different examples.
    `z_n = -|v(q) - c_n|^2 / temperature`, c_n the mean of the vectors of the shots (Snell et al.,
    2017, arXiv:1703.05175, sec. 2.2), or `z_n` the score of the nearest shot; `loss = -log
    softmax(z)[class]`, averaged over queries.

    Args:
        own: the settings of its task.
        noun: The name of classes in messages: "relations".
    """

    def __init__(self, own: EpisodeSettings, noun: str) -> None:
        for name, least in (("ways", 2), ("shots", 1), ("queries", 1)):
            if getattr(own, name) < least:
                raise ConfigError(f"task.{name}", getattr(own, name), f"at least {least}")
        self.own, self.noun = own, noun

    def draw(self, sentences: Examples, split: str) -> list[Example]:
        """Episodes of classes and examples that are drawn without repetition in each."""
        own = self.own
        by_class: dict[str, list[Example]] = defaultdict(list)
        for sentence in sentences:
            by_class[str(sentence.label)].append(sentence)
        needed = own.shots + own.queries
        usable = sorted(name for name, each in by_class.items() if len(each) >= needed)
        if len(usable) < own.ways:
            counts = sorted(map(len, by_class.values()), reverse=True)
            room = counts[own.ways - 1] - own.queries if len(counts) >= own.ways else 0
            fix = f"task.shots={room}" if room > 0 else f"task.ways={len(usable)}"
            raise DataError(
                f"{len(usable)} {self.noun} of the split '{split}' have {needed} sentences or more;"
                f" an episode has {own.ways} {self.noun}",
                file=sentences[0].place,
                fix=fix if room > 0 or len(usable) > 1 else f"more sentences of these {self.noun}",
            )
        generator = np.random.default_rng([own.seed, *split.encode()])
        episodes = []
        for number in range(own.episodes.get(split, own.episodes["dev"])):
            names = [usable[n] for n in generator.permutation(len(usable))[: own.ways]]
            chosen = [
                [by_class[name][n] for n in generator.permutation(len(by_class[name]))]
                for name in names
            ]
            shots = [each[: own.shots] for each in chosen]
            queries = [each[own.shots : needed] for each in chosen]
            fields = [e.fields for group in (*shots, *queries) for e in group]
            episodes.append(Example(str(number), {"sentences": fields}, names, sentences[0].place))
        return episodes

    def lay_out(self, examples: Examples) -> tuple[list[Mapping[str, Any]], np.ndarray]:
        """The fields of all sentences, each once, and for each row of the episodes the number of
        its sentence; DataError for examples that are no episodes.
        """
        if any("sentences" not in example.fields for example in examples):
            what = "sentences alone have no shots: episodes are drawn from the files of task.path"
            raise DataError(what, file=examples[0].place, fix="eval without input")
        sentences = [fields for example in examples for fields in example.fields["sentences"]]
        # a sentence stands in several episodes: it is tokenized once
        places = {id(fields): fields for fields in sentences}
        index = {key: number for number, key in enumerate(places)}
        return list(places.values()), np.array([index[id(fields)] for fields in sentences])

    def encode(self, known: Rows, index: np.ndarray) -> Rows:
        """The rows of all episodes, from those of their sentences."""
        own, size = self.own, self.own.ways * (self.own.shots + self.own.queries)
        rows, count = _repeat(known, index), len(index) // size
        of_shots = np.repeat(np.arange(own.ways), own.shots)
        of_queries = np.repeat(np.arange(own.ways), own.queries)
        shot = np.tile([*of_shots, *[-1] * len(of_queries)], count)
        label = np.tile([*[IGNORE] * len(of_shots), *of_queries], count)
        episode = np.repeat(np.arange(count), size)
        rows = encode.group_rows(encode.add_values(rows, example=episode, shot=shot))
        return replace(rows, labels={"vector": label})

    def compare(self, vectors: Tensor, batch: Batch) -> Tensor:
        """[B, C] -> [B, N] the scores of a query; of a shot, too, which no loss counts."""
        own, group, shot = self.own, batch.require("values.group"), batch.require("values.shot")
        vectors = widen(vectors)
        if own.distance == "cosine":
            vectors = F.normalize(vectors, dim=-1)
        is_shot = shot >= 0
        slot = group[is_shot] * own.ways + shot[is_shot]  # the episode and class of each shot
        if own.compare == "prototype":
            count = len(group) // (own.ways * (own.shots + own.queries))  # episodes
            mean = vectors.new_zeros(count * own.ways, vectors.shape[1]).index_add(
                0, slot, vectors[is_shot] / own.shots
            )
            scores = self._compare(vectors[:, None], mean.view(count, own.ways, -1)[group])
        else:
            near = vectors[is_shot][torch.argsort(slot, stable=True)]  # [E N K, C]
            near = near.view(-1, own.ways, own.shots, vectors.shape[1])[group]  # [B, N, K, C]
            scores = self._compare(vectors[:, None, None], near).amax(-1)
        return scores / own.temperature

    def _compare(self, a: Tensor, b: Tensor) -> Tensor:
        """[...] the score of the vectors `a` and `b` [..., C]."""
        if self.own.distance == "euclidean":
            return -(a - b).square().sum(-1)
        return (a * b).sum(-1)

    def loss(self, logits: Tensor, batch: Batch, count: int) -> Output:
        """The summed loss of the queries, `count` of them."""
        total, right = cross_entropy(logits, batch.require("labels.vector"))
        return Output({"vector": Term(total)}, {"acc/vector": (right, count)})

    def predict(self, logits: np.ndarray, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        """For each episode the classes of its queries, and the predicted ones."""
        queries = self.own.ways * self.own.queries
        asked = logits[rows.values["shot"] < 0].argmax(-1).reshape(-1, queries)
        gold = np.repeat(np.arange(self.own.ways), self.own.queries)
        return [
            {
                "id": e.id,
                "gold": [e.label[number] for number in gold],
                "guess": [e.label[number] for number in own],
            }
            for e, own in zip(examples, asked.tolist(), strict=True)
        ]

    def score(self, predictions: Predictions) -> dict[str, float]:
        """The mean accuracy of an episode, and half the width of its 95% interval; where all
        episodes agree, of Wilson's interval over all their queries.
        """
        shares = [
            sum(g == p for g, p in zip(each["gold"], each["guess"], strict=True))
            / len(each["gold"])
            for each in predictions
        ]
        error = np.std(shares, ddof=1) / math.sqrt(len(shares)) if len(shares) > 1 else math.inf
        half = NORMAL * float(error)
        if not half:
            queries = sum(len(each["gold"]) for each in predictions)
            low, high = wilson(float(np.mean(shares)) * queries, queries)
            half = (high - low) / 2
        found = {"accuracy": float(np.mean(shares)), "interval": half}
        return {name: found[name] for name in self.own.metrics} | {"chance": 1 / self.own.ways}


class EpisodicTask(Task):
    """A task whose examples are episodes; a subclass lays out texts, and compares their vectors."""

    fields: Mapping[str, Field] = {"values.shot": SHOT, "labels.vector": LABEL}
    # episodes are drawn from files alone
    facts = TaskFacts(
        needs=frozenset({"text", "labels.vector", "values.shot", "values.group"}),
        chooses=False,
        typed="",
    )

    def __init__(self, own: EpisodeSettings, noun: str, layout: RowLayout) -> None:
        self.episodes = Episodes(own, noun)
        self.facts = replace(self.facts, outputs=own.ways)
        super().__init__(own, metrics=check_metrics(own.metrics, METRICS), layout=layout)

    def describe_known(self, examples: Examples) -> list[str]:
        sentences = [Example("", own) for each in examples for own in each.fields["sentences"]]
        return super().describe_known(sentences)

    def parse(self, line: str, number: int) -> Example:
        raise ValueError(NONE)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        pass  # a split may have classes of its own

    def read(self, split: str) -> list[Example]:
        """The episodes of a split."""
        return self.episodes.draw(super().read(split), split)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        sentences, index = self.episodes.lay_out(examples)
        each = [Example("", fields) for fields in sentences]
        return self.episodes.encode(need(self.layout).encode(each, tokenizer, self.rows), index)

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        return self.episodes.loss(logits["vector"], batch, self.counts(batch)["vector"])

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        return self.episodes.predict(logits["vector"], rows, examples)

    def score(self, predictions: Predictions) -> dict[str, float]:
        return self.episodes.score(predictions)


def _repeat(rows: Rows, index: np.ndarray) -> Rows:
    """The rows of `index`, some of them several times."""
    seqs = {
        name: replace(
            seq,
            ids=seq.ids[index],
            length=seq.length[index],
            tracks={track: ids[index] for track, ids in seq.tracks.items()},
        )
        for name, seq in rows.seqs.items()
    }
    numbers = np.arange(len(index))
    assert rows.anchors is not None
    return replace(
        rows,
        key=numbers,
        seqs=seqs,
        anchors=np.stack([numbers, rows.anchors[index, 1]], axis=1),
        values={name: value[index] for name, value in rows.values.items()},
    )
