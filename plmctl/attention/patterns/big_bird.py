"""Blocks of tokens that see their neighbours, a few global blocks and a few random ones."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from plmctl.attention.patterns.base import Full, MaskMod, Pattern
from plmctl.core.batch import Seq
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole


@part_of("pattern")
class BigBird(Pattern):
    """A row is cut into blocks of `block` tokens. All tokens see the global blocks, and those see
    all; a block sees itself, its neighbours and `random` others (Zaheer et al., 2020,
    arXiv:2007.14062, sec. 2 and appendix D: global blocks that are part of the text, "ITC").

    Args:
        block: Published: 64.
        window: Blocks around each one and itself, an odd number; published: 3.
        first: Global blocks at the beginning of a row; published: 1.
        last: Global blocks at its end, at that of the longest row of a batch; published: 1.
        random: Random blocks for each block, others in each layer; published: 3. Fewer where no
            more are left.
        seed: The seed of the random blocks. The blocks depend only on it, on the layer and on the
            number of blocks of a row. So training, evaluation and a resumed run see the same ones.
        num_layers: Layers of the stack.

    The last block may be shorter. Differs: the heads of a layer share their random blocks, which
    depend on neither the row nor the step.
    """

    def __init__(
        self,
        *,
        block: Count,
        window: Count,
        first: Whole,
        last: Whole,
        random: Whole,
        seed: Whole,
        num_layers: Count,
    ) -> None:
        if window % 2 == 0:
            allowed = "an odd number of blocks: the own one, and as many on either side"
            raise ConfigError("window", window, allowed, fix=f"window={window + 1}")
        self.block, self.window, self.first, self.last = block, window, first, last
        self.random, self.seed, self.layers = random, seed, num_layers
        self.layer: int | None = None  # None: any of them

    def at_layer(self, layer: int) -> Pattern:
        if self.layer is not None:
            return self
        pattern = BigBird(
            block=self.block,
            window=self.window,
            first=self.first,
            last=self.last,
            random=self.random,
            seed=self.seed,
            num_layers=1,
        )
        pattern.layer = layer
        return pattern

    def simplify(self, seq: Seq) -> Pattern:
        layers = [self._see(seq, layer) for layer in self._layers]
        return Full() if all(bool(seen.all()) for seen in layers) else self

    def blocks(self, seq: Seq, size: int) -> Tensor:
        seen, length = self._see(seq, *self._layers), seq.ids.shape[1]
        # the blocks that begin or end in each block of `size` tokens, and those in between
        first = torch.arange(0, length, size, device=seq.ids.device)
        low, high = first // self.block, (first + size - 1).clamp(max=length - 1) // self.block
        number = torch.arange(len(seen), device=seq.ids.device)
        inside = ((low[:, None] <= number) & (number <= high[:, None])).float()  # [N, blocks]
        return (inside @ seen.float() @ inside.T > 0)[None]

    def predicate(self, seq: Seq) -> MaskMod:
        seen = self._see(seq, *self._layers)
        return lambda b, h, q, k: seen[q // self.block, k // self.block]

    @property
    def _layers(self) -> tuple[int, ...]:
        return tuple(range(self.layers)) if self.layer is None else (self.layer,)

    def _see(self, seq: Seq, *layers: int) -> Tensor:
        """bool [N, N]: whether a block sees another one, in any of the layers."""
        count = -(-seq.ids.shape[1] // self.block)
        layout = (count, self.window // 2, self.first, self.last, self.random)
        return torch.from_numpy(_draw_blocks(*layout, self.seed, layers)).to(seq.ids.device)


@lru_cache(maxsize=256)
def _draw_blocks(
    count: int, beside: int, first: int, last: int, random: int, seed: int, layers: tuple[int, ...]
) -> np.ndarray:
    """bool [count, count]: what each block sees in any of the layers."""
    number = np.arange(count)
    shared = (number < first) | (number >= count - last)
    near = np.abs(number[:, None] - number) <= beside
    certain = near | shared[:, None] | shared
    seen = certain.copy()
    for layer in layers if random else ():
        words = Draws(seed, 0).child(layer).words(number, "random blocks", count)
        words[certain] = np.iinfo(words.dtype).max  # chosen last
        chosen = np.zeros_like(seen)
        np.put_along_axis(chosen, words.argsort(1, kind="stable")[:, :random], True, 1)
        seen |= chosen & ~certain
    return seen
