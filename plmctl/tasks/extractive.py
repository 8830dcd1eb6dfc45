"""Summaries of sentences that are taken from the document (BERTSUM)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.features import read as features_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.oracle import choose_sentences, find_oracle
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.readers.documents import DocumentFiles, divide
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import rouge
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.task import Task, TaskSettings
from plmctl.text.vocab import Vocab

BESIDE = ("lead", "oracle")  # further scores, next to the guess's


@dataclass(frozen=True, kw_only=True)
class ExtractiveSettings(TaskSettings):
    """Settings of extractive summaries.

    Args:
        most: sentences of a summary, of the oracle, and of the lead.
    """

    reader: DocumentFiles
    most: Count


@part_of("task")
class Extractive(Task):
    """Chooses the sentences of a document that are its summary (BERTSUM; Liu and Lapata, 2019,
    arXiv:1908.08345, sec. 3.1 and 3.2).

        [cls] sentence [sep] [cls] sentence [sep] ...

    The token `cls` before a sentence stands for it; segments are 0 and 1 by turns. `loss = - sum_i
    y_i log p_i + (1 - y_i) log(1 - p_i)`, y by `find_oracle`, averaged over the sentences of a
    document, then over documents. Text behind `max_length` is not read. The summary is the `most`
    best sentences without repeated trigrams. `lead/rouge1` is ROUGE of the first `most` sentences,
    `oracle/rouge1` of the sentences that the labels choose.

    Differs: the code averages over all sentences of a batch, and leaves out sentences of fewer than
    5 tokens.
    """

    fields: Mapping[str, Field] = {
        "labels.extract": Field(
            "[n, S]",
            "int",
            "1 for a sentence of the oracle summary, else 0, IGNORE behind the last",
        ),
        "values.starts": Field(
            "[n, S]", "int", "positions of the tokens before sentences; -1 behind the last one"
        ),
    }
    # each sentence by itself
    facts = TaskFacts(
        needs=frozenset({"text", "values.starts", "labels.extract"}),
        head="extract",
        chooses=False,
        outputs=1,
        typed="documents that you type, one a line",
    )

    percent = frozenset(rouge.METRICS)
    Settings = ExtractiveSettings

    def __init__(self, **settings: Any) -> None:
        own = ExtractiveSettings(**settings)
        super().__init__(own, metrics=check_metrics(own.metrics, rouge.METRICS))
        self.documents, self.most = own.reader, own.most
        encode.refuse_causal(self.settings.sees_later, "a token before a sentence stands for it")

    def parse(self, line: str, number: int) -> Example:
        return Example(str(number - 1), {"source": divide(line)}, place=f"line {number}")

    def fit_labels(self, examples: Iterable[Example]) -> None:
        for example in examples:
            if not all(text.strip() for text in (example.fields["source"], *example.label)):
                what = "document or summary is empty"
                raise DataError(what, file=example.place, fix="leave this document out")

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        laid_out, starts = [], []
        for example in examples:
            pieces = tokenizer.encode_batch(sentences_of(example))
            row, own = lay_out(pieces, tokenizer.vocab, max_length=self.max_length)
            laid_out.append(row)
            starts.append(own)
        rows = encode.pad(laid_out, tokenizer.vocab, example=range(len(examples)))
        places = encode.fill(starts, spare=-1)
        text = rows.seqs["text"]
        turns = number_sentences(places, text.ids.shape[1]) % 2
        segment = np.where(text.real, turns, 0).astype(np.uint8)
        rows = rows.with_seq("text", text.with_tracks(segment=segment))
        marked = np.zeros(text.ids.shape, dtype=bool)
        for number, own in enumerate(starts):
            marked[number, own] = True
        rows = encode.mark_global(encode.add_values(rows, starts=places), marked)
        if any(example.label is None for example in examples):
            return rows
        labels = [
            self._label(example, len(own)) for example, own in zip(examples, starts, strict=True)
        ]
        return encode.add_labels(rows, {"extract": encode.fill(labels, spare=IGNORE)})

    def _label(self, example: Example, count: int) -> list[int]:
        """Labels 0 or 1 of the first `count` sentences, which are read."""
        oracle = find_oracle(sentences_of(example), example.label, self.most)
        return [int(number in oracle) for number in range(count)]

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """[B, S] the log-odds of the sentences; 0 behind the last one."""
        starts = batch.require("values.starts")
        there = starts >= 0
        row = torch.arange(len(starts), device=starts.device)[:, None]
        vectors = features_of(model, batch)[row, starts.clamp(min=0)]  # [B, S, W]
        return {"extract": model.heads["extract"](vectors, there).float() * there}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        gold = batch.require("labels.extract")
        known = gold != IGNORE
        each = F.binary_cross_entropy_with_logits(
            logits["extract"], gold.clamp(min=0).to(logits["extract"]), reduction="none"
        )
        return Output({"extract": Term(((each * known).sum(1) / known.sum(1).clamp(min=1)).sum())})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        predictions = []
        for example, scores, starts in zip(
            examples, logits["extract"], rows.values["starts"], strict=True
        ):
            texts, read = sentences_of(example), int((starts >= 0).sum())
            odds = scores[:read].astype(np.float64)
            chosen = choose_sentences(texts, odds.tolist(), self.most)
            row: dict[str, Any] = {
                "id": example.id,
                "golds": None if example.label is None else list(example.label),
                "guess": _join(texts, chosen),
                "chosen": chosen,
                "sentence_probabilities": (1 / (1 + np.exp(-odds))).tolist(),
            }
            if example.label is not None:
                best = find_oracle(texts, example.label, self.most)
                row |= {"lead": _join(texts, range(min(self.most, len(texts))))}
                row |= {"oracle": _join(texts, best)}
            predictions.append(row)
        return predictions

    def score(self, predictions: Predictions) -> dict[str, float]:
        golds = [p["golds"] for p in predictions]
        scores = {
            name: rouge.mean(name, golds, [p["guess"] for p in predictions])
            for name in self.metrics
        }
        for kind in BESIDE:
            texts = [p[kind] for p in predictions]
            scores |= {f"{kind}/{name}": rouge.mean(name, golds, texts) for name in self.metrics}
        return scores


def sentences_of(example: Example) -> list[str]:
    """The sentences of a document."""
    return str(example.fields["source"]).split("\n")


def lay_out(
    pieces: Sequence[Sequence[int]], vocab: Vocab, *, max_length: int
) -> tuple[encode.Row, list[int]]:
    """(the row of a document, the position of the token that stands for each sentence in it).

    A sentence of which nothing but its first token would be left is not read; of the last one that
    is read, the end may be cut.
    """
    roles, stands = vocab.single, find_anchor(vocab)
    at = roles.index("A")
    before, after = ([vocab.id(role) for role in part] for part in (roles[:at], roles[at + 1 :]))
    ids: list[int] = []
    starts: list[int] = []
    for piece in pieces:
        room = max_length - len(ids) - len(before) - len(after)
        if room < 1:
            break
        starts.append(len(ids) + stands)
        ids += [*before, *piece[:room], *after]
    if not starts:
        short = f"too short for {len(before) + len(after)} special tokens and any text"
        raise ConfigError("task.max_length", max_length, short)
    cut = sum(map(len, pieces)) + len(starts) * (len(before) + len(after)) - len(ids)
    return encode.Row(ids, 0, None, starts[0], cut), starts


def find_anchor(vocab: Vocab) -> int:
    """The position of the token that stands for a text in the template of one text; ConfigError
    without a token before it.
    """
    roles = vocab.single
    place = roles.index("cls") if "cls" in roles else 0
    if place >= roles.index("A"):
        allowed = "one that puts a token before a text (cls or bos), to stand for a sentence"
        raise ConfigError("tokenizer", ..., allowed, fix="a checkpoint such as BERT or RoBERTa")
    return place


def number_sentences(starts: np.ndarray, length: int) -> np.ndarray:
    """[n, T] the number of the sentence of each token, from its `starts [n, S]`."""
    begins = np.zeros((len(starts), length), dtype=np.int64)
    row, column = np.nonzero(starts >= 0)
    begins[row, starts[row, column]] = 1
    return np.maximum(begins.cumsum(1) - 1, 0)


def _join(texts: Sequence[str], chosen: Iterable[int]) -> str:
    """A line each, as ROUGE-Lsum reads them."""
    return "\n".join(texts[number] for number in chosen)
