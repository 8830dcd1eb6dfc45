"""Scores of examples drawn again and again: by sums over examples where a score is a function of
such sums, otherwise by the score itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from plmctl.tasks import metrics

Rows = Sequence[Mapping[str, Any]]  # predictions
Score = Callable[[Rows], Mapping[str, float]]
ROOM = 1 << 21  # numbers of a table of draws that is made at once
TRIED = 8  # draws on which a form has to agree with the score that it stands for


@dataclass(frozen=True)
class Sums:
    """A score that is a function of sums over examples.

    Args:
        parts: [m, k] what each example adds.
        value: [R, k] sums to [R] scores.
    """

    parts: np.ndarray
    value: Callable[[np.ndarray], np.ndarray]

    def __call__(self, picks: np.ndarray) -> np.ndarray:
        """The scores of several draws.

        Args:
            picks: [R, n] numbers of the examples in each draw.

        Returns:
            [R]
        """
        m = len(self.parts)
        blocks = np.array_split(picks, max(1, len(picks) * m // ROOM))
        counts = (np.stack([np.bincount(row, minlength=m) for row in block]) for block in blocks)
        return np.concatenate([self.value(each @ self.parts) for each in counts])


@dataclass(frozen=True)
class Whole:
    """A score that is computed anew of every draw, from all its examples."""

    rows: Rows
    score: Callable[[Rows], float]

    def __call__(self, picks: np.ndarray) -> np.ndarray:
        """As that of `Sums`."""
        drawn = ([self.rows[index] for index in row] for row in picks.tolist())
        return np.array([self.score(rows) for rows in drawn])


def find_forms(rows: Rows, score: Score, names: Sequence[str]) -> dict[str, Sums | Whole]:
    """{metric: its score of draws from `rows`}, by sums where these give the score itself of all
    rows and of random draws.
    """
    picks = np.random.default_rng(0).integers(len(rows), size=(TRIED, len(rows)))
    drawn = [rows, *([rows[index] for index in row] for row in picks.tolist())]
    picks = np.concatenate([np.arange(len(rows))[None], picks])
    wanted = [score(each) for each in drawn]
    fast = [*_labels(rows), *_numbers(rows), *_entities(rows), *_perplexity(rows)]
    fast += _bleu(rows) if "bleu" in names else []
    found = [(form, form(picks)) for form in fast]
    single = [score([row]) for row in rows]
    forms: dict[str, Sums | Whole] = {}
    for name in names:
        values = np.array([each[name] for each in wanted])
        mean = Sums(np.array([[each[name], 1.0] for each in single]), _divide)
        both = [*found, (mean, mean(picks))]
        fits = (form for form, own in both if np.allclose(own, values, rtol=1e-9, atol=1e-9))
        whole = Whole(rows, partial(_take, score, name))
        forms[name] = next(fits, whole)
    return forms


def _take(score: Score, name: str, rows: Rows) -> float:
    return score(rows)[name]


def _divide(sums: np.ndarray) -> np.ndarray:
    """The first of two sums by the second; 0 where that is 0."""
    return _ratio(sums[:, 0], sums[:, 1])


def _ratio(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.divide(part, total, out=np.zeros_like(part, dtype=np.float64), where=total != 0)


def _labels(rows: Rows) -> Iterator[Sums]:
    """Accuracy, macro F1, Matthews correlation and the F1 of each class, of labels or of lists of
    tags: from how often each class is right, gold and guessed.
    """
    pairs = [(row.get("gold"), row.get("guess")) for row in rows]
    if all(isinstance(side, str | int) for pair in pairs for side in pair):
        pairs = [([gold], [guess]) for gold, guess in pairs]
    elif not all(_are_tags(*pair) for pair in pairs):
        return
    lists: list[tuple[list[str], list[str]]] = [
        ([str(each) for each in gold], [str(each) for each in guess])  # type: ignore[union-attr]
        for gold, guess in pairs
    ]
    names = sorted({name for pair in lists for side in pair for name in side})
    number = {name: index for index, name in enumerate(names)}
    parts = np.zeros((len(rows), 3, len(names)))  # [m, (right, gold, guess), K]
    for own, (gold, guess) in zip(parts, lists, strict=True):
        for g, p in zip(gold, guess, strict=True):
            own[0, number[g]] += g == p
            own[1, number[g]] += 1
            own[2, number[p]] += 1
    flat = parts.reshape(len(rows), -1)
    for value in (_accuracy, _macro_f1, _matthews):
        yield Sums(flat, value)
    for index in range(len(names)):
        yield Sums(flat, partial(_class_f1, index))


def _are_tags(gold: Any, guess: Any) -> bool:
    return isinstance(gold, list) and isinstance(guess, list) and len(gold) == len(guess)


def _by_class(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[R, K] right, gold and guessed, of [R, 3 K]."""
    right, gold, guess = np.split(sums, 3, axis=1)
    return right, gold, guess


