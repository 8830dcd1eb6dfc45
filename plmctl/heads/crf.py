"""A linear-chain conditional random field over the tags of a sentence (Lafferty et al., 2001)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from plmctl.nn.starting import Starting

# replaces minus infinity, so that no difference of two is undefined
IMPOSSIBLE = -1e4
_LEAST = 1e-300  # least sum of exponentials in float64, before its logarithm is taken


class Transitions(NamedTuple):
    """The scores of transitions between tags in a sentence."""

    first: Tensor  # [K] of its first tag
    last: Tensor  # [K] of its last tag
    follow: Tensor  # [K, K] of the second tag behind the first


class Chains(NamedTuple):
    """The scores of words, and where they stand: `real` first, then padding."""

    scores: Tensor  # [B, L, K]
    real: Tensor  # [B, L] bool
    edges: Tensor  # [B, 2] bool: whether the first word begins a sentence, and the last ends it


class LinearChain(Starting):
    """Transitions of K tags, and what the first and the last tag of a sentence add (Lample et al.,
    2016, arXiv:1603.01360, sec. 2.2).

    They begin at 0, where the model is a softmax for each word. Differs: they are `gain` times the
    stored values, so under Adam, with the rate of fine-tuning, they learn as much faster than the
    encoder. The published models have one rate, 0.01, for all.
    """

    def __init__(self, *, num_classes: int, gain: float = 100.0) -> None:
        super().__init__()
        self.gain = gain
        self.first = nn.Parameter(torch.zeros(num_classes))
        self.last = nn.Parameter(torch.zeros(num_classes))
        self.follow = nn.Parameter(torch.zeros(num_classes, num_classes))

    def start(self, generator: Generator) -> None:
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self) -> Transitions:
        """The transitions in float64."""
        return Transitions(*(self.gain * x.double() for x in (self.first, self.last, self.follow)))


def measure_total(chains: Chains, transitions: Transitions) -> Tensor:
    """[B] `log sum_y exp s(x, y)` over all sequences y of tags, by the forward algorithm.

    `s(x, y) = sum_t scores[t, y_t] + sum_t follow[y_t, y_t+1] + first[y_1] + last[y_L]`. Each step
    is a product of matrices, so that memory grows with K, not with K squared.
    """
    first, last, follow = transitions
    scores, (begins, ends) = chains.scores.double(), chains.edges.double().unbind(1)
    alpha = scores[:, 0] + begins[:, None] * first  # [B, K]
    top = follow.detach().max()
    steps = (follow - top).exp()
    for place in range(1, scores.shape[1]):
        high = alpha.detach().amax(1, keepdim=True)
        reached = ((alpha - high).exp() @ steps).clamp(min=_LEAST).log() + high + top
        real = chains.real[:, place, None]
        alpha = torch.where(real, reached + scores[:, place], alpha)
    return (alpha + ends[:, None] * last).logsumexp(1)


def measure_path(chains: Chains, transitions: Transitions, tags: Tensor) -> Tensor:
    """[B] `s(x, y)` of the tags y [B, L], any number at padding."""
    first, last, follow = transitions
    real, (begins, ends) = chains.real.double(), chains.edges.double().unbind(1)
    tags = tags.masked_fill(~chains.real, 0)
    own = chains.scores.double().gather(2, tags[..., None])[..., 0]  # [B, L]
    final = tags.gather(1, (chains.real.sum(1, keepdim=True) - 1).clamp(min=0))[:, 0]
    between = follow[tags[:, :-1], tags[:, 1:]] * real[:, 1:]
    at_edges = begins * first[tags[:, 0]] + ends * last[final]
    return (own * real).sum(1) + between.sum(1) + at_edges


def find_best(chains: Chains, transitions: Transitions) -> Tensor:
    """[B, L] the tags with the largest `s(x, y)`, by the algorithm of Viterbi (1967); 0 at
    padding.
    """
    first, last, follow = transitions
    scores, (begins, ends) = chains.scores.double(), chains.edges.double().unbind(1)
    best = scores[:, 0] + begins[:, None] * first  # [B, K]
    came: list[Tensor] = []  # for every later word, [B, K]: the tag before, by its own
    own = torch.arange(scores.shape[2], device=scores.device)
    for place in range(1, scores.shape[1]):
        high, before = (best[:, :, None] + follow).max(1)
        real = chains.real[:, place, None]
        best = torch.where(real, high + scores[:, place], best)
        came.append(torch.where(real, before, own))
    path = [(best + ends[:, None] * last).argmax(1)]
    for before in reversed(came):
        path.append(before.gather(1, path[-1][:, None])[:, 0])
    return torch.stack(path[::-1], 1).masked_fill(~chains.real, 0)


def measure_marginals(chains: Chains, transitions: Transitions) -> Tensor:
    """[B, L, K] `p(y_t = k | x)`: the gradient of the log-partition with respect to the scores,
    which is what the forward-backward algorithm computes (Eisner, 2016).
    """
    with torch.enable_grad():
        scores = chains.scores.detach().double().requires_grad_()
        fixed = Transitions(*(each.detach() for each in transitions))
        total = measure_total(chains._replace(scores=scores), fixed).sum()
        (marginals,) = torch.autograd.grad(total, scores)
    return marginals
