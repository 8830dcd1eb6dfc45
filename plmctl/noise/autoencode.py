"""A plain copy (Hill et al., 2016): source and target are the text; later noise changes only the
source.
"""

from __future__ import annotations

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, split_source


@part_of("noise")
class Autoencode(Denoising):
    """`source = target = text`: an autoencoder, or, first in a list, the clean target of noise that
    keeps lengths.

    (Hill, Cho and Korhonen, 2016, arXiv:1602.03483: their sequential denoising autoencoder without
    noise.)
    """

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        return split_source(rows)
