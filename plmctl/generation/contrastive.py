"""Contrastive search: likely tokens whose state is unlike those before (Su et al., 2022,
arXiv:2202.06417).
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import part_of
from plmctl.generation.search import (
    DecodingStep,
    Hypothesis,
    OpenTexts,
    Ruled,
    RuleSettings,
    SearchFacts,
    ShowingStep,
    Start,
    find_logp,
)


@part_of("search")
class Contrastive(Ruled):
    """`y_t = argmax_v (1 - alpha) p(v | y_<t) - alpha max_j cos(h_v, h_j)` over the `top_k`
    likeliest tokens v (eq. 5).

    h_v is the last hidden state of v, and h_j are those of all tokens before, with the prompt of a
    decoder; of an encoder-decoder they are those of the decoder alone. The score is `sum_t log
    p(y_t | y_<t)`. A step reads `top_k` tokens of every text.

    Args:
        top_k: The likeliest tokens that are compared.
        alpha: The weight of likeness, 0 to 1; 0: greedy search.
        rules: The settings of `Ruled`.
    """

    count = 1

    def __init__(self, *, top_k: int, alpha: float, **rules: Unpack[RuleSettings]) -> None:
        super().__init__(**rules)
        if top_k < 1:
            raise ConfigError("search.top_k", top_k, "1 or more")
        if not 0 <= alpha <= 1:
            raise ConfigError("search.alpha", alpha, "0 to 1, the weight of likeness")
        self.top_k, self.alpha = top_k, alpha

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        return SearchFacts(self, top_k=self.top_k, contrast=self.alpha)

    def fits(self, size: int) -> None:
        """Raise ConfigError for a setting that a vocabulary of `size` tokens does not allow."""
        super().fits(size)
        if self.top_k > size:
            allowed = f"at most {size}, the size of the vocabulary"
            raise ConfigError("search.top_k", self.top_k, allowed, fix=f"search.top_k={size}")

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        self.fits(start.logits.shape[1])
        if not isinstance(step, ShowingStep):
            raise UsageError("contrastive search has no draft\n  fix: leave draft out")
        rows, ids, logits = np.arange(len(start.limits)), start.read, start.logits
        scores = np.zeros(len(rows))
        before, real = normalize(step.states), step.real
        texts = [Hypothesis([], 0.0, False) for _ in rows]
        for written in range(1, int(start.limits.max(initial=0)) + 1):
            limits = start.limits[rows]
            logp, p = self._weigh(logits, ids, written - 1, limits, start)
            shares, tokens = p.topk(self.top_k)
            every = torch.arange(len(rows), device=p.device).repeat_interleave(self.top_k)
            step.select(every)
            ahead = step.advance(tokens.flatten())
            states = normalize(step.states[:, -1:])
            chosen = self._choose(shares, states, before, real)
            index = chosen + self.top_k * torch.arange(len(rows), device=p.device)
            token = tokens.gather(1, chosen[:, None])
            ids = np.concatenate([ids, token.cpu().numpy()], 1)
            scores = scores + logp.gather(1, token)[:, 0].double().cpu().numpy()
            if start.watch is not None:
                start.watch(ids[:, -1].tolist())
            ended = ids[:, -1] == (-1 if start.end is None else start.end)
            for n in np.flatnonzero(ended | (written >= limits)):
                text = ids[n, ids.shape[1] - written : ids.shape[1] - ended[n]].tolist()
                texts[rows[n]] = Hypothesis(text, float(scores[n]), bool(ended[n]))
            going = np.flatnonzero(~ended & (written < limits))
            if not len(going):
                break
            rows, ids, scores = rows[going], ids[going], scores[going]
            kept = torch.from_numpy(going).to(p.device)
            index = index[kept]
            step.select(index)
            logits, before = ahead[index], torch.cat([before[kept], states[index]], 1)
            real = torch.cat([real[kept], torch.ones_like(real[kept, :1])], 1)
        return [[text] for text in texts]

    def _weigh(
        self, logits: Tensor, ids: np.ndarray, written: int, limits: np.ndarray, start: Start
    ) -> tuple[Tensor, Tensor]:
        """(log-probabilities by the model, probabilities after the rules), [N, V] each."""
        logp = find_logp(logits, start.size)
        scores = self.weigh(logits, logp, OpenTexts(ids, written, limits, start.end))
        return logp, torch.softmax(scores, -1)

    def _choose(self, shares: Tensor, states: Tensor, before: Tensor, real: Tensor) -> Tensor:
        """[N] the number of the best candidate.

        Args:
            shares: [N, K] the probabilities of the candidates.
            states: [N K, 1, W] their states, of length 1.
            before: [N, T, W] the states before.
            real: [N, T] which of those are no padding.
        """
        likeness = states.view(*shares.shape, -1) @ before.transpose(1, 2)  # [N, K, T]
        most = likeness.masked_fill(~real[:, None], -torch.inf).amax(-1)
        return ((1 - self.alpha) * shares - self.alpha * most).argmax(-1)


def normalize(states: Tensor) -> Tensor:
    """Vectors of length 1."""
    states = states.to(torch.promote_types(states.dtype, torch.float32))
    return torch.nn.functional.normalize(states, dim=-1)
