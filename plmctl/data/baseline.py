"""What a model reaches that knows how often each token occurs and nothing else: the marks that
any training must beat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_CHUNK = 1 << 22  # bincount widens its input to int64: 32 MiB at a time, however large the shards


@dataclass(frozen=True)
class UnigramBaseline:
    """Losses in nats a token, accuracies as shares; `tokens` is how many validation tokens they
    are over.
    """

    unigram_loss: float  # cross-entropy of the training frequencies on the validation tokens
    # entropy of the validation tokens themselves: no context-free guess gets below it, even one
    # that peeks
    entropy: float
    frequent_id: int  # the most frequent training token
    frequent_accuracy: float  # accuracy of always answering `frequent_id`
    tokens: int


def count_tokens(ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """How often each id occurs: `ids [N]` (may be memory-mapped) -> `[V]` int64."""
    counts = np.zeros(vocab_size, np.int64)
    for chunk in _chunks(ids):
        found = np.bincount(chunk, minlength=vocab_size)
        if len(found) > vocab_size:
            raise ValueError(f"token id {len(found) - 1} is outside the vocabulary of {vocab_size}")
        counts += found
    return counts


def measure_unigram_baseline(
    train: np.ndarray, valid: np.ndarray, *, ignored: np.ndarray
) -> UnigramBaseline:
    """The floors of `valid [M]` ids given `train [N]` ids; `ignored [V]` bool marks ids that are
    never predicted (specials).

    `unigram_loss = -mean_v log((c_v + 1) / (N + V'))` with training counts c over the V' ids that
    may be predicted.
    """
    predicted = ~ignored
    seen = count_tokens(train, len(ignored)) * predicted
    asked = count_tokens(valid, len(ignored)) * predicted
    total = int(asked.sum())
    if total == 0:
        raise ValueError("no validation token may be predicted")
    # add one: a token never seen in training has a chance
    log_p = np.log((seen + 1.0) / (seen.sum() + predicted.sum()))
    share = asked[asked > 0] / total
    frequent = int(seen.argmax())
    return UnigramBaseline(
        unigram_loss=float(-(asked * log_p).sum() / total),
        entropy=float(-(share * np.log(share)).sum()),
        frequent_id=frequent,
        frequent_accuracy=float(asked[frequent] / total),
        tokens=total,
    )


def _chunks(ids: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]
