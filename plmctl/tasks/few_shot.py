"""Few-shot relations: N relations that training has not seen, K examples of each, and sentences
that ask for theirs (FewRel).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import cross_entropy, widen
from plmctl.models.base import Model
from plmctl.objectives.base import Facts, Output, Term
from plmctl.tasks import encode
from plmctl.tasks.base import Example, TaskSettings
from plmctl.tasks.marked import MENTIONS, MarkedTask, States, refuse_unread
from plmctl.tasks.markers import Style, spell
from plmctl.tasks.metrics import check_metrics

Compare = Literal["prototype", "nearest"]
Distance = Literal["euclidean", "cosine", "dot"]
NORMAL = 1.96  # standard errors on either side of a mean: 95%


@dataclass(frozen=True, kw_only=True)
class FewShotSettings(TaskSettings):
    """Settings of few-shot relations.

    Args:
        ways: relations of an episode, N.
        shots: labelled sentences of each, K.
        queries: sentences of each that are asked.
        episodes: {split: how many are drawn}.
        compare: with the mean of the K vectors of a relation, or with the nearest of them.
        distance: between two vectors.
        temperature: divides the scores.
        marks: around head and tail (tasks/markers.py).
        states: what stands for a sentence.
        seed: of the episodes.
    """

    ways: int
    shots: int
    queries: int
    episodes: Mapping[str, int]
    compare: Compare = "prototype"
    distance: Distance = "euclidean"
    temperature: float = 1.0
    marks: Style = "symbols"
    states: States = "start"
    seed: int = 0
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class FewShot(MarkedTask):
    """Which of N relations has a sentence, given K sentences of each (Han et al., 2018,
    arXiv:1810.10147, sec. 4)?

    An example is an episode: N relations of the split, K shots and some queries of each, all
    different sentences. `z_n = -|v(q) - c_n|^2 / temperature`, c_n the mean of the vectors of the
    shots (Snell et al., 2017, arXiv:1703.05175, sec. 2.2), or `z_n` the score of the nearest shot;
    `loss = -log softmax(z)[relation]`, averaged over queries. A relation is in one split only: of a
    single file, `dev_share` of the sentences, whole relations, are dev. `accuracy` is the mean over
    episodes, and `interval` half the width of its 95% interval, 1.96 standard errors.
    """

    head = "vector"
    fields: Mapping[str, Field] = {
        "values.shot": Field("[n]", "int", "relation of a shot in its episode, -1 of a query"),
        "labels.vector": Field("[N]", "int", "relation of a query in its episode"),
        "values.mentions": MENTIONS,
    }
    facts = Facts(needs=frozenset({"text", "labels.vector", "values.shot", "values.group"}))
    chooses = False
    count = 2
    typed = ""  # episodes are drawn from files alone

    Settings = FewShotSettings

    def __init__(self, **settings: Any) -> None:
        own = FewShotSettings(**settings)
        for name, least in (("ways", 2), ("shots", 1), ("queries", 1)):
            if getattr(own, name) < least:
                raise ConfigError(f"task.{name}", getattr(own, name), f"at least {least}")
        super().__init__(own, metrics=check_metrics(own.metrics, ("accuracy", "interval")))
        refuse_unread(own.states, own.sees_later)
        self.own, self.marks, self.states = own, own.marks, own.states

    @property
    def outputs(self) -> int:
        return self.own.ways

    def unit(self, example: Example) -> str:
        """All sentences of a relation."""
        return str(example.label)

    def texts(self, example: Example) -> list[str]:
        texts = [each["text"] for each in example.fields["sentences"]]
        return [*texts, *spell(self.marks)]

    def parse(self, line: str, number: int) -> Example:
        raise ValueError(
            "single texts have no shots: eval without input, of the files of task.path"
        )

    def fit_labels(self, examples: Iterable[Example]) -> None:
        pass  # every split has relations of its own

    def read(self, split: str) -> list[Example]:
        """The episodes of a split."""
        return self.draw(super().read(split), split)

    def draw(self, sentences: Sequence[Example], split: str) -> list[Example]:
        """Episodes of relations and sentences that are drawn without repetition in each."""
        own = self.own
        by_relation: dict[str, list[Example]] = defaultdict(list)
        for sentence in sentences:
            by_relation[str(sentence.label)].append(sentence)
        needed = own.shots + own.queries
        usable = sorted(name for name, each in by_relation.items() if len(each) >= needed)
        if len(usable) < own.ways:
            counts = sorted(map(len, by_relation.values()), reverse=True)
            room = counts[own.ways - 1] - own.queries if len(counts) >= own.ways else 0
            fix = f"task.shots={room}" if room > 0 else f"task.ways={len(usable)}"
            raise DataError(
                f"{len(usable)} relations of the split '{split}' have {needed} sentences or more;"
                f" an episode has {own.ways} relations",
                file=sentences[0].place,
                fix=fix if room > 0 or len(usable) > 1 else "more sentences of each relation",
            )
        generator = np.random.default_rng([own.seed, *split.encode()])
        episodes = []
        for number in range(own.episodes.get(split, own.episodes["dev"])):
            names = [usable[n] for n in generator.permutation(len(usable))[: own.ways]]
            chosen = [
                [by_relation[name][n] for n in generator.permutation(len(by_relation[name]))]
                for name in names
            ]
            shots = [each[: own.shots] for each in chosen]
            queries = [each[own.shots : needed] for each in chosen]
            fields = [e.fields for group in (*shots, *queries) for e in group]
            episodes.append(Example(str(number), {"sentences": fields}, names, sentences[0].place))
        return episodes

    def encode(self, examples: Sequence[Example], tokenizer: Any) -> Rows:
        own, size = self.own, self.own.ways * (self.own.shots + self.own.queries)
        if any("sentences" not in example.fields for example in examples):
            what = "sentences alone have no shots: episodes are drawn from the files of task.path"
            raise DataError(what, file=examples[0].place, fix="eval without input")
        sentences = [fields for example in examples for fields in example.fields["sentences"]]
        # a sentence stands in several episodes: it is tokenized once
        places = {id(fields): fields for fields in sentences}
        index = {key: number for number, key in enumerate(places)}
        known = self.encode_texts([Example("", fields) for fields in places.values()], tokenizer)
        rows = _repeat(known, np.array([index[id(fields)] for fields in sentences]))
        episode = np.repeat(np.arange(len(examples)), size)
        of_shots = np.repeat(np.arange(own.ways), own.shots)
        of_queries = np.repeat(np.arange(own.ways), own.queries)
        shot = np.tile([*of_shots, *[-1] * len(of_queries)], len(examples))
        label = np.tile([*[IGNORE] * len(of_shots), *of_queries], len(examples))
        rows = encode.group_rows(encode.add_values(rows, example=episode, shot=shot))
        return replace(rows, labels={"vector": label})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """[B, N] the scores of a query; of a shot, too, which no loss counts."""
        own, group, shot = self.own, batch.require("values.group"), batch.require("values.shot")
        vectors = widen(model.heads["vector"](self.read_states(model, batch)))  # [B, C]
        if own.distance == "cosine":
            vectors = F.normalize(vectors, dim=-1)
        is_shot = shot >= 0
        slot = group[is_shot] * own.ways + shot[is_shot]  # of each shot: episode and relation
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
        return {"vector": scores / own.temperature}

    def _compare(self, a: Tensor, b: Tensor) -> Tensor:
        """[...] the score of the vectors `a` and `b` [..., C]."""
        if self.own.distance == "euclidean":
            return -(a - b).square().sum(-1)
        return (a * b).sum(-1)

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        total, right = cross_entropy(logits["vector"], batch.require("labels.vector"))
        return Output(
            {"vector": Term(total)}, {"acc/vector": (right, self.counts(batch)["vector"])}
        )

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        queries = self.own.ways * self.own.queries
        asked = logits["vector"][rows.values["shot"] < 0].argmax(-1).reshape(-1, queries)
        gold = np.repeat(np.arange(self.own.ways), self.own.queries)
        return [
            {
                "id": e.id,
                "gold": [e.label[number] for number in gold],
                "guess": [e.label[number] for number in own],
            }
            for e, own in zip(examples, asked.tolist(), strict=True)
        ]

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        shares = [
            sum(g == p for g, p in zip(each["gold"], each["guess"], strict=True))
            / len(each["gold"])
            for each in predictions
        ]
        error = np.std(shares, ddof=1) / math.sqrt(len(shares)) if len(shares) > 1 else math.inf
        found = {"accuracy": float(np.mean(shares)), "interval": NORMAL * float(error)}
        return {name: found[name] for name in self.metrics} | {"chance": 1 / self.own.ways}


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
