"""`plmctl help NAME` explains every metric that a part of plmctl logs or a task has."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plmctl import objectives, probes
from plmctl.config.terms import explain_word
from plmctl.objectives.base import Objective
from plmctl.tasks import scores
from plmctl.tasks.scores import metrics
from plmctl.tasks.scores.base import Scores
from plmctl.training.log import ACCURACIES, ENDS, HIDDEN, SHORT

PROBED = re.compile(  # a score that a probe gives
    r'"((?:[a-z]+_)*(?:perplexity|bits_per|log_likelihood|effective_context|loss)(?:_[a-z]+)*)'
    r'_?[{"]'
    r'|"((?:masked|pseudo|scored)_tokens|mrr?|hits@10?)"'
)
LOGGED = re.compile(r'"([a-z_]+/[a-z_]+)":')  # a name among the logs of an objective


def _import(package: Any) -> list[Any]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def _subclasses(kind: type) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield from (each, *_subclasses(each))


def list_logged() -> set[str]:
    """The names in the log of a pretraining."""
    files = [Path(module.__file__) for module in _import(objectives)]
    facts = [kind.facts for kind in _subclasses(Objective) if hasattr(kind.facts, "terms")]
    kinds = {*SHORT, *ENDS, *ACCURACIES, *ACCURACIES.values(), "nll", "perplexity"}
    names = {f"{kind}/{term}" for each in facts for term in each.terms for kind in kinds}
    names -= {
        f"{kind}/{term}"
        for each in facts
        for term in each.terms
        for kind in SHORT
        if kind in ("grad_norm", "data_wait")
    }
    names |= {name for each in facts for name in each.measures}
    names |= {name for file in files for name in LOGGED.findall(file.read_text(encoding="utf-8"))}
    names |= {"grad_norm", "data_wait", "mfu", "tokens_per_second", "lr", "loss", "sparsity"}
    return names | set(HIDDEN) - {"triples", "share", "slowest_over"}


def list_scores() -> set[str]:
    """The names of the metrics of tasks."""
    known = {
        name
        for kind in _subclasses(Scores)
        if isinstance(kind.known, (list, tuple))
        for name in kind.known
    }
    for module in _import(scores):
        known |= {*getattr(module, "NAMES", ()), *getattr(module, "METRICS", ())}
    return known | {*metrics.by_name("a"), *metrics.MEANINGS, "mrr", "ndcg@10", "map", "spearman"}


def list_probed() -> set[str]:
    """The names of the scores of probes."""
    texts = [Path(module.__file__).read_text(encoding="utf-8") for module in _import(probes)]
    return {name for text in texts for both in PROBED.findall(text) for name in both if name}


@pytest.mark.parametrize(
    ("names", "least"),
    [(list_logged(), 40), (list_scores(), 40), (list_probed(), 12)],
    ids=["logged", "scores", "probed"],
)
def test_every_name_is_explained(names: set[str], least: int) -> None:
    assert len(names) > least
    assert not [name for name in sorted(names) if not explain_word(name)]


@pytest.mark.parametrize(
    "name",
    [
        *("valid/recall/rtd", "en/loss/mlm", "Recall/RTD", "significance", "bits_per_byte"),
        *("hits@10", "loss_100", "p@3", "effective_context_0.5", "pseudo_perplexity", "chance/mrr"),
    ],
)
def test_names_as_they_stand_in_files(name: str) -> None:
    assert explain_word(name)


def test_a_metric_of_one_part_comes_before_the_kind() -> None:
    (meaning, *_) = explain_word("recall/replaced").values()
    assert "WKLM" in meaning
    assert not explain_word("nonsense/rtd")
