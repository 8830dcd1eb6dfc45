"""Links between entities, by a classifier of triples as text (eval only; Yao et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from plmctl.config.build import build
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import part_of
from plmctl.core.progress import ProgressLine
from plmctl.core.spelling import spell_setting
from plmctl.core.values import Count, Rate, Whole
from plmctl.graph.ranks import HITS, describe, place, prefix
from plmctl.knowledge.graph import HEAD, RELATION, SIDES, TAIL, Answers, KnowledgeGraph, Side
from plmctl.knowledge.triple_texts import TripleTexts
from plmctl.knowledge.triples import read_graph
from plmctl.probes.base import Opened, Probe
from plmctl.storage.reading import read_json
from plmctl.storage.resumable import RECORD
from plmctl.tasks import inference
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example
from plmctl.use.asked_task import describe_model
from plmctl.use.graph_evaluation import SPLITS, remark_on_few, tabulate_ranks
from plmctl.use.predict import ScoreTable, Told


class LinkQuestion(NamedTuple):
    """A triple without its head or its tail, and the candidates for it."""

    side: Side
    triple: tuple[int, int, int]
    candidates: np.ndarray  # int64 [c] entities; the right one is the first


@part_of("probe")
@dataclass(frozen=True, kw_only=True)
class ClassifiedLinks(Probe):
    """Filtered ranks of heads and tails by the log-odds that a triple is true, from a model that
    was fine-tuned on true and false triples. The order is that of p(true) (Yao et al., 2019,
    arXiv:1909.03193, sec. 3.2 and 4.2, KG-BERT(a)).

    Each candidate replaces the head or tail; other known answers, of any split, are left out. Ties
    count half. `chance/...`: expected from equal scores; `frequency/...`: candidates by how often
    they are head or tail of the relation in training, which needs no model.

    Args:
        graph: The graph, as `plmctl graph data.path=` reads it.
        valid_share: The share of its triples for validation, where no file is a split of its own.
        true_label: the label of true triples.
        candidates: wrong entities that are drawn for each question, none of which is a known
            answer; None: all.
        triples: The number of drawn triples, at most; None: all of the split.
        seed: The seed of both draws.
    """

    graph: str
    valid_share: Rate = 0.05
    true_label: str = "true"
    candidates: Count | None = None
    triples: Count | None = None
    seed: Whole = 0

    @cached_property
    def _read(self) -> KnowledgeGraph:
        return read_graph(self.graph, valid_share=self.valid_share, setting="task.graph")

    @cached_property
    def texts(self) -> TripleTexts:
        """How triples are written."""
        return TripleTexts(self._read)

    @property
    def fingerprint(self) -> str:
        """The hash of the graph and its splits."""
        return self._read.fingerprint

    def choose(self, split: str) -> np.ndarray:
        """int64 [n, 3] the drawn triples of a split, in the order of a draw: any first part of them
        is a sample of all.
        """
        splits = self._read.splits
        if split not in splits:
            other = next((name for name in splits if name != "train"), "train")
            fix = spell_setting("split", other)
            allowed = f"one that the graph has: {', '.join(splits)}"
            raise ConfigError("split", split, allowed, fix=fix)
        order = np.random.default_rng(self.seed).permutation(len(splits[split]))
        return splits[split][order[: self.triples]]

    def ask(self, triples: np.ndarray) -> Iterator[LinkQuestion]:
        """Both questions of each triple, with their candidates."""
        graph = self._read
        sizes = {"entities": len(graph.entities), "relations": len(graph.relations)}
        known = {side: Answers(graph.triples, side, **sizes) for side in SIDES}
        for head, relation, tail in triples.tolist():
            for number, side in enumerate(SIDES):
                given, right = (head, tail) if side == "tail" else (tail, head)
                answers = known[side].find(np.array([given]), np.array([relation]))[1]
                wrong = np.delete(np.arange(len(graph.entities)), answers)
                if self.candidates is not None and self.candidates < len(wrong):
                    draw = np.random.default_rng([self.seed, head, relation, tail, number])
                    wrong = np.sort(draw.choice(wrong, self.candidates, replace=False))
                yield LinkQuestion(side, (head, relation, tail), np.append(right, wrong))

    def write(self, question: LinkQuestion) -> list[dict[str, str]]:
        """The triple of each candidate as a pair of texts."""
        head, relation, tail = question.triple
        if question.side == "head":
            return [self.texts.pair(entity, relation, tail) for entity in question.candidates]
        return [self.texts.pair(head, relation, entity) for entity in question.candidates]

    def rank(self, scores: Sequence[np.ndarray]) -> np.ndarray:
        """float64 [n] the rank of the first of the scores [c] of each question."""
        tables = [torch.from_numpy(np.asarray(each))[None] for each in scores]
        return np.concatenate([place(table, table[:, :1]).numpy() for table in tables])

    def score(
        self, questions: Sequence[LinkQuestion], scores: Sequence[np.ndarray]
    ) -> dict[str, float]:
        """{metric: value} of both sides together, of each, by chance, and by frequency."""
        ranks = self.rank(scores)
        found = describe(ranks)
        sides = np.array([question.side for question in questions])
        for side in SIDES:
            found |= prefix(side, describe(ranks[sides == side]))
        frequency = describe(self.rank([self._count(question) for question in questions]))
        sizes = np.array([len(question.candidates) for question in questions])
        return {**found, **prefix("frequency", frequency), **prefix("chance", _expect(sizes))}

    def _count(self, question: LinkQuestion) -> np.ndarray:
        """float [c] the frequency of each candidate in its position in training triples of the
        relation.
        """
        train = self._read.splits["train"]
        column = HEAD if question.side == "head" else TAIL
        own = train[train[:, RELATION] == question.triple[RELATION], column]
        counts = np.bincount(own, minlength=len(self._read.entities))
        return counts[question.candidates].astype(np.float64)

    def measure(self, opened: Opened) -> ScoreTable:
        """The ranks of one split; if it is stopped, the ranks of the triples until then are
        shown.
        """
        split = SPLITS.get(opened.split, opened.split)
        classifier = TripleClassifier(opened, self)
        triples = self.choose(split)
        questions, scores = list[LinkQuestion](), list[np.ndarray]()
        show, stop = ProgressLine("questions", 2 * len(triples)), None
        try:
            for question, found in classifier.answer(self.ask(triples)):
                questions.append(question)
                scores.append(found)
                show(len(scores))
        except KeyboardInterrupt as error:
            stop = error
        asked = len(scores) // 2
        extra: dict[str, Any] = {"checkpoint": opened.folder, "triples": asked}
        few = (each.text for each in remark_on_few(asked).values())
        remarks = [*few, *classifier.describe_other_graph()]
        extra |= {"remark": Told("; ".join(remarks))} if remarks else {}
        if stop:
            after = f"after {asked:,} of {len(triples):,} triples, which are in drawn order"
            extra["stopped"] = Told(after, asked)
        metrics = {split: self.score(questions[: 2 * asked], scores[: 2 * asked])} if asked else {}
        table = tabulate_ranks("link prediction", metrics, extra)
        if stop:
            if asked:
                table.show(as_json=opened.given.json)
            raise stop
        return table


def _expect(sizes: np.ndarray) -> dict[str, float]:
    """The mean of all metrics if the right one of c candidates has any rank.

    Args:
        sizes: int64 [n] the candidates of each question.
    """
    harmonic = np.cumsum(1 / np.arange(1, sizes.max() + 1))
    means = {"mrr": harmonic[sizes - 1] / sizes, "mr": (sizes + 1) / 2}
    means |= {f"hits@{k}": np.minimum(1, k / sizes) for k in HITS}
    return {name: float(values.mean()) for name, values in means.items()}


ROWS = 1024  # rows that are sorted by length together


class TripleClassifier:
    """A model that was fine-tuned to classify triples as true or false.

    Raises:
        UsageError: it was fine-tuned on something else.
        ConfigError: it does not know the label of true triples.
    """

    def __init__(self, opened: Opened, task: ClassifiedLinks) -> None:
        loaded = opened.loaded
        self.loaded, self.task, self.precision = loaded, task, opened.precision
        self.batch_size = opened.batch_size
        node, given = loaded.own_task(), describe_model(loaded, opened.plugins)
        own = build(node, given, opened.plugins, path="task") if node else None
        if own is None or own.facts.answer != "class" or own.columns.get("text2") is None:
            raise UsageError(
                f"checkpoint={opened.checkpoint}: it was not fine-tuned on pairs of texts\n"
                "  fix: plmctl data triples kind=kg_bert, then plmctl finetune"
                " task=pair_classification"
            )
        if task.true_label not in own.names:
            fix = spell_setting("task.true_label", own.names[-1])
            raise ConfigError(
                "task.true_label", task.true_label, f"of {', '.join(own.names)}", fix=fix
            )
        self.own, self.true = own, own.names.index(task.true_label)

    def describe_other_graph(self) -> list[str]:
        """A remark if its training texts, where they still exist, are of another graph."""
        file = Path(str(self.own.splits.path)) / RECORD
        if not file.is_file():
            return []
        trained = read_json(file).get("graph")
        if trained in (None, self.task.fingerprint):
            return []
        of = f"{self.task.graph}, or than its splits here"
        return [f"the classifier was fine-tuned on triples of another graph than {of} ({file})"]

    def answer(
        self, questions: Iterable[LinkQuestion]
    ) -> Iterator[tuple[LinkQuestion, np.ndarray]]:
        """Each question with the log-odds [c] of its candidates, about `ROWS` rows at a time."""
        some: list[tuple[LinkQuestion, list[tuple[str, str]]]] = []
        size = 0
        for question in questions:
            pairs = [(pair["text"], pair["text2"]) for pair in self.task.write(question)]
            some.append((question, pairs))
            size += len(pairs)
            if size >= ROWS:
                yield from self._answer(some)
                some, size = [], 0
        yield from self._answer(some)

    def _answer(
        self, some: Sequence[tuple[LinkQuestion, list[tuple[str, str]]]]
    ) -> Iterator[tuple[LinkQuestion, np.ndarray]]:
        """The same of a few questions; the same texts are read once, so that they tie."""
        numbers = {pair: 0 for _, pairs in some for pair in pairs}
        numbers = {pair: number for number, pair in enumerate(numbers)}
        odds = self.score(list(numbers)) if numbers else np.empty(0)
        for question, pairs in some:
            yield question, odds[[numbers[pair] for pair in pairs]]

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float64 [n] log p(true) - log p(false) of pairs of texts."""
        examples = [
            Example(str(number), {"text": first, "text2": second}, place=self.task.graph)
            for number, (first, second) in enumerate(pairs)
        ]
        split = inference.encode_split(self.own, "graph", examples, self.loaded.tokenizer)
        with torch.no_grad(), self.precision.autocast():
            found, _ = inference.run(
                self.loaded.model,
                self.own,
                split.rows,
                batch_size=self.batch_size,
                device=self.precision.device,
            )
        logits = found[self.own.facts.head][encode.firsts(split.rows)].astype(np.float64)  # [n, K]
        others = np.delete(logits, self.true, axis=1)
        return logits[:, self.true] - np.logaddexp.reduce(others, axis=1)