def _accuracy(sums: np.ndarray) -> np.ndarray:
    right, gold, _ = _by_class(sums)
    return _ratio(right.sum(1), gold.sum(1))


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    right, gold, guess = _by_class(sums)
    occurs = gold + guess > 0
    return _ratio(_ratio(2 * right, gold + guess).sum(1), occurs.sum(1).astype(float))


def _class_f1(index: int, sums: np.ndarray) -> np.ndarray:
    right, gold, guess = (side[:, index] for side in _by_class(sums))
    return _ratio(2 * right, gold + guess)


def _matthews(sums: np.ndarray) -> np.ndarray:
    """As `metrics.matthews`."""
    right, gold, guess = _by_class(sums)
    n = gold.sum(1)
    cross = right.sum(1) * n - (gold * guess).sum(1)
    spread = (n * n - (guess * guess).sum(1)) * (n * n - (gold * gold).sum(1))
    return _ratio(cross, np.sqrt(spread))


def _numbers(rows: Rows) -> Iterator[Sums]:
    """Pearson's correlation, from the sums of x, y, x^2, y^2 and x y, around their means."""
    if not all(isinstance(row.get(side), float) for row in rows for side in ("gold", "guess")):
        return
    pairs = np.array([[row["gold"], row["guess"]] for row in rows])
    x, y = (pairs - pairs.mean(0)).T
    yield Sums(np.stack([np.ones(len(rows)), x, y, x * x, y * y, x * y], 1), _pearson)


def _pearson(sums: np.ndarray) -> np.ndarray:
    n, x, y, xx, yy, xy = sums.T
    spread = np.maximum(n * xx - x * x, 0) * np.maximum(n * yy - y * y, 0)
    tiny = 1e-18 * (n * xx) * (n * yy)  # what rounding leaves of a constant side
    return _ratio(n * xy - x * y, np.where(spread > tiny, np.sqrt(spread), 0.0))


def _entities(rows: Rows) -> Iterator[Sums]:
    """Micro F1, precision and recall of entities: from how many are right, guessed and gold."""
    if not all(_are_tags(row.get("gold"), row.get("guess")) for row in rows):
        return
    pairs = [(metrics.entities(row["gold"]), metrics.entities(row["guess"])) for row in rows]
    parts = np.array([[len(g & p), len(p), len(g)] for g, p in pairs], dtype=float)
    yield Sums(np.stack([2 * parts[:, 0], parts[:, 1] + parts[:, 2]], 1), _divide)
    yield Sums(parts[:, [0, 1]], _divide)
    yield Sums(parts[:, [0, 2]], _divide)


def _perplexity(rows: Rows) -> Iterator[Sums]:
    """`exp(sum nll / sum tokens)`, as `written.perplexity`."""
    if all("nll" in row and "tokens" in row for row in rows):
        yield Sums(np.array([[row["nll"], row["tokens"]] for row in rows]), _raise_mean)


def _raise_mean(sums: np.ndarray) -> np.ndarray:
    return np.where(sums[:, 1] == 0, 0.0, np.exp(np.minimum(700.0, _divide(sums))))


def _bleu(rows: Rows) -> Iterator[Sums]:
    """BLEU by sacrebleu: from the n-grams that are right and guessed, and the two lengths."""
    from sacrebleu.metrics import BLEU

    for tokenize, lowercase in (("13a", False), ("13a", True), ("zh", False), ("intl", False)):
        metric = BLEU(tokenize=tokenize, lowercase=lowercase)
        parts = []
        for row in rows:
            own = metric.corpus_score([row["guess"]], [[gold] for gold in row["golds"]])
            parts.append([*own.counts, *own.totals, own.sys_len, own.ref_len])
        yield Sums(np.array(parts, dtype=float), _compute_bleu)


def _compute_bleu(sums: np.ndarray) -> np.ndarray:
    from sacrebleu.metrics import BLEU

    scores = []
    for *counts, system, reference in sums.astype(int).tolist():
        half = len(counts) // 2
        right, guessed = counts[:half], counts[half:]
        found = BLEU.compute_bleu(right, guessed, system, reference, smooth_method="exp")
        scores.append(found.score)
    return np.array(scores)
