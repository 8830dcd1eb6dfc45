"""Semantic roles: the arguments of one predicate of a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.parts import part_of
from plmctl.tasks.answers.tags import TagAnswer
from plmctl.tasks.layouts.base import RowSettings
from plmctl.tasks.layouts.sentence_rows import SentenceRows
from plmctl.tasks.layouts.words import Pieces
from plmctl.tasks.readers.srl import VERB
from plmctl.tasks.record import Example, Examples, Predictions
from plmctl.tasks.scores.metrics import divide_counts, entities
from plmctl.tasks.scores.tags import TagScores
from plmctl.tasks.tagging import Tagging, choose

CONTINUED = "C-"  # before the label of a further part of an argument
Argument = tuple[str, tuple[tuple[int, int], ...]]  # label, first and last word of its parts


class PredicateRows(SentenceRows):
    """Rows of words, with the predicate as the second segment, and its words of that segment."""

    typed = ""

    def parse(self, line: str, number: int, columns: Mapping[str, Any]) -> Example:
        raise ValueError("which word is the predicate? Give a file with a column of predicates")

    def find_second(self, example: Example, pieces: Pieces, rows: RowSettings) -> list[int]:
        return pieces[example.fields["predicate"]][: rows.max_length // 4]

    def encode(self, examples: Examples, tokenizer: Any, rows: RowSettings) -> Rows:
        made = super().encode(examples, tokenizer, rows)
        text = made.seqs["text"]
        segment = text.tracks["segment"].copy()
        of_row = made.values["example"]
        for row, start, size, word in made.spans["word"].tolist():
            if examples[of_row[row]].fields["predicate"] == word:
                segment[row, start : start + size] = 1
        return made.with_seq("text", replace(text, tracks={**text.tracks, "segment": segment}))


@part_of("task")
class SemanticRoles(Tagging):
    """Predicts the arguments of a predicate as tags of words (Shi and Lin, 2019, arXiv:1904.05255,
    sec. 2.2).

    The predicate is the second segment of the row, and its tokens in the sentence are of that
    segment, too. An argument is right if its label and all of its parts are; the predicate itself,
    V, is not scored (Carreras and Marquez, 2005, sec. 2.3). Differs: the paper has embeddings of
    the predicate before an LSTM. Here the segments of the encoder mark it; models without segments
    see it by the second segment alone.
    """

    # the baseline of a tag is that of its word, which knows no predicate
    facts = replace(Tagging.facts, answer="", typed="")

    rows_by = PredicateRows
    alone = True

    def answer_by(self, own: Any) -> RoleAnswer:
        return RoleAnswer(**choose(own))

    def judge(self, own: Any) -> RoleScores:
        return RoleScores()


class RoleAnswer(TagAnswer):
    """Tags of words, with the predicate in predictions."""

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        predictions = super().predict(logits, rows, examples, names)
        for prediction, example in zip(predictions, examples, strict=True):
            prediction["predicate"] = example.fields["predicate"]
        return predictions


class RoleScores(TagScores):
    """The scores of tags, with those of arguments instead of entities."""

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        found = score_arguments([(p["gold"], p["guess"]) for p in predictions])
        also = super().__call__(predictions, names)  # metrics of words
        return {name: found.get(name, also[name]) for name in names}


def join_parts(tags: Sequence[str]) -> set[Argument]:
    """The arguments of a predicate; C-A1 is a further part of the A1 before it, or an argument of
    its own without one.
    """
    joined: list[tuple[str, list[tuple[int, int]]]] = []
    for label, first, last in sorted(entities(tags), key=lambda entity: entity[1]):
        whole = label.removeprefix(CONTINUED)
        before = [own for own in joined if own[0] == whole] if whole != label else []
        if before:
            before[-1][1].append((first, last))
        else:
            joined.append((label, [(first, last)]))
    return {(label, tuple(parts)) for label, parts in joined if label != VERB}


def score_arguments(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, float]:
    """Micro precision, recall and F1 of arguments over (gold, guessed) tags of all predicates."""
    right = present = guessed = 0
    for gold, guess in pairs:
        own, found = join_parts(gold), join_parts(guess)
        right, present, guessed = right + len(own & found), present + len(own), guessed + len(found)
    precision, recall, f1 = divide_counts(right, guessed, present)
    return {"f1": f1, "precision": precision, "recall": recall}
