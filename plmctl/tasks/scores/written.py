"""Scores of written text: BLEU and chrF by sacrebleu, BLEU-2 by source, ROUGE, distinct n-grams,
exact matches, texts that are new, perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.exponential import exponentiate
from plmctl.core.extras import require_library
from plmctl.core.terminal import WARN, remark
from plmctl.tasks.record import Predictions
from plmctl.tasks.scores import meteor, novelty, rouge, sentence_bleu
from plmctl.tasks.scores import squad as squad_score
from plmctl.tasks.scores.metrics import check_metrics
from plmctl.text.letters import count_unspaced, normalize_spaces, split_spaced
from plmctl.text.sentences import CJK

# each with source, guess, golds (references), nll and tokens (of the first reference)
BLEUS = {f"bleu_{n}": n for n in (1, 2, 3, 4)}  # by the longest n-grams that count
NAMES = ("bleu", "chrf", "bleu2", *rouge.METRICS, "exact", "distinct1", "distinct2", "perplexity")
NAMES += (*novelty.METRICS, *BLEUS, "meteor", "f1")
# the values of a prediction that single metrics read, in addition to texts
_READ = {"perplexity": "nll", **dict.fromkeys(novelty.METRICS, "new")}
# the tokenizers of sacrebleu that need no further package
TOKENIZERS = ("13a", "intl", "zh", "char", "none")
_LOOKED = 1000  # references that show the script


def check_writing_metrics(names: Sequence[str], tokenize: str) -> list[str]:
    """`names`, all of which can be computed here; else a ConfigError or, for a library that is
    missing, a UsageError.
    """
    names = check_metrics(names, NAMES)
    if {"bleu", "chrf", *BLEUS} & set(names):
        _sacrebleu()
        if tokenize not in TOKENIZERS:
            allowed = f"one of {', '.join(TOKENIZERS)}{nearest(tokenize, TOKENIZERS)}"
            raise ConfigError("task.tokenize", tokenize, allowed)
    return names


def score(
    predictions: Predictions, names: Sequence[str], *, tokenize: str, lowercase: bool
) -> tuple[dict[str, float], dict[str, str]]:
    """(metrics, signatures of those of sacrebleu): all in percent, except perplexity, which is
    per token of the first reference. Texts that no model wrote have no likelihood: metrics without
    what they read in `predictions` are left out.
    """
    guesses, golds = [p["guess"] for p in predictions], [p["golds"] for p in predictions]
    scores: dict[str, float] = {}
    signatures: dict[str, str] = {}
    for name in names:
        if any(_READ.get(name, "guess") not in p for p in predictions):
            continue
        if name in rouge.METRICS:
            scores[name] = rouge.mean(name, golds, guesses)
        elif name in novelty.METRICS:
            scores[name] = novelty.score(name, predictions)
        elif name == "bleu2":
            scores[name] = sentence_bleu.mean(predictions, lowercase=lowercase)
        elif name == "exact":
            scores[name] = (
                100
                * sum(exact(p["golds"], p["guess"]) for p in predictions)
                / max(1, len(predictions))
            )
        elif name == "meteor":
            scores[name] = meteor.mean(golds, guesses)
        elif name == "f1":
            scores[name] = overlap(golds, guesses)
        elif name == "perplexity":
            scores[name] = perplexity(predictions)
        elif name.startswith("distinct"):
            scores[name] = 100 * distinct(guesses, n=int(name.removeprefix("distinct")))
        else:
            scores[name], signatures[name] = _corpus(name, golds, guesses, tokenize, lowercase)
    return scores, signatures


def exact(golds: Sequence[str], guess: str) -> bool:
    """Whether the guess is one of the references, white space aside (T5: a label in words;
    arXiv:1910.10683, sec. 2.4).
    """
    return normalize_spaces(guess) in set(map(normalize_spaces, golds))


def overlap(golds: Sequence[Sequence[str]], guesses: Sequence[str]) -> float:
    """100 times the mean F1 of the words that both texts have, without a, an, the and punctuation,
    of the best reference (ConvAI2; Dinan et al., 2019, arXiv:1902.00098, sec. 3.1).
    """
    best = [
        max(squad_score.f1(gold, guess) for gold in several)
        for several, guess in zip(golds, guesses, strict=True)
    ]
    return 100 * math.fsum(best) / len(best) if best else 0.0


def perplexity(predictions: Predictions) -> float:
    """`exp(sum nll / sum tokens)` over the tokens of the first reference of each example, its
    specials among them.
    """
    tokens = sum(p["tokens"] for p in predictions)
    return exponentiate(math.fsum(p["nll"] for p in predictions) / tokens) if tokens else 0.0


def distinct(texts: Sequence[str], *, n: int) -> float:
    """Different n-grams over all n-grams of all texts (Li et al., 2016, arXiv:1510.03055, sec.
    5.2); words by white space, or the characters of scripts without spaces.
    """
    cut = (split_spaced(text) for text in texts)
    grams = [gram for words in cut for gram in zip(*(words[i:] for i in range(n)), strict=False)]
    return len(set(grams)) / len(grams) if grams else 0.0


def _corpus(
    name: str, golds: Sequence[Sequence[str]], guesses: list[str], tokenize: str, lowercase: bool
) -> tuple[float, str]:
    library = _sacrebleu().metrics
    if name != "chrf":
        _doubt(_unsuited([gold for several in golds for gold in several], tokenize))
    metric = (
        library.CHRF(lowercase=lowercase)
        if name == "chrf"
        else library.BLEU(
            tokenize=tokenize, lowercase=lowercase, max_ngram_order=BLEUS.get(name, 4)
        )
    )
    most = max(map(len, golds))
    references = [
        [several[n] if n < len(several) else None for several in golds] for n in range(most)
    ]
    value = float(metric.corpus_score(guesses, references).score)
    return value, str(metric.get_signature())


def _unsuited(golds: Sequence[str], tokenize: str) -> str:
    """Why words by this tokenizer are no words of these texts; "" where they are."""
    own = {"char": None, "zh": CJK}.get(tokenize, "")
    if own is None:
        return ""
    text = " ".join(golds[:_LOOKED])
    if 2 * count_unspaced(text, but=own) < len(text):
        return ""
    return (
        f"BLEU by task.tokenize={tokenize} takes text without spaces for one word;"
        " task.tokenize=char counts its characters, and chrf needs no words"
    )


@cache
def _doubt(why: str) -> None:
    """Say it once."""
    if why:
        remark(why, WARN)


def _sacrebleu() -> Any:
    return require_library(
        "sacrebleu",
        "generation",
        "a task with BLEU or chrF",
        otherwise="task.metrics=[rougeL,perplexity]",
    )
