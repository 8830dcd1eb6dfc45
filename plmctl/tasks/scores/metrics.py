"""Scores from gold and guessed labels; every one is defined, without a warning, for constant and
empty input.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from plmctl.core.errors import ConfigError, nearest

LARGE = 1e60  # above it, products of squares, and of their sums, may overflow
MOST = 32  # labels that are tried as a constant prediction
Labels = Sequence[str]
Entity = tuple[str, int, int]  # type, first token, last token
LOWER = frozenset({"loss", "perplexity", "hamming_loss"})  # lower is better, whoever has them
# the kinds of metrics of labels
MEANINGS = {
    "macro_f1": "plain mean of the F1 of all labels",
    "exact": "share of bundles whose rows are all right",
    "mean": "plain mean of the other metrics",
}
_ERROR = re.compile(r"(?:errors?|mae|mse|perplexity|(?<!g)loss)(?![a-z])")


def is_larger_better(metric: str, lower: Collection[str] = ()) -> bool:
    """Whether a larger value of a metric is better.

    Args:
        lower: Further metrics of which a lower value is better.
    """
    return metric not in LOWER and metric not in lower


def spell_metric(metric: str, percent: Collection[str]) -> str:
    """`f1, %` of a metric from 0 to 100, one of `percent`; the name of any other."""
    return f"{metric}, %" if metric in percent else metric


def sounds_like_error(metric: str) -> bool:
    """Whether the name of a metric is that of an error or a loss, as `dev_rmse` is."""
    return _ERROR.search(metric.lower()) is not None


def check_metrics(names: Sequence[str], known: Iterable[str], *, fix: str = "") -> list[str]:
    """`names`, all of which are `known` to a task; else a ConfigError that lists these."""
    known = tuple(known)
    for name in names:
        if name not in known:
            allowed = f"of {', '.join(known)}{nearest(name, known)}"
            raise ConfigError("task.metrics", list(names), allowed, fix=fix)
    return list(names)


def accuracy(gold: Labels, guess: Labels) -> float:
    """`#(gold = guess) / n`, 0 for n = 0."""
    return sum(g == p for g, p in zip(gold, guess, strict=True)) / len(gold) if gold else 0.0


def f1(gold: Labels, guess: Labels, *, positive: str) -> float:
    """`2 TP / (2 TP + FP + FN)` of the class `positive`, 0 where there is neither gold nor guess
    of it.
    """
    both = sum(g == positive and p == positive for g, p in zip(gold, guess, strict=True))
    return _ratio(2 * both, sum(g == positive for g in gold) + sum(p == positive for p in guess))


def macro_f1(gold: Labels, guess: Labels) -> float:
    """The plain mean of `f1` over every class that occurs in gold or guess."""
    both = Counter(g for g, p in zip(gold, guess, strict=True) if g == p)
    either = Counter(gold) + Counter(guess)
    return (
        math.fsum(_ratio(2 * both[name], either[name]) for name in sorted(either)) / len(either)
        if either
        else 0.0
    )


def matthews(gold: Labels, guess: Labels) -> float:
    """Matthews correlation, for K classes in Gorodkin's form: the correlation of the two one-hot
    matrices; 0 if undefined.

    (Gorodkin, 2004, "Comparing two K-category assignments by a K-category correlation
    coefficient".)
    """
    # Python integers: products of counts never overflow
    n, right = len(gold), sum(g == p for g, p in zip(gold, guess, strict=True))
    golds, guesses = Counter(gold), Counter(guess)
    cross = right * n - sum(count * guesses[name] for name, count in golds.items())
    spread = (n * n - sum(p * p for p in guesses.values())) * (
        n * n - sum(g * g for g in golds.values())
    )
    return cross / math.sqrt(spread) if spread else 0.0


def pearson(gold: Sequence[float], guess: Sequence[float]) -> float:
    """Linear correlation; 0 where either side is constant or not finite."""
    x, y = np.asarray(gold, dtype=np.float64), np.asarray(guess, dtype=np.float64)
    if (
        len(x) < 2
        or not (np.isfinite(x).all() and np.isfinite(y).all())
        or (x == x[0]).all()
        or (y == y[0]).all()
    ):
        return 0.0
    x, y = shrink(x), shrink(y)
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.linalg.norm(x)) * float(np.linalg.norm(y))
    return max(-1.0, min(1.0, float(x @ y) / spread)) if spread else 0.0


def shrink(values: np.ndarray) -> np.ndarray:
    """Values in another unit, a power of 2, where their squares would overflow or vanish."""
    most = float(np.abs(values).max(initial=0))
    if most in (0, math.inf) or 1 / LARGE < most < LARGE or most != most:
        return values
    shrunk: np.ndarray = np.ldexp(values, -math.frexp(most)[1])
    return shrunk


def spearman(gold: Sequence[float], guess: Sequence[float]) -> float:
    """Pearson correlation of the ranks, ties at their mean rank."""
    if not (np.isfinite(gold).all() and np.isfinite(guess).all()):
        return 0.0
    return pearson(find_ranks(gold), find_ranks(guess))


CORRELATIONS = {"pearson": pearson, "spearman": spearman}  # by the name that a task's YAML uses


def find_ranks(values: Sequence[float]) -> list[float]:
    _, group, count = np.unique(
        np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True
    )
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group].tolist()


def entities(tags: Labels) -> set[Entity]:
    """The chunks conlleval finds in one sentence: one begins at B- or S-, after O, at a change of
    type and after E- or S-.

    So an I- after O or after another type starts an entity; the schemes IOB1, IOB2 (BIO) and BIOES
    (BMES) are all read, and a tag without a letter in front as I- of that type. (Tjong Kim Sang and
    De Meulder, 2003; the script `conlleval`.)
    """
    chunks: set[Entity] = set()
    start, kind, closed = 0, "", True
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        outside = tag == "O"
        if len(prefix) != 1:  # a type alone
            prefix, name = "I", tag
        if not closed and (outside or prefix in "BS" or name != kind):
            chunks.add((kind, start, position - 1))
            closed = True
        if outside:
            continue
        if closed:
            start, kind, closed = position, name, False
        if prefix in "ES":
            chunks.add((kind, start, position))
            closed = True
    return chunks


def entity_scores(gold: Sequence[Labels], guess: Sequence[Labels]) -> dict[str, float]:
    """Micro precision, recall and F1 of exactly matching entities over all sentences."""
    return _score_entities([entities(tags) for tags in gold], [entities(tags) for tags in guess])


def constant_entity_scores(gold: Sequence[Labels]) -> dict[str, float]:
    """The best of each metric that is reached by the same tag for every word."""
    golds = [entities(sentence) for sentence in gold]
    tags = {tag for sentence in gold for tag in sentence}
    lengths = {len(sentence) for sentence in gold}
    best = {"f1": 0.0, "precision": 0.0, "recall": 0.0}
    for tag in tags - {"O"}:
        guesses = {length: entities([tag] * length) for length in lengths}
        scores = _score_entities(golds, [guesses[len(sentence)] for sentence in gold])
        best = {name: max(value, scores[name]) for name, value in best.items()}
    return best


def _score_entities(gold: Sequence[set[Entity]], guess: Sequence[set[Entity]]) -> dict[str, float]:
    right = sum(len(g & p) for g, p in zip(gold, guess, strict=True))
    guessed, present = sum(map(len, guess)), sum(map(len, gold))
    return {
        "f1": _ratio(2 * right, guessed + present),
        "precision": _ratio(right, guessed),
        "recall": _ratio(right, present),
    }


def divide_counts(right: int, guessed: int, present: int) -> tuple[float, float, float]:
    """Precision, recall and F1 of counts; 0 where nothing is counted."""
    return (
        right / guessed if guessed else 0.0,
        right / present if present else 0.0,
        2 * right / (guessed + present) if guessed + present else 0.0,
    )


def by_name(positive: str | None) -> dict[str, Callable[[Labels, Labels], float]]:
    """The scores of label lists by the name that a task's YAML uses; `f1` only where a positive
    class is stated.
    """
    scores: dict[str, Callable[[Labels, Labels], float]] = {
        "accuracy": accuracy,
        "macro_f1": macro_f1,
        "matthews": matthews,
    }
    if positive is not None:
        scores["f1"] = lambda gold, guess: f1(gold, guess, positive=positive)
    return scores


def majority(gold: Iterable[str]) -> float:
    """The accuracy of always predicting the most frequent label, which every classifier must
    beat.
    """
    gold = list(gold)
    return max(Counter(gold).values()) / len(gold) if gold else 0.0


def constant(score: Callable[[Labels, Labels], float], gold: Labels) -> float:
    """The best `score` of always predicting one label, one of the `MOST` most frequent ones."""
    return max((score(gold, [name] * len(gold)) for name in often(gold)), default=0.0)


def often(labels: Iterable[str], also: Iterable[str | None] = (), *, most: int = MOST) -> list[str]:
    """The labels for a constant prediction: all, or of many the `most` frequent ones, as the count
    of right ones grows with the frequency. Those of `also` that occur are added.
    """
    found = Counter(labels)
    top = {name for name, _ in sorted(found.items(), key=lambda each: (-each[1], each[0]))[:most]}
    return sorted(top | {name for name in also if name is not None and name in found})


def floor(names: Sequence[str], gold: Labels, best: Callable[[str], float]) -> dict[str, float]:
    """The score of a constant prediction: `majority` where `accuracy` is among the `names`,
    otherwise `constant_<the first name>`, which is `best` of that name.
    """
    if "accuracy" in names:
        return {"majority": majority(gold)}
    return {f"constant_{names[0]}": best(names[0])} if names else {}


def _ratio(part: float, total: float) -> float:
    return part / total if total else 0.0
