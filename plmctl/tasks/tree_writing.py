"""Constituency parsing by writing: a model reads a sentence and writes the brackets of its tree."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from plmctl.core.batch import Rows
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.tasks.constituency import tag_plainly
from plmctl.tasks.generation import Generation, GenerationSettings
from plmctl.tasks.phrase_tree import Branch, Phrase, read_bracketed, words_of
from plmctl.tasks.record import Arrays, Examples, Predictions
from plmctl.tasks.scores import written
from plmctl.tasks.scores.brackets import NAMES, describe_brackets, score_trees
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.tasks.tree_text import read_tree

WELL_FORMED = "well_formed"
METRICS = (*NAMES, WELL_FORMED, "perplexity")
_UNUSED = {  # settings of generation that say nothing of trees, as its config has them
    "columns": {"source": "source", "target": "target", "id": None},
    "tokenize": "13a",
    "lowercase": False,
}


@dataclass(frozen=True, kw_only=True)
class TreeWritingSettings(GenerationSettings):
    """Settings of writing trees: those of generation without what columns and BLEU have."""

    def check(self) -> None:
        super().check()
        for name, value in _UNUSED.items():
            if (given := getattr(self, name)) != value:
                shown = json.dumps(value).replace('"', "")
                allowed = f"{shown}: files of brackets have no columns, and trees no BLEU"
                fix = f"leave task.{name} out"
                raise ConfigError(f"task.{name}", given, allowed, fix=fix)


@part_of("task")
class TreeWriting(Generation):
    """Writes the tree of a sentence as text (Vinyals et al., 2015, arXiv:1412.7449, sec. 2.2 and
    3.1): brackets with their labels at both ends, and XX for each word.

    Trained as `Generation`; any text that is written is some tree (tasks/tree_text.py), and is
    scored as evalb does (tasks/scores/brackets.py). `well_formed` is the share of texts that are
    trees of just the words of their sentence. Parts of speech, which decide what is punctuation,
    are those of the file. Differs: a bracket and its label are cut as the tokenizer cuts text, and
    the sentence is read from left to right; labels that differ by case alone count as equal, since
    tokenizers may write lower case; surplus brackets are left out, not balanced by others.
    """

    percent = frozenset()
    Settings = TreeWritingSettings
    facts = replace(
        Generation.facts,
        answer="",
        typed="sentences that you type, one a line, with spaces between words",
    )

    def describe_metric(self, name: str) -> str:
        return describe_brackets(name)

    def check_metrics(self, settings: GenerationSettings) -> list[str]:
        return check_metrics(settings.metrics, METRICS)

    def predict(self, logits: Arrays, rows: Rows, examples: Examples) -> list[dict[str, Any]]:
        predictions = super().predict(logits, rows, examples)
        for prediction, example in zip(predictions, examples, strict=True):
            gold = example.fields.get("tree")
            source = str(example.fields["source"]).split()
            words = tag_plainly(source) if gold is None else words_of(read_bracketed(gold))
            found = read_tree(prediction["guess"], words)
            prediction |= {"gold_tree": gold, "tree": str(found.tree)}
            prediction[WELL_FORMED] = found.well_formed
        return predictions

    def score(self, predictions: Predictions) -> dict[str, float]:
        gold, guess = (
            [_in_upper_case(read_bracketed(each[side])) for each in predictions]
            for side in ("gold_tree", "tree")
        )
        found = score_trees(gold, guess)
        formed = sum(each[WELL_FORMED] for each in predictions)
        found[WELL_FORMED] = formed / len(predictions) if predictions else 0.0
        found["perplexity"] = written.perplexity(predictions)
        return {name: found[name] for name in self.metrics}


def _in_upper_case(tree: Branch) -> Branch:
    if not isinstance(tree, Phrase):
        return tree
    return Phrase(tree.label.upper(), tuple(map(_in_upper_case, tree.children)))
