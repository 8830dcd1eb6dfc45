"""`plmctl eval task=kg_bert`: links ranked by a classifier of triples as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plmctl.artifacts.loading import Loaded
from plmctl.config.build import build
from plmctl.config.uses import Evaluate
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.progress import ProgressLine
from plmctl.core.spelling import spell_setting
from plmctl.probes.graph_evaluation import SPLITS, remark_on_few, tabulate_ranks
from plmctl.storage.reading import read_json
from plmctl.storage.resumable import RECORD
from plmctl.tasks import inference
from plmctl.tasks.classification import Classification
from plmctl.tasks.classified_links import ClassifiedLinks, LinkQuestion
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example
from plmctl.training.device.precision import Precision
from plmctl.use.predict import ScoreTable, Told

ROWS = 1024  # that are sorted by length together


def rank_classified(spec: Evaluate, classifier: TripleClassifier) -> ScoreTable:
    """The ranks of one split; where it is stopped, those of the triples that were asked until
    then are shown.
    """
    task, split = classifier.task, SPLITS.get(spec.split, spec.split)
    triples = task.choose(split)
    questions, scores = list[LinkQuestion](), list[np.ndarray]()
    show, stop = ProgressLine("questions", 2 * len(triples)), None
    try:
        for question, found in classifier.answer(task.ask(triples)):
            questions.append(question)
            scores.append(found)
            show(len(scores))
    except KeyboardInterrupt as error:
        stop = error
    asked = len(scores) // 2
    extra: dict[str, Any] = {"checkpoint": str(classifier.loaded.source.folder), "triples": asked}
    few = (each.text for each in remark_on_few(asked).values())
    remarks = [*few, *classifier.describe_other_graph()]
    extra |= {"remark": Told("; ".join(remarks))} if remarks else {}
    if stop:
        after = f"after {asked:,} of {len(triples):,} triples, which are in drawn order"
        extra["stopped"] = Told(after, asked)
    metrics = {split: task.score(questions[: 2 * asked], scores[: 2 * asked])} if asked else {}
    table = tabulate_ranks("link prediction", metrics, extra)
    if stop:
        if asked:
            table.show(as_json=spec.provenance.json)
        raise stop
    return table


class TripleClassifier:
    """A model that was fine-tuned to tell true from false triples.

    Raises:
        UsageError: it was fine-tuned on something else.
        ConfigError: it does not know the label of true triples.
    """

    def __init__(
        self,
        spec: Evaluate,
        loaded: Loaded,
        task: ClassifiedLinks,
        precision: Precision,
        given: Mapping[str, Any],
    ) -> None:
        self.loaded, self.task, self.precision = loaded, task, precision
        self.batch_size = spec.batch_size
        node = loaded.own_task()
        own = build(node, given, spec.plugins, path="task") if node else None
        if not isinstance(own, Classification) or own.columns.get("text2") is None:
            raise UsageError(
                f"checkpoint={spec.checkpoint}: it was not fine-tuned on pairs of texts\n"
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
        """What to say where its training texts, if they are still there, are of another graph."""
        file = Path(str(self.own.path)) / RECORD
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
        logits = found[self.own.head][encode.firsts(split.rows)].astype(np.float64)  # [n, K]
        others = np.delete(logits, self.true, axis=1)
        return logits[:, self.true] - np.logaddexp.reduce(others, axis=1)
