"""Sentences of tagged words as chains of a CRF, in training and in prediction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from plmctl.core.batch import IGNORE, Batch
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.crf import (
    IMPOSSIBLE,
    Chains,
    LinearChain,
    Transitions,
    find_best,
    measure_marginals,
    measure_path,
    measure_total,
)
from plmctl.tasks.readers.schemes import (
    Spelling,
    may_begin,
    may_end,
    may_follow,
    spelling_of,
    tells_entities,
)
from plmctl.tasks.record import Examples

CrfKind = Literal["free", "legal"]
_SCORES = 1 << 22  # pairs of tags that are compared at once


class TagChain:
    """`loss = log sum_y exp s(x, y) - s(x, gold)`, summed over the rows of a batch (Lample et al.,
    2016, arXiv:1603.01360, eq. 1), and averaged over words.

    kind: "free": every tag may follow every other; "legal": what the scheme of the tags does not
    allow is impossible. Differs: a sentence that is longer than a row is trained in several chains.
    Their inner ends have no score of a first or a last tag; the prediction is one chain.
    """

    def __init__(self, kind: CrfKind, names: Sequence[str], scheme: Spelling | None) -> None:
        if kind == "legal" and not tells_entities(names):
            allowed = "free or null: these tags name no entities, so that none is illegal"
            raise ConfigError("task.crf", kind, allowed, fix="task.crf=free")
        self.kind, self.names = kind, list(names)
        self.scheme = scheme or spelling_of(names)

    def check(self, examples: Examples) -> None:
        """DataError for tags that `legal` makes impossible."""
        for example in examples if self.kind == "legal" else ():
            tags = list(example.label)
            wrong = self._find_illegal(tags)
            if wrong is not None:
                raise DataError(
                    f"'{tags[wrong]}' of word {wrong + 1} cannot stand there in {self.scheme}, and"
                    " task.crf=legal gives it the probability 0",
                    file=example.place,
                    fix="task.crf=free, or correct the tags",
                )

    def _find_illegal(self, tags: Sequence[str]) -> int | None:
        """The number of the first word whose tag the scheme does not allow; None: all are well."""
        for word, tag in enumerate(tags):
            before = may_follow(tags[word - 1], tag, self.scheme) if word else True
            begin = bool(word) or may_begin(tag, self.scheme)
            if not before or not begin:
                return word
        return len(tags) - 1 if tags and not may_end(tags[-1], self.scheme) else None

    def _fit(self, chain: LinearChain) -> Transitions:
        """The transitions, of which some may be impossible."""
        learned = chain()
        if self.kind == "free":
            return learned
        masks = [mask.to(learned.first.device) for mask in self._allowed]
        return Transitions(
            *(own.masked_fill(~mask, IMPOSSIBLE) for own, mask in zip(learned, masks, strict=True))
        )

    @cached_property
    def _allowed(self) -> list[Tensor]:
        """Whether the scheme allows each first tag, each last tag, and each tag behind each
        other.
        """
        rules = (
            [may_begin(tag, self.scheme) for tag in self.names],
            [may_end(tag, self.scheme) for tag in self.names],
            [[may_follow(a, b, self.scheme) for b in self.names] for a in self.names],
        )
        return [torch.tensor(rule) for rule in rules]

    def loss(self, logits: Tensor, batch: Batch, chain: LinearChain) -> tuple[Tensor, Tensor]:
        """logits [B, T, K] -> (summed loss, number of words whose own logit is the largest at the
        right tag).
        """
        target = batch.require("targets.tag")
        known = target.ids != IGNORE
        index, tags = target.index[known], target.ids[known]  # [P] in the order of rows and words
        scores = logits.flatten(0, 1)[index]
        if not len(tags):
            return scores.sum(), target.ids.new_zeros(())
        row = index // logits.shape[1]
        count = torch.bincount(row, minlength=len(logits))
        place = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
        shape = (len(logits), int(count.max()))
        real = torch.zeros(shape, dtype=torch.bool, device=row.device).index_put(
            (row, place), torch.ones_like(row, dtype=torch.bool)
        )
        spread = scores.new_zeros((*shape, scores.shape[1])).index_put((row, place), scores)
        labels = tags.new_zeros(shape).index_put((row, place), tags)
        chains = Chains(spread, real, batch.require("values.edges").bool())
        transitions = self._fit(chain)
        loss = measure_total(chains, transitions) - measure_path(chains, transitions, labels)
        return loss[count > 0].sum(), (scores.argmax(-1) == tags).sum()

    def decode(self, scores: Tensor, sizes: Sequence[int], chain: LinearChain) -> list[list[int]]:
        """scores [words, K] of sentences of these sizes -> the best tags of each."""
        transitions, found = self._detached(chain), []
        for chains in _chunks(scores, sizes):
            best = find_best(chains, transitions)
            found += [own[real].tolist() for own, real in zip(best, chains.real, strict=True)]
        return found

    def weigh(self, scores: Tensor, sizes: Sequence[int], chain: LinearChain) -> list[Tensor]:
        """The same -> [words, K] the probabilities of each tag, of each sentence."""
        transitions, found = self._detached(chain), []
        for chains in _chunks(scores, sizes):
            own = measure_marginals(chains, transitions)
            found += [each[real] for each, real in zip(own, chains.real, strict=True)]
        return found

    def _detached(self, chain: LinearChain) -> Transitions:
        return Transitions(*(each.detach().cpu() for each in self._fit(chain)))


def _chunks(scores: Tensor, sizes: Sequence[int]) -> Iterator[Chains]:
    """Whole sentences side by side, in their order, as many as memory allows."""
    own = list(scores.split(list(sizes)))
    most = max(1, _SCORES // scores.shape[1] ** 2)
    for start in range(0, len(own), most):
        part = own[start : start + most]
        padded = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        lengths = torch.tensor([len(each) for each in part])
        real = torch.arange(padded.shape[1]) < lengths[:, None]
        yield Chains(padded, real, torch.ones(len(part), 2, dtype=torch.bool))


def find_chain(head: object) -> LinearChain:
    """The chain of a head; ConfigError for one without."""
    chain = getattr(head, "chain", None)
    if not isinstance(chain, LinearChain):
        allowed = "null: the head of this model has no transitions"
        raise ConfigError("task.crf", "", allowed, fix="task.crf=null, or fine-tune it anew")
    return chain
