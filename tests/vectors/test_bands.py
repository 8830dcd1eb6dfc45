"""Bands of words beside those around them, as loops over words."""

from __future__ import annotations

import pytest
import torch

from plmctl.vectors.bands import Bands

SHAPES = [(1, 16), (5, 48), (9, 12), (2, 5)]  # W, L


@pytest.mark.parametrize(("reach", "length"), SHAPES)
def test_bands_are_windows(reach: int, length: int) -> None:
    bands, draw = Bands(reach, length), torch.Generator().manual_seed(0)
    band = bands.band
    assert length % band == 0
    assert bands.around % band == 0
    assert length + 2 * reach <= bands.around < length + 2 * reach + band
    left, right = torch.randint(0, reach + 1, (2, length), generator=draw)
    place = torch.arange(length) % band * (reach + 1)
    inside = bands.find_inside(left + place, right + place)
    wanted = torch.zeros(bands.around, length)  # [word around, word]
    for t in range(length):
        for c in range(t - int(left[t]), t + int(right[t]) + 1):
            wanted[reach + c, t] = c != t
    vectors = torch.randn(bands.around, 3, generator=draw)
    total = torch.bmm(inside, bands.cut(vectors)).flatten(0, 1)
    torch.testing.assert_close(total, wanted.T @ vectors)
    back = bands.add_up(inside.mT, total.view(-1, band, 3)).flatten(0, 1)
    torch.testing.assert_close(back, wanted @ total)
