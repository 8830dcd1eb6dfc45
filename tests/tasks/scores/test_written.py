"""Scores of written text: definitions, sacrebleu's signature, and what is refused."""

import math
import sys

import pytest

from plmctl.core.errors import ConfigError, UsageError
from plmctl.tasks.scores import written


def _made(*pairs):
    return [{"guess": guess, "golds": golds, "nll": 2.0, "tokens": 4} for guess, golds in pairs]


def test_bleu_and_chrf_are_sacrebleus_with_any_number_of_references():
    sacrebleu = pytest.importorskip("sacrebleu")
    found = _made(
        ("the cat is on the mat today", ["the cat sat on the mat today", "a cat"]),
        ("a b c d", ["a b c e d"]),
    )
    scores, signatures = written.score(found, ["bleu", "chrf"], tokenize="13a", lowercase=False)
    golds = [["the cat sat on the mat today", "a b c e d"], ["a cat", None]]
    guesses = [p["guess"] for p in found]
    assert scores == {
        "bleu": sacrebleu.corpus_bleu(guesses, golds).score,
        "chrf": sacrebleu.corpus_chrf(guesses, golds).score,
    }
    assert signatures["bleu"].startswith("nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nc:6|nw:0" in signatures["chrf"]
    shouted = [p | {"guess": p["guess"].upper()} for p in found]
    lower, signatures = written.score(shouted, ["bleu"], tokenize="13a", lowercase=True)
    assert lower["bleu"] == scores["bleu"]
    assert "case:lc" in signatures["bleu"]


def test_perplexity_distinct_and_exact():
    found = [{"nll": 3.0, "tokens": 2}, {"nll": 1.0, "tokens": 3}]
    assert written.perplexity(found) == pytest.approx(math.exp(4 / 5))
    assert written.distinct(["a b a", "a b"], n=1) == 2 / 5
    assert written.distinct(["a b a", "a b"], n=2) == 2 / 3
    assert written.distinct(["a"], n=2) == 0.0
    assert written.exact(["not  entailed", "neutral"], " not entailed")
    assert not written.exact(["entailed"], "Entailed")
    scores, _ = written.score(
        _made(("yes", ["yes"]), ("no", ["yes"])), ["exact"], tokenize="13a", lowercase=False
    )
    assert scores == {"exact": 50.0}


def test_wrong_names_are_refused():
    with pytest.raises(ConfigError, match=r"task.metrics.*did you mean 'rouge1'"):
        written.check_writing_metrics(["rouge_1"], "13a")
    with pytest.raises(ConfigError, match=r"task.tokenize='13b': one of 13a"):
        written.check_writing_metrics(["bleu"], "13b")


def test_without_sacrebleu_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    fix = r"fix: pip install 'sacrebleu>=2.4'  # or task.metrics=\[rougeL,perplexity\]"
    with pytest.raises(UsageError, match=rf"BLEU or chrF needs sacrebleu\n  {fix}"):
        written.check_writing_metrics(["bleu"], "13a")
    assert written.check_writing_metrics(["rougeL", "perplexity"], "13a") == [
        "rougeL",
        "perplexity",
    ]
