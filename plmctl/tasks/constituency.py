"""Constituency parsing: the phrases of a sentence, one inside the other, by labels of its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.tasks.answers.tags import TagAnswer
from plmctl.tasks.phrase_tree import TaggedWord, build_tree, read_bracketed, words_of
from plmctl.tasks.record import Example, Examples, Predictions
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.scores.brackets import NAMES, describe_brackets, score_trees
from plmctl.tasks.tagging import Tagging, choose

UNKNOWN = "XX"  # the part of speech of a word of which none is given


@part_of("task")
class Constituency(Tagging):
    """Predicts the tree of a sentence as one label a word (Gomez-Rodriguez and Vilares, 2018,
    arXiv:1810.08994; for pretrained models alone: Vilares et al., 2020, arXiv:2002.01685). A label
    counts how many more phrases the word shares with the next word than with the one before. It
    also names the lowest of them, and the phrases of this word alone.

    `loss = -log softmax(head(h_first))[label]`, averaged over words. Any labels are a tree
    (tasks/phrase_tree.py), and are scored as evalb does (tasks/scores/brackets.py). Differs: parts
    of speech of guessed trees are those of the file, which decide what is punctuation, and no
    input.
    """

    # most words have different labels in different positions
    facts = replace(
        Tagging.facts,
        answer="",
        pipeline="",
        typed="sentences that you type, one a line, with spaces between words",
    )
    alone = True

    def __init__(self, **settings: Any) -> None:
        for name in ("crf", "scheme"):
            if settings.get(name) is not None:
                allowed = "null: labels of a tree name no entities"
                raise ConfigError(f"task.{name}", settings[name], allowed, fix=f"task.{name}=null")
        super().__init__(**settings)

    def answer_by(self, own: Any) -> TreeAnswer:
        return TreeAnswer(**choose(own))

    def judge(self, own: Any) -> TreeScores:
        return TreeScores()


class TreeAnswer(TagAnswer):
    """Labels of words, and the trees that they are."""

    rare = words = 0  # words whose label training lacks, and all

    @property
    def remarks(self) -> list[str]:
        if not self.rare:
            return []
        shares = f"{self.rare:,} of {self.words:,} words have a label of their tree that"
        return [f"{shares} training lacks: these are never right"]

    def seen(self, example: Example) -> Sequence[str]:
        return ()  # labels of dev may be new: there are many, and most are rare

    def fit(self, examples: Examples, names: list[str] | None, *, stated: bool) -> list[str]:
        if names is None:
            return super().fit(examples, names, stated=stated)
        known = {*names}
        kept = [replace(e, label=[name for name in e.label if name in known]) for e in examples]
        lost = [len(e.label) - len(own.label) for e, own in zip(examples, kept, strict=True)]
        self.words, self.rare = (
            self.words + sum(len(each.label) for each in examples),
            self.rare + sum(lost),
        )
        return super().fit(kept, names, stated=stated)

    def fit_metrics(
        self, metrics: Sequence[str], names: Sequence[str], *, stated: bool
    ) -> list[str]:
        return list(metrics)  # they count brackets

    def number_tags(self, example: Example, names: Sequence[str]) -> list[int]:
        numbers = {name: number for number, name in enumerate(names)}
        return [numbers.get(name, IGNORE) for name in example.label]

    def predict(
        self, logits: np.ndarray, rows: Rows, examples: Examples, names: list[str] | None
    ) -> list[dict[str, Any]]:
        predictions = super().predict(logits, rows, examples, names)
        for prediction, example in zip(predictions, examples, strict=True):
            gold = example.fields.get("tree")
            words = (
                tag_plainly(example.fields["words"])
                if gold is None
                else words_of(read_bracketed(gold))
            )
            prediction |= {"gold": gold, "guess": str(build_tree(prediction["guess"], words))}
        return predictions

    def weigh(self, *given: Any) -> None:
        """Add nothing: trees are no tags to be averaged."""


class TreeScores(Scores):
    """The scores of evalb."""

    known = NAMES

    def describe_metric(self, name: str) -> str:
        return describe_brackets(name)

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        gold, guess = (
            [read_bracketed(each[side]) for each in predictions] for side in ("gold", "guess")
        )
        found = score_trees(gold, guess)
        return {name: found[name] for name in names}


def tag_plainly(words: Sequence[str]) -> list[TaggedWord]:
    """Words that no tree has, in which brackets would end one."""
    plain = (word.replace("(", "-LRB-").replace(")", "-RRB-") for word in words)
    return [TaggedWord(UNKNOWN, word or "_") for word in plain]
