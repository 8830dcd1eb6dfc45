"""The scores of models that only count: how often each token occurs, and how often behind which.
Any training must beat the first, and a model that reads its context the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plmctl.text.frequencies import count_tokens, estimate_frequencies

# candidates, of which the bigram baseline takes the best
PRIORS = (3, 10, 30, 100, 300, 1000, 3000)
_STEP = 1 << 16  # pairs that are widened to int64 at once


@dataclass(frozen=True)
class UnigramBaseline:
    """Losses in nats for each token, accuracies as shares; `tokens` is the number of validation
    tokens.
    """

    unigram_loss: float  # cross-entropy of the training frequencies on the validation tokens
    # entropy of the validation tokens themselves: no prediction without context gets below it
    entropy: float
    frequent_id: int  # the most frequent training token
    frequent_accuracy: float  # accuracy of always answering `frequent_id`
    tokens: int


def measure_unigram_baseline(
    train: np.ndarray, valid: np.ndarray, *, ignored: np.ndarray
) -> UnigramBaseline:
    """The baseline for `valid [M]` ids, given `train [N]` ids; `ignored [V]` bool marks ids that
    are never predicted (special tokens).

    `unigram_loss = -mean_v log((c_v + 1) / (N + V'))` with training counts c over the V' ids that
    may be predicted.
    """
    predicted = ~ignored
    train_counts = count_tokens(train, len(ignored)) * predicted
    valid_counts = count_tokens(valid, len(ignored)) * predicted
    total = int(valid_counts.sum())
    if total == 0:
        raise ValueError("no validation token may be predicted")
    log_p = np.log(estimate_frequencies(train_counts, predicted))
    share = valid_counts[valid_counts > 0] / total
    frequent = int(train_counts.argmax())
    return UnigramBaseline(
        unigram_loss=float(-(valid_counts * log_p).sum() / total),
        entropy=float(-(share * np.log(share)).sum()),
        frequent_id=frequent,
        frequent_accuracy=float(valid_counts[frequent] / total),
        tokens=total,
    )


def measure_bigram_baseline(
    train: np.ndarray, valid: np.ndarray, *, ignored: np.ndarray, most: int = 1 << 22
) -> float:
    """The loss in nats a token of `valid [M]` ids, each given the one before it, by counts of
    `train [N]` ids.

    `p(w | v) = (c(v, w) + k p(w)) / (c(v) + k)` with training counts c and the frequencies p of
    `measure_unigram_baseline`. `k` is the best of `PRIORS`: the training pairs are likeliest when
    each is left out of the counts. Pairs over the ends of documents count as others do.

    Args:
        ignored: [V] bool marks ids that are never predicted (special tokens).
        most: training tokens that are counted; of more, pieces spread over all of them.

    Raises:
        ValueError: if no pair of `valid` may be predicted.

    Source: MacKay and Peto, 1995, A hierarchical Dirichlet language model, eq. 7; leaving one
    out: Ney, Essen and Kneser, 1994.
    """
    size, predicted = len(ignored), ~ignored
    asked_before, asked = _pairs(valid, predicted)
    if not len(asked):
        raise ValueError("no validation token may be predicted")
    frequencies = estimate_frequencies(count_tokens(train, size) * predicted, predicted)
    keys, counts = _count_pairs(_spread(train, most), predicted)
    behind = np.zeros(size, np.int64)  # c(v)
    np.add.at(behind, keys // size, counts)
    prior = min(
        PRIORS,
        key=lambda k: (
            -np.dot(
                counts,
                np.log(counts - 1 + k * frequencies[keys % size])
                - np.log(behind[keys // size] - 1 + k),
            )
        ),
    )
    found = np.searchsorted(keys, asked_before * size + asked).clip(max=max(len(keys) - 1, 0))
    seen = (
        np.where(keys[found] == asked_before * size + asked, counts[found], 0) if len(keys) else 0
    )
    chance = (seen + prior * frequencies[asked]) / (behind[asked_before] + prior)
    return float(-np.log(chance).mean())


def _pairs(ids: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that may be predicted, behind the ones before them: two `[n]` int64."""
    before, after = ids[:-1].astype(np.int64), ids[1:].astype(np.int64)
    kept = predicted[after]
    return before[kept], after[kept]


def _count_pairs(
    pieces: Sequence[np.ndarray], predicted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The different pairs, as `before * V + after` in ascending order, and how often each occurs:
    two `[K]` int64. A pair takes 4 bytes until it is counted, where so many numbers tell all apart.
    """
    size = len(predicted)
    kind = np.uint32 if size * size <= 1 << 32 else np.int64
    keys, end = np.empty(sum(map(len, pieces)), kind), 0
    steps = (each[at : at + _STEP + 1] for each in pieces for at in range(0, len(each), _STEP))
    for step in steps:
        before, after = _pairs(step, predicted)
        keys[end : end + len(after)] = before * size + after
        end += len(after)
    keys = keys[:end]
    keys.sort()
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if end else np.zeros(0, int)
    return keys[starts].astype(np.int64), np.diff(starts, append=end)


def _spread(ids: np.ndarray, most: int, pieces: int = 64) -> list[np.ndarray]:
    """All of `ids`, or `pieces` of it at equal distances with `most` tokens together."""
    if len(ids) <= most:
        return [ids]
    starts = np.linspace(0, len(ids) - most // pieces, pieces).astype(np.int64)
    return [ids[start : start + most // pieces] for start in starts]
