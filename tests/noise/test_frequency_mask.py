"""Masking by frequency: against the chance of each order of draws, computed by enumeration."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.noise.frequency_mask import FrequencyMask
from tests.noise.plain_rows import make_vocab

COUNTS = {10: 64, 11: 16, 12: 4, 13: 1, 14: 0}  # in the sample; 14 counts as once
SAMPLE = np.repeat(list(COUNTS), list(COUNTS.values()))


def chances(weights: list[float], count: int) -> np.ndarray:
    """For each token the chance to be among the first `count`, over all orders of draws."""
    found = np.zeros(len(weights))
    for order in permutations(range(len(weights)), count):
        chance, left = 1.0, sum(weights)
        for number in order:
            chance *= weights[number] / left
            left -= weights[number]
        found[list(order)] += chance
    return found


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_tokens_are_drawn_by_their_weights(power: float) -> None:
    ids = np.tile(np.array(list(COUNTS), np.int32), (20_000, 1))
    rows = Rows(np.arange(20_000), {"text": Seq(ids, np.full(20_000, 5))})
    noise = FrequencyMask(
        vocab=make_vocab(), rate=0.4, power=power, corpus_sample=SAMPLE, mask_share=1.0,
        random_share=0.0,
    )  # fmt: skip
    noised = noise(rows, Draws(0, 0))
    chosen = noised.targets["mlm"] != IGNORE
    assert (chosen.sum(1) == 2).all()  # the rate is that of BERT's masking
    wanted = chances([max(1, count) ** -power for count in COUNTS.values()], 2)
    deviation = np.sqrt(wanted * (1 - wanted) / len(chosen))
    assert (np.abs(chosen.mean(0) - wanted) < 4 * deviation).all()
    assert noise.capacity(5) == {"mlm": 2}


def test_a_wrong_power_is_named() -> None:
    with pytest.raises(ConfigError, match=r"noise.power=2: 0 \(all tokens alike\)"):
        FrequencyMask(vocab=make_vocab(), rate=0.15, power=2)
