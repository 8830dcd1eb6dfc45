"""Extractive question answering: SQuAD 1.1 and 2.0, in overlapping windows over the passage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from plmctl.core.batch import IGNORE, Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.core.values import Whole
from plmctl.heads.features import read as features_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.layouts.encode import Row
from plmctl.tasks.layouts.places import SPAN
from plmctl.tasks.layouts.turns import TYPED, encode_turns, parse_turns
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import squad as squad_score
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.task import Task, TaskSettings


@dataclass(frozen=True)
class Passage:
    """The tokens of a context and the characters that each of them covers."""

    ids: list[int]
    offsets: list[tuple[int, int]]  # characters of each token


@dataclass(frozen=True)
class Candidate:
    """A possible answer: the characters [start, end) of the passage, and the sum of its two
    logits and what is added to it.
    """

    score: float
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class SquadSettings(TaskSettings):
    """Settings of extractive question answering.

    Args:
        stride: tokens from one window to the next.
        max_query: tokens of a question at most.
        n_best: starts and ends that are combined.
        max_answer: tokens of an answer at most.
        version: 1, or 2, in which a question may have no answer.
        null_threshold: The threshold of version 2: an answer is empty where its score is lower than
            that of none by more than this.
        overlap: The unit of the common part that F1 counts.
        submission: {split: the file name that a leader board asks for}; its content is one JSON
            object {id: answer}.
    """

    stride: int
    max_query: int
    n_best: int
    max_answer: int
    version: int
    null_threshold: float = 0.0
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none
    overlap: squad_score.Overlap = "bag"
    submission: Mapping[str, str] | None = None


@part_of("task")
class Squad(Task):
    """Predicts the first and last token of the answer (Devlin et al., 2019, sec. 4.2 and 4.3; its
    run_squad settings).

    `loss = (CE(start) + CE(end)) / 2` over the real tokens of a row; a window without the whole
    answer, and a question without one, points at the row's anchor ([CLS]; the last token under a
    causal pattern). The question, and what is before it, is global if the pattern has global tokens
    (Beltagy et al., 2020, arXiv:2004.05150, sec. 6.1). Null score: start + end logit of the anchor,
    the smallest over windows; the answer is empty where null - best > `null_threshold` (2.0 only).
    Differs: run_squad re-aligns detokenized pieces by stripping white space; here every token knows
    its characters, so the answer is the passage between them; padding takes no part in the softmax.
    """

    fields: Mapping[str, Field] = {
        "labels.span": SPAN,
        "spans.window": Field(
            "[n, 4]",
            "int",
            "row, position of the first passage token, passage tokens, their first in the whole"
            " passage",
        ),
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.span"}),
        head="span",
        answer="span",
        pipeline="question-answering",
        outputs=2,
        typed="questions that you type, one a line, each with a tab and its passage",
        own_logits=("start", "end"),
        keyed=True,
    )

    percent = squad_score.PERCENT
    Settings: ClassVar[type[SquadSettings]] = SquadSettings
    windows: int | None = None  # windows of a passage that are read, the first ones; None: all

    def __init__(self, **settings: Any) -> None:
        own: SquadSettings = self.Settings(**settings)
        metrics = check_metrics(own.metrics, self.list_metrics(own))
        super().__init__(own, metrics=metrics, submission=own.submission)
        self.stride, self.max_query = own.stride, own.max_query
        self.n_best, self.max_answer, self.overlap = own.n_best, own.max_answer, own.overlap
        self.version, self.null_threshold = own.version, own.null_threshold
        # the contexts encoded so far: five questions share one
        self._passages: dict[str, Passage] = {}
        self._answers = Counter[bool]()  # whether the examples encoded so far are Chinese

    @classmethod
    def list_metrics(cls, settings: Any) -> Sequence[str]:
        """The names of the scores with these settings."""
        one = settings.version == 1
        return [*(squad_score.score_v1([]) if one else squad_score.score_v2([]))]

    def parse(self, line: str, number: int) -> Example:
        cells = line.split("\t")
        if len(cells) != 2:
            raise ValueError(
                f"question <tab> passage is needed, found {counted(len(cells), 'column')};"
                ' or a record: {"question": "...", "context": "..."}'
            )
        return Example(
            str(number - 1),
            {"question": cells[0], "context": cells[1], "answers": []},
            place=f"line {number}",
        )

    @property
    def remarks(self) -> list[str]:
        misplaced: Mapping[str, list[str]] = getattr(self.splits.reader, "misplaced", {})
        return [
            f"{file}: of {len(ids)} questions the answer does not stand where the file says (the"
            f" first is {ids[0]}); they are scored all the same, and no loss counts them"
            for file, ids in misplaced.items()
            if ids
        ] + self._name_script()

    def _name_script(self) -> list[str]:
        if self.overlap != "bag" or self._answers[True] <= self._answers[False]:
            return []
        return [
            "most answers are Chinese, and F1 compares what stands between spaces; characters are"
            " compared by task.overlap=characters, and as in CMRC 2018 by task.overlap=run"
        ]

    def unit(self, example: Example) -> str:
        """The questions of a context."""
        return str(example.fields["context"])

    def describe_scoring(self, examples: Examples) -> str:
        empty = sum(not any(example.fields.get("answers", ())) for example in examples)
        if self.version != 1 or empty in (0, len(examples)):
            return ""
        return (
            f"{empty:,} of {counted(len(examples), 'question')} have no answer, for which version 1"
            f" always counts 0 ({', '.join(self.metrics)}); task=squad_v2 learns and scores them"
        )

    def fit_labels(self, examples: Iterable[Example]) -> None:
        if not any(any(example.fields.get("answers", ())) for example in examples):
            raise DataError(self._why_unanswered(), file=next(iter(examples)).place)

    def _why_unanswered(self) -> str:
        misplaced = sum(getattr(self.splits.reader, "skipped", {}).values())
        if not misplaced:
            return "no question has an answer to learn from"
        return (
            f"{counted(misplaced, 'question')}: the answer does not stand at its answer_start,"
            " and no other question has one"
        )

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        laid_out: list[encode.Row] = []
        example_of: list[int] = []
        spans: list[Any] = []
        # row, position of the window's first passage token, tokens, its number
        runs: list[tuple[int, int, int, int]] = []
        questions: list[int] = []  # where those of the rows end
        extra = encode.specials(tokenizer.vocab, pair=True)
        for number, example in enumerate(examples):
            self._answers.update(map(squad_score.is_chinese, example.fields.get("answers", ())))
            question, question_cut = self.ask(example, tokenizer)
            passage = self._passage(example.fields["context"], tokenizer)
            room = self.max_length - extra - len(question)
            if room < 1:
                allowed = f"more than max_query={self.max_query} plus {extra} specials"
                raise ConfigError("task.max_length", self.max_length, allowed)
            answer = self.find_answer(passage, example)
            windows = doc_windows(len(passage.ids), room, self.stride)[: self.windows]
            unread = len(passage.ids) - sum(windows[-1])
            for first, length in windows:
                part = passage.ids[first : first + length]
                row = encode.lay_out(
                    question,
                    part,
                    tokenizer.vocab,
                    max_length=self.max_length,
                    pooling=self.pooling,
                )
                if self.pooling == "last":  # its own token, never one of the passage
                    row = replace(row, anchor=len(row.ids) - 1)
                row = replace(
                    row,
                    cut=row.cut + unread * ((first, length) == windows[-1]),
                    question_cut=question_cut * (not first),
                )
                assert row.b_start is not None
                runs.append((len(laid_out), row.b_start, length, first))
                spans.append(self.label_window(answer, example, first, length, row))
                questions.append(row.a_start + len(question))
                laid_out.append(row)
                example_of.append(number)
        rows = encode.pad(laid_out, tokenizer.vocab, example=example_of)
        rows = replace(rows, spans={"window": np.array(runs, dtype=np.int64)})
        positions = np.arange(rows.seqs["text"].ids.shape[1])
        rows = encode.mark_global(rows, positions < np.array(questions)[:, None])
        return encode.add_labels(rows, {"span": np.array(spans, dtype=np.int64)})

    def ask(self, example: Example, tokenizer: Any) -> tuple[list[int], int]:
        """The tokens before the passage, and how many of the question are left out."""
        question = list(tokenizer.encode(example.fields["question"]))
        return question[: self.max_query], max(0, len(question) - self.max_query)

    def find_answer(self, passage: Passage, example: Example) -> Any:
        """Where the answer stands among the tokens of its passage, for `label_window`."""
        return _token_span(passage, example.label)

    def label_window(self, answer: Any, example: Example, first: int, length: int, row: Row) -> Any:
        """The label of a window, the tokens `first`, ... of the passage as they stand in `row`."""
        return _in_window(answer, example, first, length, row)

    def _passage(self, context: str, tokenizer: Any) -> Passage:
        if context not in self._passages:
            ids, offsets = tokenizer.encode_offsets(context)
            self._passages[context] = Passage(
                list(ids), [(int(start), int(end)) for start, end in offsets]
            )
        return self._passages[context]

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        scores = model.heads["span"](features_of(model, batch)).float()  # [B, T, 2]
        scores = scores.masked_fill(~batch.text.real[:, :, None], torch.finfo(scores.dtype).min)
        return {"start": scores[..., 0], "end": scores[..., 1]}  # [B, T]

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        gold = batch.require("labels.span")  # [B, 2]
        start = F.cross_entropy(logits["start"], gold[:, 0], ignore_index=IGNORE, reduction="sum")
        end = F.cross_entropy(logits["end"], gold[:, 1], ignore_index=IGNORE, reduction="sum")
        both = (logits["start"].argmax(-1) == gold[:, 0]) & (logits["end"].argmax(-1) == gold[:, 1])
        return Output(
            {"span": Term((start + end) / 2)},
            {"acc/span": (both.sum(), self.counts(batch)["span"])},
        )

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        of_example: list[list[int]] = [[] for _ in examples]
        for row, example in enumerate(rows.values["example"].tolist()):
            of_example[example].append(row)
        return [
            self._answer(logits, rows, example, own)
            for example, own in zip(examples, of_example, strict=True)
        ]

    def _answer(
        self, logits: Arrays, rows: Rows, example: Example, own: list[int]
    ) -> dict[str, Any]:
        assert rows.anchors is not None
        offsets = self._passages[example.fields["context"]].offsets
        runs = [(int(first), int(length)) for _, _, length, first in rows.spans["window"][own]]
        candidates: list[Candidate] = []
        null = float("inf")
        for window, row in enumerate(own):
            length = int(rows.seqs["text"].length[row])
            start, end = (
                logits[side][row, :length].astype(np.float64) for side in ("start", "end")
            )
            anchor = int(rows.anchors[row, 1])
            null = min(null, float(start[anchor] + end[anchor]))
            # position in the row -> number of the passage token
            shift = runs[window][0] - int(rows.spans["window"][row, 1])
            for first, last in self._pairs(start, end):
                a, b = first + shift, last + shift
                if runs[window][0] <= a <= b < sum(runs[window]) and best_window(runs, a) == window:
                    score = float(start[first] + end[last]) + self.prior(example, offsets[a][0])
                    candidates.append(Candidate(score, offsets[a][0], offsets[b][1]))
        best = _distinct(candidates, example.fields["context"], self.n_best)
        top = best[0]["score"] if best else 0.0
        return {
            "id": example.id,
            "golds": list(example.fields.get("answers", ())),
            "guess": best[0]["text"] if best else "",
            "null_odds": null - top,
            "n_best": best,
        }

    def prior(self, example: Example, first: int) -> float:
        """The addition to the score of an answer that begins at character `first`."""
        return 0.0

    def _pairs(self, start: np.ndarray, end: np.ndarray) -> list[tuple[int, int]]:
        """(first, last) from the `n_best` best starts and ends, in order and at most
        `max_answer` tokens long.
        """
        starts, ends = (
            np.argsort(-side, kind="stable")[: self.n_best].tolist() for side in (start, end)
        )
        return [(s, e) for s in starts for e in ends if s <= e < s + self.max_answer]

    def describe_metric(self, name: str) -> str:
        return squad_score.describe_answers(name, self.overlap)

    def score(self, predictions: Predictions) -> dict[str, float]:
        if self.version == 1:
            return squad_score.score_v1(predictions, overlap=self.overlap)
        return squad_score.score_v2(
            predictions, threshold=self.null_threshold, overlap=self.overlap
        )


@dataclass(frozen=True, kw_only=True)
class ConversationSettings(SquadSettings):
    """Settings of conversational questions.

    Args:
        history: turns before a question that are read, the last ones.
        max_history: tokens of these at most, the last ones.
        weights: The weights of the losses.
    """

    history: Whole
    max_history: Whole
    weights: Mapping[str, float]


class Conversational(Squad):
    """`Squad` that also reads the turns before a question (layouts/turns.py)."""

    facts = replace(Squad.facts, typed=TYPED)
    Settings = ConversationSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        own = ConversationSettings(**settings)
        self.history, self.max_history = own.history, own.max_history

    def parse(self, line: str, number: int) -> Example:
        return parse_turns(line, number)

    def ask(self, example: Example, tokenizer: Any) -> tuple[list[int], int]:
        turns, most = self.history, self.max_history
        before = encode_turns(example, tokenizer, turns=turns, most=most)
        question, cut = super().ask(example, tokenizer)
        return before + question, cut


def doc_windows(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(first token, tokens) of windows of at most `room` tokens, each beginning `stride` after
    the one before; one at least.
    """
    windows = [(0, min(length, room))]
    while sum(windows[-1]) < length:
        first = windows[-1][0] + min(windows[-1][1], stride)
        windows.append((first, min(length - first, room)))
    return windows


