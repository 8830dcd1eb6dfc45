"""Questions of a conversation about a section of an encyclopedia (QuAC)."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import cross_entropy
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import take_anchors
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.term_weights import read_weights
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Arrays, Examples, Predictions
from plmctl.tasks.scores import quac as quac_score
from plmctl.tasks.squad import Conversational, ConversationSettings

ACTS = {"yes_no": ("y", "n", "x"), "followup": ("y", "m", "n")}  # by the number of their logit
TERMS = ("span", *ACTS)
# the key of the probabilities of both acts, which files do not have
PROBABILITIES = "act_probabilities"


@part_of("task")
class Quac(Conversational):
    """Predicts the span that answers a question of a conversation, whether it says yes, no or
    neither, and whether to follow up (Choi et al., 2018, arXiv:1808.07036).

    `loss = w_1 span + w_2 CE(yes_no) + w_3 CE(followup)`, the span's as in `Squad` version 2, where
    CANNOTANSWER is no answer. The two dialogue acts are read at the anchor of each window that has
    the answer (of all windows, if no window has it). Their prediction is the mean of their log
    probabilities over windows. The turns before a question stand before it (layouts/turns.py).
    Differs: QuAC's own model marks earlier answers in the passage.
    """

    fields: Mapping[str, Field] = {
        "labels.yes_no": Field("[n]", "int", "0: the answer says yes, 1: no, 2: neither"),
        "labels.followup": Field("[n]", "int", "follow up 0: yes, 1: maybe, 2: no"),
    }
    facts = replace(
        Conversational.facts,
        answer="",
        needs=frozenset({"text", *(f"labels.{name}" for name in TERMS)}),
        heads=frozenset(TERMS),
    )
    percent = frozenset(quac_score.NAMES)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = ConversationSettings(**settings)
        self.weights = read_weights(own.weights, TERMS)
        self.submission = {"dev": "quac_dev.jsonl"}

    @classmethod
    def list_metrics(cls, settings: Any) -> Sequence[str]:
        return quac_score.NAMES

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        rows = super().encode(examples, tokenizer)
        assert rows.anchors is not None
        number, first = rows.values["example"], rows.labels["span"][:, 0]
        empty = np.array([example.label is None for example in examples])[number]
        known = (first != rows.anchors[:, 1]) | empty
        labels = {
            name: np.array([_number(kinds, e.fields.get(name)) for e in examples])[number]
            for name, kinds in ACTS.items()
        }
        return encode.add_labels(
            rows, {name: np.where(known, own, IGNORE) for name, own in labels.items()}
        )

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        state = take_anchors(features_of(model, batch), batch)
        acts = {name: model.heads[name](state) for name in ACTS}  # [B, 3]
        return {**super().logits(model, batch), **acts}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: batch.counts[name] for name in TERMS}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        span, counts = super().loss(logits, batch), self.counts(batch)
        terms, logs = {"span": replace(span.terms["span"], weight=self.weights["span"])}, {}
        for name in ACTS:
            total, right = cross_entropy(logits[name], batch.require(f"labels.{name}"))
            terms[name] = Term(total, self.weights[name])
            logs[f"acc/{name}"] = (right, counts[name])
        return Output(terms, {**span.logs, **logs})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        found = self.explain(logits, rows, examples)
        more = ("n_best", PROBABILITIES)
        return [{k: v for k, v in own.items() if k not in more} for own in found]

    def explain(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        """The predictions, with the n best texts and the probabilities of dialogue acts."""
        acts = {name: _weigh(logits[name], rows, kinds) for name, kinds in ACTS.items()}
        found = []
        for number, (prediction, example) in enumerate(
            zip(super().predict(logits, rows, examples), examples, strict=True)
        ):
            own = {name: known[number] for name, known in acts.items()}
            gold = {f"gold_{name}": example.fields.get(name) for name in ACTS}
            about = {"dialogue": example.fields.get("dialogue", example.id), **gold}
            found.append({**self._decide(prediction, own), **about})
        return found

    def _decide(
        self, prediction: dict[str, Any], acts: Mapping[str, Mapping[str, float]]
    ) -> dict[str, Any]:
        """The prediction with no answer where that is likelier, and the likeliest acts."""
        empty = prediction["null_odds"] > self.null_threshold or not prediction["guess"]
        return {
            **prediction,
            "guess": quac_score.NONE if empty else prediction["guess"],
            **{name: max(known, key=known.__getitem__) for name, known in acts.items()},
            PROBABILITIES: acts,
        }

    def settle(self, joined: dict[str, Any], rows: Predictions) -> dict[str, Any]:
        """With the acts of the mean of probabilities."""
        mean = {
            name: {
                kind: math.fsum(row[PROBABILITIES][name][kind] for row in rows) / len(rows)
                for kind in kinds
            }
            for name, kinds in ACTS.items()
        }
        return self._decide(joined, mean)

    def describe_metric(self, name: str) -> str:
        return quac_score.MEANINGS.get(name, "")

    def score(self, predictions: Predictions) -> dict[str, float]:
        scores = quac_score.score(predictions)
        return {name: scores[name] for name in self.metrics}

    def submit(self, predictions: Predictions) -> str:
        """A line for each dialogue, as the evaluation script reads it."""
        dialogues = defaultdict[str, list[Mapping[str, Any]]](list)
        for prediction in predictions:
            dialogues[prediction["dialogue"]].append(prediction)
        columns = {"best_span_str": "guess", "qid": "id", "yesno": "yes_no", "followup": "followup"}
        lines = [
            {column: [row[key] for row in own] for column, key in columns.items()}
            for own in dialogues.values()
        ]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _number(kinds: Sequence[str], kind: str | None) -> int:
    return IGNORE if kind is None else kinds.index(kind)


def _weigh(logits: np.ndarray, rows: Rows, kinds: Sequence[str]) -> list[dict[str, float]]:
    """The probability of every kind for each example: from the mean log probabilities over its
    rows, normalised again.
    """
    scores = _normalise(logits.astype(np.float64))
    number = rows.values["example"]
    mean = np.zeros((int(number.max()) + 1, len(kinds)))
    np.add.at(mean, number, scores)
    mean /= np.bincount(number)[:, None]
    return [dict(zip(kinds, own, strict=True)) for own in np.exp(_normalise(mean)).tolist()]


def _normalise(scores: np.ndarray) -> np.ndarray:
    """Logits [n, K] as log probabilities."""
    return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
