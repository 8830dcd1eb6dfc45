"""The scores of a model that knows only how often each token occurs: any training must beat
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_CHUNK = 1 << 22  # bincount widens its input to int64: 32 MiB at a time, however large the shards


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


def count_tokens(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """How often each id occurs: `ids [N]` (may be memory-mapped) -> `[V]` int64."""
    counts = np.zeros(vocab_size, np.int64)
    for chunk in _chunks(ids):
        chunk_counts = np.bincount(chunk, minlength=vocab_size)
        if len(chunk_counts) > vocab_size:
            raise ValueError(
                f"token id {len(chunk_counts) - 1} is outside the vocabulary of {vocab_size}"
            )
        counts += chunk_counts
    return counts


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
    # add one: a token never seen in training has a chance
    log_p = np.log((train_counts + 1.0) / (train_counts.sum() + predicted.sum()))
    share = valid_counts[valid_counts > 0] / total
    frequent = int(train_counts.argmax())
    return UnigramBaseline(
        unigram_loss=float(-(valid_counts * log_p).sum() / total),
        entropy=float(-(share * np.log(share)).sum()),
        frequent_id=frequent,
        frequent_accuracy=float(valid_counts[frequent] / total),
        tokens=total,
    )


def _chunks(ids: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]
