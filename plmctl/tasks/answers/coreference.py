"""Candidate spans of mentions in a document, the best of them, their antecedents and the loss (Lee
et al., 2017, arXiv:1707.07045, sec. 3 to 5; coarse to fine: Lee et al., 2018, arXiv:1804.05392).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plmctl.heads.span_rank import SpanRank


@dataclass(frozen=True)
class DocumentSpans:
    """m spans of one document, in the order of the text.

    Args:
        cell: [m, 3] row, first word in the row, words - 1.
        tokens: [m, 2] first and last token in the row.
        words: [m, 2] first and last word in the document.
        speaker: [m] of the first word; 0: not known.
        cluster: [m] number from 1 of the gold cluster, 0 for none.
    """

    cell: Tensor
    tokens: Tensor
    words: Tensor
    speaker: Tensor
    cluster: Tensor

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, index: Tensor) -> DocumentSpans:
        """Some of them."""
        return DocumentSpans(
            self.cell[index],
            self.tokens[index],
            self.words[index],
            self.speaker[index],
            self.cluster[index],
        )


@dataclass(frozen=True)
class AntecedentRanking:
    """Kept spans, and the scores of their antecedents.

    Args:
        spans: k of them.
        antecedents: [k, A] numbers of spans.
        scores: [k, 1 + A] s(i, j); the first column, of no antecedent, is 0, and what is no
            antecedent has the lowest number.
    """

    spans: DocumentSpans
    antecedents: Tensor
    scores: Tensor


def find_spans(
    words: Tensor, speakers: Tensor, clusters: Tensor | None, longest: int
) -> DocumentSpans:
    """All spans of at most `longest` words of one sentence.

    Args:
        words: [R, M, 4] for the rows of one document: first and last token of each word in its row,
            its sentence, its number. It is -1 behind the last word.
        speakers: [R, M].
        clusters: [R, M, longest] the gold cluster of each cell, 0 for none; None: not known.
    """
    width = torch.arange(longest, device=words.device)
    first = torch.arange(words.shape[1], device=words.device)
    end = first[:, None] + width  # [M, longest]
    known = words[:, end.clamp(max=words.shape[1] - 1)]  # [R, M, longest, 4]
    inside = (end < words.shape[1]) & (known[..., 0] >= 0)
    inside &= known[..., 2] == words[:, :, None, 2]  # and the first is a word, as 2 is -1 behind
    cell = inside.nonzero()  # in the order of row, first word, length
    row, start, more = cell.unbind(-1)
    begin, stop = words[row, start], words[row, start + more]
    return DocumentSpans(
        cell,
        torch.stack([begin[:, 0], stop[:, 1]], -1),
        torch.stack([begin[:, 3], stop[:, 3]], -1),
        speakers[row, start],
        torch.zeros_like(row) if clusters is None else clusters[row, start, more],
    )


def choose_spans(words: Sequence[Sequence[int]], order: Sequence[int], most: int) -> list[int]:
    """At most `most` of the spans [first, last] `words`, taken in `order`, without spans that cross
    an earlier one. They are in the order of the text (Lee et al., 2017, sec. 5).
    """
    last_from: dict[int, int] = {}  # the largest last word of the spans that begin here
    first_to: dict[int, int] = {}  # the smallest first word of the spans that end here
    taken: list[int] = []
    for number in order:
        if len(taken) == most:
            break
        first, last = words[number]
        crossed = any(last_from.get(at, -1) > last for at in range(first + 1, last + 1)) or any(
            first_to.get(at, first) < first for at in range(first, last)
        )
        if not crossed:
            taken.append(number)
            last_from[first] = max(last, last_from.get(first, -1))
            first_to[last] = min(first, first_to.get(last, first))
    return sorted(taken, key=lambda number: (words[number][0], words[number][1]))


def rank(
    head: SpanRank, states: Tensor, spans: DocumentSpans, *, kept: int, most_antecedents: int
) -> AntecedentRanking:
    """The ranking of the `kept` best spans: `s(i, j) = s_m(i) + s_m(j) + s_c(i, j) + s_a(i, j)` for
    the antecedents j of i that are best without s_a (Lee et al., 2018, sec. 4).

    Args:
        states: [R, T, W] of the rows of the document.
    """
    row, words = spans.cell[:, 0], spans.cell[:, 2] + 1
    vectors = head.represent(states, row, spans.tokens[:, 0], spans.tokens[:, 1], words)
    scores = head.score_mentions(vectors, words)  # [m]
    order = scores.argsort(descending=True, stable=True).tolist()
    index = torch.tensor(
        choose_spans(spans.words.tolist(), order, kept), dtype=torch.int64, device=states.device
    )
    own, vectors, scores = spans.take(index), vectors[index], scores[index]
    rough = scores[:, None] + scores + head.score_roughly(vectors)  # [k, k]
    number = torch.arange(len(own), device=states.device)
    before = number < number[:, None]
    lowest = torch.finfo(rough.dtype).min
    some = min(most_antecedents, len(own))
    best = rough.masked_fill(~before, lowest).topk(some, dim=-1).indices.sort(-1).values
    is_before = before.gather(1, best)
    fine = head.score_pairs(
        vectors,
        vectors[best],
        _compare(own.speaker[:, None], own.speaker[best]),
        (number[:, None] - best).clamp(min=0),
        (own.cell[:, :1] - own.cell[:, 0][best]).clamp(min=0),
    )
    total = (rough.gather(1, best) + fine).masked_fill(~is_before, lowest)
    return AntecedentRanking(own, best, torch.cat([total.new_zeros(len(own), 1), total], -1))


def _compare(one: Tensor, other: Tensor) -> Tensor:
    """0 where a speaker is not known, 1 for others, 2 for the same."""
    return torch.where((one > 0) & (other > 0), 1 + (one == other).long(), 0)


def measure(ranking: AntecedentRanking) -> Tensor:
    """`- sum_i log sum_(j in GOLD(i)) P(j)`, P the softmax of s(i, .). GOLD(i) is the set of
    antecedents in the cluster of i, or no antecedent if this set is empty (Lee et al., 2017, sec.
    4).
    """
    cluster = ranking.spans.cluster
    lowest = torch.finfo(ranking.scores.dtype).min
    same = (cluster[:, None] > 0) & (cluster[:, None] == cluster[ranking.antecedents])
    same &= ranking.scores[:, 1:] > lowest
    gold = torch.cat([~same.any(-1, keepdim=True), same], -1)
    right = ranking.scores.masked_fill(~gold, lowest).logsumexp(-1)
    return (ranking.scores.logsumexp(-1) - right).sum()


def link(ranking: AntecedentRanking) -> list[tuple[int, int]]:
    """(span, antecedent) of the kept spans whose best choice is one."""
    choice = ranking.scores.argmax(-1)
    with_one = (choice > 0).nonzero()[:, 0]
    chosen = ranking.antecedents[with_one, choice[with_one] - 1]
    return list(zip(with_one.tolist(), chosen.tolist(), strict=True))


def join_links(links: Sequence[tuple[tuple[int, int], tuple[int, int]]]) -> list[list[list[int]]]:
    """The clusters [[first, last], ...] that links between mentions make, in the order of the
    text.
    """
    owner: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for one, other in links:
        both = owner.get(one, {one}) | owner.get(other, {other})
        owner |= dict.fromkeys(both, both)
    clusters = {id(own): sorted(own) for own in owner.values()}
    return [[list(mention) for mention in own] for own in sorted(clusters.values())]
