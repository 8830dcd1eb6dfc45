"""A plain copy (Hill et al., 2016): the source is the text and so is the target; later noise
changes the source alone.
"""

from __future__ import annotations

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, denoising


@part_of("noise")
class Autoencode(Denoising):
    """`source = target = text`: an autoencoder, or first in a list the clean target of noise that
    keeps lengths.

    (Hill, Cho and Korhonen, 2016, arXiv:1602.03483: their sequential denoising autoencoder without
    noise.)
    """

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        return denoising(rows)
