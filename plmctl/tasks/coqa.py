"""Questions of a conversation about a story, answered by a span, yes, no or unknown (CoQA)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import widen
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import take_anchors
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.term_weights import read_weights
from plmctl.tasks.layouts import encode, places
from plmctl.tasks.layouts.encode import Row
from plmctl.tasks.readers.coqa import KINDS
from plmctl.tasks.readers.squad import MISPLACED
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import coqa as coqa_score
from plmctl.tasks.scores.labels import name_sets
from plmctl.tasks.squad import Conversational, ConversationSettings, Passage

NOWHERE = -1  # no token of the window says why
Span = tuple[int, int]


@part_of("task")
class Coqa(Conversational):
    """Predicts a span of the story, or yes, no or unknown, whose logits are joined to those of the
    tokens (Ju et al., 2019, arXiv:1909.10772, Technical report on conversational question
    answering).

    `p_start = softmax([s_1, ..., s_T; z_yes, z_no, z_unknown])`, p_end likewise with the same z of
    the anchor; `loss = -(log p_start(gold) + log p_end(gold)) / 2`. A window without the answer
    points at the anchor. Predicted: the best span, or the kind with a larger `2 z`, the largest
    over windows. With `weights.rationale`, a head tags the tokens that say why (rationale tagging):
    the binary cross-entropy, averaged over the tokens of the passage, times that weight.

    The turns before a question stand before it (layouts/turns.py). Differs: the tags do not change
    how the state of the row is pooled; no adversarial training, and no distillation.
    """

    fields: Mapping[str, Field] = {
        "labels.kind": Field("[n]", "int", "0: a span or none here, 1: yes, 2: no, 3: unknown"),
        "labels.rationale": Field(
            "[n, 2]", "int", "first and last token that says why; -1: none in this row"
        ),
    }
    facts = replace(
        Conversational.facts,
        answer="",
        needs=frozenset({"text", "labels.span", "labels.kind", "labels.rationale"}),
        heads=frozenset({"span", "kind"}),
    )
    percent = frozenset(coqa_score.MEASURES)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = ConversationSettings(**settings)
        self.rationale = read_weights(own.weights, ["rationale"], default=0.0)["rationale"]
        more = {"rationale"} if self.rationale else set[str]()
        self.facts = replace(
            self.facts, heads=self.facts.heads | more, terms=frozenset({"span"} | more)
        )
        self.submission = {"dev": "coqa_dev.json"}

    @classmethod
    def list_metrics(cls, settings: Any) -> Sequence[str]:
        return list(coqa_score.MEASURES)

    def find_answer(
        self, passage: Passage, example: Example
    ) -> tuple[str, Span | None, Span | None]:
        """(kind, first and last token of the answer, first and last token of the rationale)."""
        if not isinstance(example.label, tuple):
            return ("" if example.label is None else MISPLACED, None, None)
        kind, span, rationale = example.label
        return (kind, _find(passage, span), _find(passage, rationale))

    def label_window(
        self, answer: Any, example: Example, first: int, length: int, row: Row
    ) -> tuple[int, ...]:
        """(first and last token of the answer, number of its kind, first and last token of the
        rationale).
        """
        kind, span, rationale = answer
        if kind == MISPLACED:
            return (IGNORE,) * 5
        assert row.b_start is not None
        shift = row.b_start - first
        why = _cut(rationale, first, length)
        here = (NOWHERE, NOWHERE) if why is None else (why[0] + shift, why[1] + shift)
        if kind == "span" and span and first <= span[0] and span[1] < first + length:
            return (span[0] + shift, span[1] + shift, 0, *here)
        said = KINDS.index(kind) if kind in ("yes", "no") and why else 0
        return (row.anchor, row.anchor, KINDS.index(kind) if kind == "unknown" else said, *here)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        rows = super().encode(examples, tokenizer)
        found = rows.labels["span"]  # [n, 5]
        labels = {"span": found[:, :2], "kind": found[:, 2], "rationale": found[:, 3:]}
        return encode.add_labels(rows, labels)

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        features = features_of(model, batch)
        found = super().logits(model, batch)
        found["kind"] = widen(model.heads["kind"](take_anchors(features, batch)))  # [B, 3]
        if self.rationale:
            found["rationale"] = widen(model.heads["rationale"](features).squeeze(-1))  # [B, T]
        return found

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: batch.counts[name] for name in sorted(self.facts.terms)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        kind, span = batch.require("labels.kind"), batch.require("labels.span")
        length = logits["start"].shape[1]
        at_kind = (kind > 0)[:, None]
        gold = torch.where(at_kind, length + kind[:, None] - 1, span)  # [B, 2]
        sides = [torch.cat([logits[name], logits["kind"]], -1) for name in ("start", "end")]
        total = sum(
            F.cross_entropy(side, gold[:, place], ignore_index=IGNORE, reduction="sum")
            for place, side in enumerate(sides)
        )
        right = (sides[0].argmax(-1) == gold[:, 0]) & (sides[1].argmax(-1) == gold[:, 1])
        terms = {"span": Term(torch.as_tensor(total) / 2)}
        if self.rationale:
            terms["rationale"] = Term(_tag(logits["rationale"], batch), self.rationale)
        return Output(terms, {"acc/span": (right.sum(), self.counts(batch)["span"])})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        found = self.explain(logits, rows, examples)
        return [{k: v for k, v in own.items() if k != "n_best"} for own in found]

    def explain(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        """The predictions, with the kinds among the n best texts."""
        found = super().predict(logits, rows, examples)
        kinds = np.full((len(examples), len(KINDS) - 1), -np.inf)
        np.maximum.at(kinds, rows.values["example"], 2 * logits["kind"].astype(np.float64))
        return [
            self._choose(prediction, scores, example)
            for prediction, scores, example in zip(found, kinds, examples, strict=True)
        ]

    def _choose(
        self, prediction: dict[str, Any], kinds: np.ndarray, example: Example
    ) -> dict[str, Any]:
        """The prediction with yes, no or unknown where one has a larger score than every span."""
        best = prediction["n_best"]
        span = best[0]["score"] if best else -np.inf
        kind = KINDS[1 + int(kinds.argmax())] if kinds.max() > span else "span"
        said = [{"text": k, "score": s} for k, s in zip(KINDS[1:], kinds.tolist(), strict=True)]
        spans = [each for each in best if each["text"] not in KINDS[1:]]
        return {
            **prediction,
            "n_best": sorted([*spans, *said], key=lambda each: -each["score"]),
            "guess": prediction["guess"] if kind == "span" else kind,
            "kind": kind,
            **{name: example.fields.get(name) for name in ("dialogue", "turn")},
            **name_sets(example),
        }

    def settle(self, joined: dict[str, Any], rows: Predictions) -> dict[str, Any]:
        return {**joined, "kind": joined["guess"] if joined["guess"] in KINDS[1:] else "span"}

    def describe_metric(self, name: str) -> str:
        return f"{super().describe_metric(name)}, each answer of people left out in turn"

    def score(self, predictions: Predictions) -> dict[str, float]:
        scores = coqa_score.score(predictions)
        domains = coqa_score.score_domains(predictions, self.metrics[0])
        return {name: scores[name] for name in self.metrics} | domains

    def submit(self, predictions: Predictions) -> str:
        rows = [
            {"id": p["dialogue"], "turn_id": p["turn"], "answer": p["guess"]} for p in predictions
        ]
        return json.dumps(rows, ensure_ascii=False)


def _find(passage: Passage, span: Span | None) -> Span | None:
    found = places.find_tokens(passage.offsets, [span]) if span else []
    return found[0] if found else None


def _cut(span: Span | None, first: int, length: int) -> Span | None:
    """The part of a span of tokens that is inside a window; None: nothing is."""
    if span is None or span[1] < first or span[0] >= first + length:
        return None
    return max(span[0], first), min(span[1], first + length - 1)


def _tag(logits: Tensor, batch: Batch) -> Tensor:
    """The summed loss of rows whose tags are known: the mean over the tokens of their passage."""
    gold = batch.require("labels.rationale")  # [B, 2]
    place = torch.arange(logits.shape[1], device=logits.device)
    wanted = ((place >= gold[:, :1]) & (place <= gold[:, 1:])).to(logits)  # [B, T]
    counted = (batch.text.tracks["segment"] == 1) & (gold[:, :1] != IGNORE)
    loss = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return ((loss * counted).sum(1) / counted.sum(1).clamp(min=1)).sum()
