"""Numbers of a row inside a network, against the mixer written with whole numbers of Python."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from plmctl.core.draws import BITS, Draws, whole_at

STEP, FACTOR, WORD = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 1 << 64


def mix(x: int) -> int:
    x ^= x >> 32
    for _ in range(2):
        x = x * FACTOR % WORD
        x ^= x >> 32
    return x


def test_numbers_are_those_of_the_mixer() -> None:
    keys = np.array([0, 1, 2**40])
    draws = Draws(3, 1).words(keys, "network", 1)[:, 0].view(np.int64)
    for draw in draws.tolist():
        found = whole_at(torch.tensor(draw), torch.arange(700))
        expected = [mix((draw + column * STEP) % WORD) >> (64 - BITS) for column in range(700)]
        assert found.tolist() == expected


def test_numbers_are_uniform_over_rows_and_over_columns() -> None:
    draw = torch.from_numpy(Draws(0, 0).words(np.arange(300), "network", 1)[:, 0].view(np.int64))
    numbers = whole_at(draw[:, None], torch.arange(300)) / 2**BITS
    for found in (numbers.flatten(), numbers[:, 7], numbers[7], numbers.diff(dim=0) % 1):
        assert stats.kstest(found.flatten().double().numpy(), "uniform").pvalue > 1e-3
