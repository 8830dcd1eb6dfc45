"""Questions that need two of ten paragraphs, answered with the sentences that support the answer
(HotpotQA).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Number
from plmctl.heads.base import cross_entropy
from plmctl.heads.features import read as features_of
from plmctl.heads.rows import take_anchors
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.answers.evidence import choose_evidence
from plmctl.tasks.answers.term_weights import read_weights
from plmctl.tasks.facts import ModelNeeds, TaskFacts
from plmctl.tasks.layouts import encode, places
from plmctl.tasks.layouts.hotpot import (
    NEW_TOKENS,
    TITLE,
    PlacedText,
    QuestionRow,
    columns,
    lay_out,
    string_of,
)
from plmctl.tasks.layouts.places import SPAN
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import hotpot as hotpot_score
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.scores.squad import describe_answers, normalise_english
from plmctl.tasks.scores.trivia import find_all
from plmctl.tasks.task import Task, TaskSettings
from plmctl.text import sentences

TYPES = ("yes", "no", "span")  # types of questions, by the number of their logit
TERMS = ("span", "question_type", "sentence", "paragraph")


@dataclass(frozen=True, kw_only=True)
class HotpotSettings(TaskSettings):
    """Settings of questions with evidence.

    Args:
        max_query: tokens of a question at most.
        max_answer: tokens of an answer at most.
        most_spans: The positions of the answer that count, at most.
        weights: The weights of the losses of span, question_type, sentence and paragraph.
        submission: {split: the file name that a leader board asks for}.
    """

    max_query: Count
    max_answer: Count
    most_spans: Count
    weights: Mapping[str, Number]
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none
    submission: Mapping[str, str] | None = None


@part_of("task")
class Hotpot(Task):
    """Predicts answer, type of question, supporting sentences and relevant paragraphs with one
    model (Beltagy et al., 2020, arXiv:2004.05150, sec. 6.1 and app. D; Yang et al., 2018,
    arXiv:1809.09600).

    `loss = w_1 span + w_2 CE(type) + w_3 BCE(sentences) + w_4 BCE(paragraphs)`, each averaged over
    questions. Types are yes, no and span, read at the row's anchor; each BCE is the mean over the
    tokens of a row that stand for sentences or paragraphs. The span has the loss of `TriviaQA` over
    the positions of the answer in supporting sentences, else in their paragraphs, else anywhere.
    Questions of yes and no have none.

    Global, if the pattern has global tokens: the question with all before it, and the tokens that
    stand for sentences and paragraphs. Decoded: the best span inside one title or sentence, and the
    most probable sentences of two paragraphs (`choose_evidence`).

    Differs: the positions of an answer that count, the weights of the losses and the units of the
    averages are not published. The paper does not state that a span must be inside one sentence.
    """

    fields: Mapping[str, Field] = {
        "labels.span": SPAN,
        "labels.question_type": Field("[n]", "int", "0: the answer is yes, 1: no, 2: a span"),
        "labels.sentence": Field(
            "[n, S]", "int", "1 for a supporting sentence, 0 for another, IGNORE behind the last"
        ),
        "labels.paragraph": Field(
            "[n, S]", "int", "1 for a paragraph with such a sentence, else 0, IGNORE behind them"
        ),
        "values.sentences": Field(
            "[n, S]", "int", "positions that stand for sentences; -1 behind the last one"
        ),
        "values.paragraphs": Field(
            "[n, S]", "int", "positions that stand for paragraphs; -1 behind the last one"
        ),
        "spans.text": Field(
            "[m, 5]",
            "int",
            "every title and sentence: row, position, tokens, number of the paragraph, number of"
            " the sentence (-1: the title)",
        ),
    }
    facts = TaskFacts(
        needs=frozenset(
            {"text", "values.sentences", "values.paragraphs", *(f"labels.{name}" for name in TERMS)}
        ),
        heads=frozenset(TERMS),
        head="span",
        outputs=2,
        typed="questions that you type, one a line, a tab before each title and before its"
        " paragraph",
        own_logits=("start", "end"),
    )

    requires = ModelNeeds(new_tokens=NEW_TOKENS, reads_ids=True)

    percent = frozenset(hotpot_score.NAMES)
    Settings = HotpotSettings

    def __init__(self, **settings: Any) -> None:
        own = HotpotSettings(**settings)
        metrics = check_metrics(own.metrics, hotpot_score.NAMES)
        super().__init__(own, metrics=metrics, submission=own.submission)
        self.max_query, self.max_answer = own.max_query, own.max_answer
        self.most_spans = own.most_spans
        self.weights = read_weights(own.weights, TERMS)
        encode.refuse_causal(self.settings.sees_later, "titles stand before their paragraphs")
        self._tokenizer: Any = None  # the tokenizer of the rows encoded last

    @property
    def remarks(self) -> list[str]:
        lost: Mapping[str, int] = getattr(self.splits.reader, "lost", {})
        bereft: Mapping[str, int] = getattr(self.splits.reader, "bereft", {})
        return [
            f"{file}: {count} supporting facts name a sentence that is not in the context; they"
            " are scored all the same"
            for file, count in lost.items()
            if count
        ] + [
            f"{file}: the first stage left out a supporting paragraph of {count} questions; they"
            " cannot be answered whole"
            for file, count in bereft.items()
            if count
        ]

    def parse(self, line: str, number: int) -> Example:
        question, *cells = line.split("\t")
        if not cells or len(cells) % 2:
            raise ValueError(
                "question <tab> title <tab> paragraph ... is needed, found"
                f" {len(cells) + 1} columns"
            )
        context = [
            (title, sentences.pieces(text))
            for title, text in zip(cells[::2], cells[1::2], strict=True)
        ]
        fields = {"question": question, "context": context, "answers": []}
        return Example(str(number - 1), fields, place=f"line {number}")

    def texts(self, example: Example) -> list[str]:
        context = example.fields["context"]
        return [
            example.fields["question"],
            *(text for title, of_title in context for text in (title, *of_title)),
        ]

    def fit_labels(self, examples: Iterable[Example]) -> None:
        for example in examples:
            if example.label is None:
                raise DataError("no answer", file=example.place, fix="leave this question out")

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        self._tokenizer = tokenizer
        laid_out = [
            lay_out(
                example,
                tokenizer,
                max_length=self.max_length,
                max_query=self.max_query,
                pooling=self.pooling,
            )
            for example in examples
        ]
        rows = encode.pad(
            [each.row for each in laid_out], tokenizer.vocab, example=range(len(examples))
        )
        spans = {"text": np.array(columns(laid_out), dtype=np.int64).reshape(-1, 5)}
        rows = encode.add_values(
            replace(rows, spans=spans),
            sentences=encode.fill([each.marks(titles=False) for each in laid_out], spare=-1),
            paragraphs=encode.fill([each.marks(titles=True) for each in laid_out], spare=-1),
        )
        rows = encode.mark_global(rows, _find_global(rows, laid_out))
        if any(example.label is None for example in examples):
            return rows
        return encode.add_labels(rows, self._label(examples, laid_out))

    def _label(self, examples: Examples, laid_out: Sequence[QuestionRow]) -> dict[str, np.ndarray]:
        types, spans, of_sentences, of_paragraphs = [], [], [], []
        for example, row in zip(examples, laid_out, strict=True):
            titles, supporting = {title for title, _ in example.label}, set(example.label)
            sources = [(text, example.fields["context"][text.paragraph][0]) for text in row.texts]
            of_paragraphs.append(
                [int(title in titles) for text, title in sources if text.sentence == TITLE]
            )
            of_sentences.append(
                [
                    int((title, text.sentence) in supporting)
                    for text, title in sources
                    if text.sentence != TITLE
                ]
            )
            answer = normalise_english(example.fields["answers"][0])
            types.append(answer if answer in TYPES[:2] else "span")
            found = self._find(example, row) if types[-1] == "span" else []
            spans.append(places.lay_out(found, self.most_spans))
        return {
            "span": np.stack(spans),
            "question_type": np.array([TYPES.index(kind) for kind in types], dtype=np.int64),
            "sentence": encode.fill(of_sentences, spare=IGNORE),
            "paragraph": encode.fill(of_paragraphs, spare=IGNORE),
        }

    def _find(self, example: Example, row: QuestionRow) -> list[tuple[int, int]]:
        """First and last position of each occurrence of the answer, in the best texts that
        have it.
        """
        found: list[tuple[int, int]] = []
        for texts in _by_relevance(example, row.texts):
            for text in texts:
                string = string_of(example, text)
                spans = find_all(example.fields["answers"], string)
                if spans:
                    _, offsets = self._tokenizer.encode_offsets(string)
                    tokens = places.find_tokens(offsets, spans)
                    found += [(text.start + first, text.start + last) for first, last in tokens]
            if found:
                break
        return found

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        features = features_of(model, batch)
        ends = model.heads["span"](features).float()  # [B, T, 2]
        ends = ends.masked_fill(~batch.text.real[:, :, None], torch.finfo(ends.dtype).min)
        found = {"start": ends[..., 0], "end": ends[..., 1]}  # [B, T]
        found["question_type"] = model.heads["question_type"](take_anchors(features, batch))
        row = torch.arange(len(features), device=features.device)[:, None]
        for name in ("sentence", "paragraph"):
            at = batch.require(f"values.{name}s").clamp(min=0)
            found[name] = model.heads[name](features[row, at]).squeeze(-1).float()  # [B, S]
        return found

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: batch.counts[name] for name in TERMS}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        counts = self.counts(batch)
        span, right = places.score(logits, batch.require("labels.span"))
        kind, right_kind = cross_entropy(
            logits["question_type"], batch.require("labels.question_type")
        )
        totals = {"span": span, "question_type": kind}
        logs = {
            "acc/span": (right, counts["span"]),
            "acc/question_type": (right_kind, counts["question_type"]),
        }
        for name in ("sentence", "paragraph"):
            totals[name] = _binary(logits[name], batch.require(f"labels.{name}"))
        terms = {name: Term(total, self.weights[name]) for name, total in totals.items()}
        return Output(terms, logs)

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        table = rows.spans["text"]
        starts = np.searchsorted(table[:, 0], np.arange(len(examples) + 1))
        return [
            self._answer(
                example,
                [PlacedText(*text) for text in table[starts[n] : starts[n + 1], 1:].tolist()],
                {name: values[n] for name, values in logits.items()},
            )
            for n, example in enumerate(examples)
        ]

    def _answer(
        self, example: Example, texts: Sequence[PlacedText], logits: Arrays
    ) -> dict[str, Any]:
        context = example.fields["context"]
        titles = [text.paragraph for text in texts if text.sentence == TITLE]
        paragraphs = dict(zip(titles, logits["paragraph"].tolist(), strict=False))
        inside: dict[int, dict[int, float]] = {number: {} for number in titles}
        others = [text for text in texts if text.sentence != TITLE]
        for text, value in zip(others, logits["sentence"].tolist(), strict=False):
            inside[text.paragraph][text.sentence] = value
        facts = choose_evidence(paragraphs, inside)
        kind = TYPES[int(logits["question_type"].argmax())]
        return {
            "id": example.id,
            "golds": list(example.fields["answers"]),
            "guess": self._read(example, texts, logits) if kind == "span" else kind,
            "question_type": kind,
            "gold_facts": [list(fact) for fact in example.label or ()],
            "facts": [[context[number][0], sentence] for number, sentence in facts],
            "paragraphs": [paragraphs.get(number) for number in range(len(context))],
        }

    def _read(self, example: Example, texts: Sequence[PlacedText], logits: Arrays) -> str:
        """The span with the largest sum of start and end."""
        start, end = (logits[name].astype(np.float64) for name in ("start", "end"))
        best = find_best(start, end, texts, self.max_answer)
        if best is None:
            return ""
        text, first, last = best
        string = string_of(example, text)
        _, offsets = self._tokenizer.encode_offsets(string)
        return string[offsets[first][0] : offsets[last][1]].strip()

    def describe_metric(self, name: str) -> str:
        part, _, plain = name.rpartition("_")
        told = {"sp": "supporting facts", "joint": "answer and supporting facts together"}
        return told[part] if part else describe_answers(plain)

    def score(self, predictions: Predictions) -> dict[str, float]:
        scores = hotpot_score.score(predictions)
        return {name: scores[name] for name in self.metrics}

    def submit(self, predictions: Predictions) -> str:
        return hotpot_score.write(predictions)


def find_best(
    start: np.ndarray, end: np.ndarray, texts: Sequence[PlacedText], most: int
) -> tuple[PlacedText, int, int] | None:
    """The text, and its first and last token, of the best span of at most `most` tokens inside one
    text. Its sum of start and end [T] is the largest; the first of equal ones counts. None without
    tokens.
    """
    best: tuple[float, PlacedText, int, int] | None = None
    for text in texts:
        if not text.length:
            continue
        own = slice(text.start, text.start + text.length)
        sums = start[own, None] + end[None, own]  # [tokens, tokens]
        allowed = np.triu(np.tril(np.ones_like(sums, dtype=bool), most - 1))
        first, last = divmod(int(np.where(allowed, sums, -np.inf).argmax()), text.length)
        if best is None or sums[first, last] > best[0]:
            best = (float(sums[first, last]), text, first, last)
    return None if best is None else best[1:]


def _by_relevance(example: Example, texts: Sequence[PlacedText]) -> tuple[list[PlacedText], ...]:
    """Supporting sentences, the other texts of their paragraphs, and all other texts."""
    titles, supporting = {title for title, _ in example.label}, set(example.label)
    groups: tuple[list[PlacedText], ...] = ([], [], [])
    for text in texts:
        title = example.fields["context"][text.paragraph][0]
        rank = 0 if (title, text.sentence) in supporting else 1 if title in titles else 2
        groups[rank].append(text)
    return groups


def _find_global(rows: Rows, laid_out: Sequence[QuestionRow]) -> np.ndarray:
    """[n, T] the question with the tokens before it, and the tokens that stand for sentences and
    paragraphs.
    """
    marked = np.zeros(rows.seqs["text"].ids.shape, dtype=bool)
    for number, each in enumerate(laid_out):
        marked[number, : each.row.b_start] = True
        marked[number, [text.mark for text in each.texts]] = True
    return marked


def _binary(logits: Tensor, gold: Tensor) -> Tensor:
    """logits and gold [B, S] -> the mean binary cross-entropy of each row without IGNORE, summed
    over the rows.
    """
    known = gold != IGNORE
    loss = F.binary_cross_entropy_with_logits(
        logits, gold.clamp(min=0).to(logits), reduction="none"
    )
    return ((loss * known).sum(1) / known.sum(1).clamp(min=1)).sum()
