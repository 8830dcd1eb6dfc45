"""Diverse beam search: groups of a beam that avoid each other's tokens (Vijayakumar et al., 2016,
arXiv:1610.02424, sec. 3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.generation.beam import Beam, Beams, BeamSettings, Continuations
from plmctl.generation.search import DecodingStep, Hypothesis, SearchFacts, Start


@part_of("search")
class Diverse(Beam):
    """`groups` beams of `width / groups` texts, which choose their tokens one after the other.

    They rank tokens by `log p(v | y_<t) - diversity n(v)` (Hamming diversity, sec. 4.1). n(v) is
    the number of texts of earlier groups that go on with v.

    Differs: The penalty stays in the score of a text, as in the released code and in
    `transformers`; in eq. 4 later steps forget it.

    Args:
        width: The open texts of all groups.
        groups: The number of groups.
        diversity: The penalty of a token for each text of an earlier group.
        beam: The settings of `Beam`; the texts of a row are the best of all groups.
    """

    def __init__(
        self, *, width: int, groups: int, diversity: float, **beam: Unpack[BeamSettings]
    ) -> None:
        if groups < 1 or width % groups:
            allowed = f"a divisor of {width}, the width of the beam"
            raise ConfigError("search.groups", groups, allowed, fix=f"search.groups={width}")
        if diversity < 0:
            raise ConfigError("search.diversity", diversity, "0 or more (0: equal groups)")
        super().__init__(width=width, **beam)
        self.groups, self.diversity = groups, diversity

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        return replace(super().facts, groups=self.groups, diversity=self.diversity)

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        self.fits(start.logits.shape[1])
        rows = np.arange(len(start.limits)).repeat(self.groups)
        index = torch.from_numpy(rows).to(start.logits.device)
        step.select(index)
        read, limits = start.read[rows], start.limits[rows]
        start = replace(start, logits=start.logits[index], limits=limits, history=read)
        pools = self.write(step, start, self.width // self.groups)
        found = []
        for first in range(0, len(pools), self.groups):
            texts = [text for pool in pools[first : first + self.groups] for text in pool]
            found.append(sorted(texts, key=lambda text: -text.score)[: self.count])
        return found

    def extend(
        self, beams: Beams, logp: Tensor, width: int, *, end: int | None, last: np.ndarray
    ) -> Continuations:
        (n, w), size = beams.totals.shape, logp.shape[1]
        values, (prompts, groups) = logp.view(n, w, size), np.divmod(beams.rows, self.groups)
        counts = torch.zeros(int(prompts.max()) + 1, size, dtype=logp.dtype, device=logp.device)
        scores = np.full((n, min(2 * width, w * size)), -np.inf)
        index = np.zeros(scores.shape, np.int64)
        for group in range(self.groups):
            own = np.flatnonzero(groups == group)
            if not len(own):
                continue
            at = torch.from_numpy(prompts[own]).to(logp.device)
            lowered = values[torch.from_numpy(own).to(logp.device)]
            lowered -= self.diversity * counts[at][:, None]
            how: Any = {"end": end, "last": last[own]}
            found = super().extend(beams.take(own), lowered.flatten(0, 1), width, **how)
            scores[own], index[own] = found.scores, found.parents * size + found.tokens
            goes_on = np.argsort(found.ended, axis=1, kind="stable")[:, :width]
            tokens = np.take_along_axis(found.tokens, goes_on, 1)
            chosen = torch.from_numpy(tokens).to(logp.device)
            ones = torch.ones_like(chosen, dtype=logp.dtype)
            counts.index_put_((at[:, None].expand_as(chosen), chosen), ones, accumulate=True)
        return beams.choose(scores, index, size, end=end, last=last)