def best_window(runs: Sequence[tuple[int, int]], token: int) -> int:
    """The window in which `token` has most context: largest min(left, right) + 0.01 * length,
    the first on ties (run_squad).
    """
    scores = [
        (
            min(token - first, first + length - 1 - token) + 0.01 * length
            if first <= token < first + length
            else -1.0
        )
        for first, length in runs
    ]
    return scores.index(max(scores))


def _token_span(passage: Passage, label: Any) -> tuple[int, int] | None:
    """First and last token that share a character with the answer."""
    if not isinstance(label, tuple):
        return None
    inside = [
        t
        for t, (start, end) in enumerate(passage.offsets)
        if start < label[1] and end > label[0] and end > start
    ]
    return (inside[0], inside[-1]) if inside else None


def _in_window(
    answer: tuple[int, int] | None, example: Example, first: int, length: int, row: encode.Row
) -> tuple[int, int]:
    if answer is None and example.label is not None:
        return (IGNORE, IGNORE)  # there is an answer, but not where the file says
    if answer is None or answer[0] < first or answer[1] >= first + length:
        return (row.anchor, row.anchor)
    assert row.b_start is not None
    return (answer[0] - first + row.b_start, answer[1] - first + row.b_start)


def _distinct(candidates: list[Candidate], context: str, n_best: int) -> list[dict[str, Any]]:
    """The `n_best` best candidates with different, non-empty texts."""
    best: dict[str, float] = {}
    for candidate in sorted(candidates, key=lambda c: -c.score):
        text = context[candidate.start : candidate.end].strip()
        if text and text not in best:
            best[text] = candidate.score
        if len(best) == n_best:
            break
    return [{"text": text, "score": score} for text, score in best.items()]
