"""Multi-hop questions: which of several candidates answers a question about many documents
(WikiHop).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch, Rows
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.fields import Field
from plmctl.core.parts import part_of
from plmctl.heads.base import cross_entropy
from plmctl.heads.features import read as features_of
from plmctl.models.base import Model
from plmctl.objectives.base import Output, Term
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.metrics import by_name, check_metrics
from plmctl.tasks.task import Task, TaskSettings
from plmctl.text.vocab import Vocab


@dataclass(frozen=True, kw_only=True)
class CandidateSettings(TaskSettings):
    """Settings of questions with candidates.

    Args:
        max_query: tokens of a question.
    """

    max_query: int
    columns: Mapping[str, Any] | None = None  # type: ignore[assignment]  # its files have none


@part_of("task")
class Candidates(Task):
    """A score for each candidate, read next to its name, after the model has seen all documents
    (Beltagy et al., 2020, arXiv:2004.05150, sec. 6.1 and app. D).

        [cls] question [sep] c_1 [sep] c_2 [sep] ... [sep] documents [sep]

    Documents that are longer make several rows, each with the question and all candidates. `z_k` is
    the mean over these rows of `head(h)` at the separator before c_k; `loss = -log
    softmax(z)[right]`, averaged over examples. Question and candidates are global if the pattern
    has global tokens. Differs: separators replace the new tokens `[q]` and `[ent]`.
    """

    fields: Mapping[str, Field] = {
        "values.candidates": Field(
            "[n, K]",
            "int",
            "positions at which the scores of the candidates are read; -1 behind the last one",
        )
    }
    facts = TaskFacts(
        needs=frozenset({"text", "labels.choice", "values.group", "values.candidates"}),
        head="choice",
        outputs=1,
        typed="questions that you type, one a line, a tab before each candidate and the documents",
    )

    Settings = CandidateSettings

    def __init__(self, **settings: Any) -> None:
        own = CandidateSettings(**settings)
        super().__init__(own, metrics=check_metrics(own.metrics, by_name(None)))
        self.max_query = own.max_query
        encode.refuse_causal(self.settings.sees_later, "candidates stand before the documents")

    def parse(self, line: str, number: int) -> Example:
        question, *cells = line.split("\t")
        if len(cells) < 3:
            raise ValueError(
                "question <tab> candidate <tab> candidate ... <tab> documents is needed, found"
                f" {len(cells) + 1} columns"
            )
        fields = {"question": question, "candidates": cells[:-1], "documents": cells[-1:]}
        return Example(str(number - 1), fields, place=f"line {number}")

    def texts(self, example: Example) -> list[str]:
        fields = example.fields
        return [fields["question"], *fields["candidates"], *fields["documents"]]

    def fit_labels(self, examples: Iterable[Example]) -> None:
        for example in examples:
            self._right(example)

    def _right(self, example: Example) -> int:
        """The number of the right candidate."""
        candidates = example.fields["candidates"]
        if example.label not in candidates:
            problem = f"the answer '{example.label}' is none of the candidates"
            raise DataError(problem, file=example.place, fix="leave this question out")
        return candidates.index(example.label)

    def encode(self, examples: Examples, tokenizer: Any) -> Rows:
        vocab = tokenizer.vocab
        before, between = _specials(vocab)
        laid_out: list[encode.Row] = []
        places: list[list[int]] = []
        example_of: list[int] = []
        for number, example in enumerate(examples):
            whole = tokenizer.encode(example.fields["question"])
            question, cut = whole[: self.max_query], max(0, len(whole) - self.max_query)
            begin, own = [*before, *question], []
            for candidate in tokenizer.encode_batch(example.fields["candidates"]):
                own.append(len(begin))  # the position of the separator before it
                begin += [between, *candidate]
            begin.append(between)
            documents = [
                token
                for text in tokenizer.encode_batch(example.fields["documents"])
                for token in [*text, between]
            ]
            room = self.max_length - len(begin) - 1
            if room < 1:
                allowed = f"more than the {len(begin) + 1} tokens of question and candidates"
                where = f"{allowed} of {example.place}"
                fix = f"task.max_length={2 * len(begin)}"
                raise ConfigError("task.max_length", self.max_length, where, fix=fix)
            for start in range(0, max(1, len(documents)), room):
                part = documents[start : start + room]
                ids = [*begin, *part] if part and part[-1] == between else [*begin, *part, between]
                row = encode.Row(ids, len(before), len(begin), 0)
                laid_out.append(replace(row, question_cut=cut * (not start)))
                places.append(own)
                example_of.append(number)
        rows = encode.group_rows(encode.pad(laid_out, vocab, example=example_of))
        ends = np.array([row.b_start for row in laid_out])
        positions = np.arange(rows.seqs["text"].ids.shape[1])
        rows = encode.mark_global(rows, positions < ends[:, None])
        rows = encode.add_values(rows, candidates=encode.fill(places, spare=-1))
        if any(example.label is None for example in examples):
            return rows
        right = np.array([self._right(example) for example in examples], dtype=np.int64)
        return encode.add_labels(rows, {"choice": right})

    def logits(self, model: Model, batch: Batch) -> dict[str, Tensor]:
        """[B, K] the scores of an example's candidates, the same at all of its rows."""
        places, group = batch.require("values.candidates"), batch.require("values.group")
        features = features_of(model, batch)
        row = torch.arange(len(places), device=places.device)[:, None]
        scores = model.heads["choice"](features[row, places.clamp(min=0)]).squeeze(-1)
        total = scores.new_zeros(scores.shape).index_add(0, group, scores)
        count = scores.new_zeros(len(scores)).index_add(0, group, torch.ones_like(scores[:, 0]))
        mean = (total / count.clamp(min=1)[:, None])[group]
        return {"choice": mean.masked_fill(places < 0, torch.finfo(mean.dtype).min)}

    def loss(self, logits: Mapping[str, Tensor], batch: Batch) -> Output:
        total, right = cross_entropy(logits["choice"], batch.require("labels.choice"))
        count = self.counts(batch)["choice"]
        return Output({"choice": Term(total)}, {"acc/choice": (right, count)})

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        predictions = []
        for example, scores in zip(
            examples, encode.take_firsts(rows, logits["choice"]), strict=True
        ):
            names = example.fields["candidates"]
            own = torch.from_numpy(scores[: len(names)].astype(np.float64))
            predictions.append(
                {
                    "id": example.id,
                    "gold": example.label,
                    "guess": names[int(own.argmax())],
                    "probabilities": dict(zip(names, own.softmax(0).tolist(), strict=True)),
                }
            )
        return predictions

    def score(self, predictions: Predictions) -> dict[str, float]:
        gold, guess = [p["gold"] for p in predictions], [p["guess"] for p in predictions]
        known = metrics.by_name(None)
        return {name: known[name](gold, guess) for name in self.metrics}


def _specials(vocab: Vocab) -> tuple[list[int], int]:
    """The tokens before a question, and the one between parts of a row."""
    before = [vocab.id(role) for role in vocab.single[: vocab.single.index("A")]]
    between = vocab.eos if vocab.sep is None else vocab.sep
    if between is None:
        allowed = "one with a token that stands between texts (sep or eos)"
        raise ConfigError("tokenizer", ..., allowed, fix="tokenizer=wordpiece")
    return before, between
