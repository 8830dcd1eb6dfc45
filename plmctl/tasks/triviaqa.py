"""Extractive question answering where any of several spans of a long document is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.objectives.base import Output, Term
from plmctl.tasks import encode, matching
from plmctl.tasks.base import Example
from plmctl.tasks.squad import Passage, Squad, SquadSettings


@dataclass(frozen=True, kw_only=True)
class TriviaQASettings(SquadSettings):
    """Settings of questions about long documents.

    Args:
        windows: of a document that are read, the first ones; None: all.
        most_spans: places of the answer in one window that count, the first ones.
    """

    windows: Count | None = None
    most_spans: Count = 64


@part_of("task")
class TriviaQA(Squad):
    """Predicts the first and last token of an answer that stands in several places, and one does
    not know which of them says why (Joshi et al., 2017, arXiv:1705.03551).

    `loss = -(log sum_{s in S} p_start(s) + log sum_{e in E} p_end(e)) / 2`, S and E the first and
    the last tokens of all places where an answer stands (Clark and Gardner, 2018, arXiv:1710.10723,
    sec. 2.2; Beltagy et al., 2020, arXiv:2004.05150, app. D). With one place it is the loss of
    `Squad`. A window without a place counts nothing (allenai/longformer, scripts/triviaqa.py).
    Documents, windows, global tokens and decoding are those of `Squad`. Differs: a token that
    begins two places counts once (released code: twice); a question has one prediction for all its
    documents.
    """

    Settings: ClassVar[type[SquadSettings]] = TriviaQASettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = TriviaQASettings(**settings)
        for name, allowed in (("version", 1), ("overlap", "bag"), ("null_threshold", 0.0)):
            if getattr(own, name) != allowed:
                why = f"{allowed}: every question has an answer, compared as TriviaQA does"
                raise ConfigError(name, getattr(own, name), why, fix=f"task.{name}={allowed}")
        self.windows, self.most_spans = own.windows, own.most_spans

    def find_answer(self, passage: Passage, example: Example) -> list[tuple[int, int]]:
        """First and last token of each place where an answer stands, in order."""
        begins, ends = np.array(passage.offsets, dtype=np.int64).reshape(-1, 2).T
        found = set()
        for begin, end in example.label or ():
            first = int(np.searchsorted(ends, begin, side="right"))
            last = int(np.searchsorted(begins, end, side="left")) - 1
            found |= {(first, last)} if first <= last else set()
        return sorted(found)

    def label_window(
        self, answer: Any, example: Example, first: int, length: int, row: encode.Row
    ) -> np.ndarray:
        """[M, 2] the places inside the window, spare ones IGNORE."""
        assert row.b_start is not None
        inside = [span for span in answer if span[0] >= first and span[1] < first + length]
        label = np.full((self.most_spans, 2), IGNORE, dtype=np.int64)
        for number, span in enumerate(inside[: self.most_spans]):
            label[number] = np.array(span) - first + row.b_start
        return label

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        gold = batch.require("labels.span")  # [B, M, 2]
        total, right = [], []
        for side, name in enumerate(("start", "end")):
            marked = _mark(gold[..., side], logits[name].shape[1])
            total.append(_any_of(logits[name], marked))
            best = logits[name].argmax(-1, keepdim=True)
            right.append(marked.gather(1, best)[:, 0])
        return Output(
            {"span": Term((total[0] + total[1]) / 2)},
            {"acc/span": ((right[0] & right[1]).sum(), self.counts(batch)["span"])},
        )

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """F1 and exact match with the best of the answer's names, in percent."""
        known = [p for p in predictions if p["golds"]]
        return {
            name: 100
            * sum(max(metric(g, p["guess"]) for g in p["golds"]) for p in known)
            / max(1, len(known))
            for name, metric in (("f1", matching.f1), ("exact", matching.exact))
        }


def _mark(gold: Tensor, length: int) -> Tensor:
    """[B, M] positions, spare ones IGNORE -> [B, T] bool, True at each of them."""
    marked = torch.zeros(len(gold), length + 1, dtype=torch.bool, device=gold.device)
    return marked.scatter(1, torch.where(gold == IGNORE, length, gold), True)[:, :length]


def _any_of(scores: Tensor, marked: Tensor) -> Tensor:
    """`-log sum_{t marked} softmax(scores)_t`, summed over the rows that have a marked token."""
    low = torch.finfo(scores.dtype).min
    loss = scores.logsumexp(-1) - scores.masked_fill(~marked, low).logsumexp(-1)
    return torch.where(marked.any(1), loss, 0).sum()
