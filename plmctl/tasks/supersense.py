"""The supersense of each noun and verb of a sentence (Ciaramita and Altun, 2006; Levine et al.,
2020, SemEval-SS).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from plmctl.core.batch import Rows
from plmctl.core.parts import part_of
from plmctl.core.terminal import counted
from plmctl.core.values import Whole
from plmctl.tasks.answers.tags import TagAnswer
from plmctl.tasks.readers.streusle import NO_SENSE
from plmctl.tasks.record import Arrays, Example, Examples, Predictions
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.base import Scores
from plmctl.tasks.tagging import Tagging, TaggingSettings, choose

_RARE = "rare_"


@dataclass(frozen=True, kw_only=True)
class SupersenseSettings(TaggingSettings):
    """Settings of supersense tagging.

    Args:
        piece: The token of a word that it is read from.
        rare: words that the training split has at most so many times are rare.
    """

    piece: Literal["first", "last"] = "first"
    rare: Whole = 1


@part_of("task")
class Supersense(Tagging):
    """Predicts the supersense of each annotated word; the others are read, and neither trained nor
    scored.

    `loss = -log softmax(head(h))[sense]`, averaged over annotated words; h of the `piece`
    "first" or "last" of the word (Levine et al., 2020, arXiv:1908.05646, sec. 3.4: the rightmost).
    `rare_accuracy` and `rare_macro_f1` count only words that training has at most `rare` times, in
    any case of letters; `rare_words` says how many these are.
    """

    # the baseline of a sense is that of its word, which needs a lexicon
    facts = replace(Tagging.facts, answer="")

    Settings = SupersenseSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.rare = SupersenseSettings(**settings).rare
        self._seen: Counter[str] | None = None  # words of training

    def answer_by(self, own: SupersenseSettings) -> TagAnswer:
        return TagAnswer(**choose(own), piece=own.piece, unlabelled=NO_SENSE)

    def judge(self, own: SupersenseSettings) -> SenseScores:
        return SenseScores(rare=own.rare)

    def fit_labels(self, examples: Iterable[Example]) -> None:
        examples = list(examples)
        super().fit_labels(examples)
        self._seen = _count(examples)

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        if self._seen is None:
            self._seen = _count(self.read("train") if self.splits.has("train") else [])
        predictions = super().predict(logits, rows, examples)
        for prediction in predictions:
            words = prediction["words"]
            prediction["seen"] = [self._seen[word.lower()] for word in words]
            if prediction["gold"] is not None:  # the words of the scores, and of those of rare ones
                asked = [gold != NO_SENSE for gold in prediction["gold"]]
                few = [seen <= self.rare for seen in prediction["seen"]]
                prediction["asked"] = asked
                prediction["rare"] = [a and f for a, f in zip(asked, few, strict=True)]
        return predictions


class SenseScores(Scores):
    """The scores of labels over annotated words, and those of rare ones with `rare_` before."""

    known = (*metrics.by_name(None), *(_RARE + name for name in metrics.by_name(None)))
    default = ("accuracy",)

    def __init__(self, *, rare: int) -> None:
        self.rare = rare

    def describe_metric(self, name: str) -> str:
        seen = f", at most {counted(self.rare, 'time')} in training"
        return f"annotated words{seen if name.startswith(_RARE) else ''}"

    def __call__(self, predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
        asked = [
            (gold, guess, seen)
            for p in predictions
            for gold, guess, seen in zip(p["gold"], p["guess"], p["seen"], strict=True)
            if gold != NO_SENSE
        ]
        gold, guess = [each[0] for each in asked], [each[1] for each in asked]
        few = [each for each in asked if each[2] <= self.rare]
        rare = [each[0] for each in few], [each[1] for each in few]
        known = metrics.by_name(None)
        found = {name: score(gold, guess) for name, score in known.items()}
        found |= {_RARE + name: score(*rare) for name, score in known.items()}
        floor = metrics.floor(
            names, gold, lambda name: metrics.constant(known[name.removeprefix(_RARE)], gold)
        )
        scores = {name: found[name] for name in names}
        return scores | {"rare_words": float(len(few))} | floor


def _count(examples: Iterable[Example]) -> Counter[str]:
    return Counter(word.lower() for example in examples for word in example.fields["words"])
