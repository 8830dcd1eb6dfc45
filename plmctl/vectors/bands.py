"""Windows of words as products of small matrices: bands of words times all words around them."""

from __future__ import annotations

from math import gcd

import torch
from torch import Tensor

BAND = 16  # words of a band, at most


class Bands:
    """Cuts L words into B bands of T words. Each band meets T + 2 W words: its own, and W on each
    side. Before the words are W more. Behind them are W or more, so that all together are C whole
    bands.

    Args:
        reach: W, words on each side of a window at most.
        length: L; T is the largest number that divides both 16 and L.
    """

    def __init__(self, reach: int, length: int) -> None:
        self.reach, self.length, self.band = reach, length, gcd(length, BAND)
        self.count = length // self.band
        self.around = (self.count - (-2 * reach // self.band)) * self.band  # C T
        # [T, T + 2 W] how far each column is from each word
        offset = torch.arange(self.band + 2 * reach)[None] - torch.arange(self.band)[:, None]
        offset = (offset - reach)[:, None]
        sides = torch.arange(reach + 1)[:, None]
        # [T (W + 1), T + 2 W] the columns that a window with so many words on a side leaves
        self.from_left = (offset >= -sides).float().flatten(0, 1)
        self.to_right = ((offset <= sides) & (offset != 0)).float().flatten(0, 1)

    def find_inside(self, left: Tensor, right: Tensor) -> Tensor:
        """float [B, T, T + 2 W], 1 where a column is in the window of a word.

        Args:
            left: int64 [L], (W + 1) times the index of a word in its band, and the words on its
                left that are in its window.
            right: the same for those on its right.
        """
        inside = self.from_left.index_select(0, left)
        inside.mul_(self.to_right.index_select(0, right))
        return inside.view(-1, self.band, inside.shape[1])

    def cut(self, vectors: Tensor) -> Tensor:
        """[B, T + 2 W, D] of [C T, D], without a copy."""
        columns, width = self.band + 2 * self.reach, vectors.shape[1]
        return vectors.as_strided((self.count, columns, width), (self.band * width, width, 1))

    def add_up(self, weights: Tensor, vectors: Tensor) -> Tensor:
        """[C, T, D], for each of the words around, the weighted sum of the vectors of its band.

        Args:
            weights: [B, T + 2 W, T].
            vectors: [B, T, D].
        """
        columns, bands = weights.shape[1], self.around // self.band
        parts = vectors.new_empty(bands, columns, vectors.shape[2])
        torch.bmm(weights, vectors, out=parts[: self.count])
        parts[self.count :].zero_()
        for step in range(1, bands - self.count + 1):
            reached = parts[:-step, step * self.band : (step + 1) * self.band]
            parts[step:, : reached.shape[1]].add_(reached)
        return parts[:, : self.band]
