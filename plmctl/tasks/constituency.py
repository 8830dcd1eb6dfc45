"""Constituency parsing: the phrases of a sentence, one inside the other, by labels of its words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.tasks.phrase_tree import TaggedWord, build_tree, read_bracketed, words_of
from plmctl.tasks.record import Example
from plmctl.tasks.scores.brackets import NAMES, score_trees
from plmctl.tasks.tagging import Tagging, TaggingSettings

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
    known_metrics = NAMES
    of_entities = ()

    Settings = TaggingSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name in ("crf", "scheme"):
            if settings.get(name) is not None:
                allowed = "null: labels of a tree name no entities"
                raise ConfigError(f"task.{name}", settings[name], allowed, fix=f"task.{name}=null")
        self._rare, self._asked_of = 0, 0

    @property
    def remarks(self) -> list[str]:
        """Remarks for a reader of the score."""
        if not self._rare:
            return []
        shares = f"{self._rare:,} of {self._asked_of:,} words have a label of their tree that"
        return [f"{shares} training lacks: these are never right"]

    def unit(self, example: Example) -> str:
        return "\t".join(example.fields["words"])

    def texts(self, example: Example) -> list[str]:
        return [" ".join(example.fields["words"])]

    def labels_of(self, example: Example) -> Sequence[str]:
        return ()  # labels of dev may be new: there are many, and most are rare

    def fit_labels(self, examples: Iterable[Example]) -> None:
        if self.label_names is None:
            super().fit_labels(examples)
            return
        known = {*self.names}
        examples = list(examples)
        kept = [replace(e, label=[name for name in e.label if name in known]) for e in examples]
        self._asked_of += sum(len(e.label) for e in examples)
        self._rare += sum(
            len(e.label) - len(own.label) for e, own in zip(examples, kept, strict=True)
        )
        super().fit_labels(kept)

    def _number(self, example: Example) -> list[int]:
        numbers = {name: number for number, name in enumerate(self.names)}
        return [numbers.get(name, IGNORE) for name in example.label]

    def predict(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        predictions = super().predict(logits, rows, examples)
        for prediction, example in zip(predictions, examples, strict=True):
            gold = example.fields.get("tree")
            words = (
                tag_plainly(example.fields["words"])
                if gold is None
                else words_of(read_bracketed(gold))
            )
            prediction |= {"gold": gold, "guess": str(build_tree(prediction["guess"], words))}
        return predictions

    def explain(
        self, logits: Mapping[str, np.ndarray], rows: Rows, examples: Sequence[Example]
    ) -> list[dict[str, Any]]:
        return self.predict(logits, rows, examples)

    def score(self, predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        gold, guess = (
            [read_bracketed(each[side]) for each in predictions] for side in ("gold", "guess")
        )
        found = score_trees(gold, guess)
        return {name: found[name] for name in self.metrics}


def tag_plainly(words: Sequence[str]) -> list[TaggedWord]:
    """Words that no tree has, in which brackets would end one."""
    plain = (word.replace("(", "-LRB-").replace(")", "-RRB-") for word in words)
    return [TaggedWord(UNKNOWN, word or "_") for word in plain]
