"""Constrained beam search: texts that contain given phrases (Post and Vilar, 2018, dynamic beam
allocation, arXiv:1804.06609).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.terminal import WARN, counted, remark
from plmctl.generation.beam import Beam, Beams, BeamSettings, Continuations, take_best
from plmctl.generation.search import DecodingStep, Hypothesis, SearchFacts, Start


@part_of("search")
class Constrained(Beam):
    """A beam whose texts contain all `phrases`.

    The bank of a text is the number of tokens of phrases that it has met. Considered are the 2
    `width` best continuations of a row, the best one of every open text, and the next token of
    every phrase (sec. 3.2). From the fullest bank to the emptiest, again and again, the best
    continuation of a bank comes next; the first `width` go on (sec. 3.3). No text ends by itself
    before it has all phrases. A text with more of their tokens is better than one with fewer.

    Differs: Phrases may overlap. A text has met all of a phrase that it contains. Otherwise it has
    met the tokens of the phrase with which it ends.

    Args:
        phrases: Sequences of ids; a text stands for its ids, which `plmctl generate` finds.
        width: The open texts.
        beam: The settings of `Beam`.
    """

    def __init__(
        self, *, phrases: Sequence[str | Sequence[int]], width: int, **beam: Unpack[BeamSettings]
    ) -> None:
        super().__init__(width=width, **beam)
        if not phrases or not all(phrases):
            allowed = "texts or lists of ids, one for each phrase that a text must contain"
            fix = "search.phrases=[[17,4]]"
            raise ConfigError("search.phrases", [*phrases], allowed, fix=fix)
        self.phrases = [RequiredPhrase(() if isinstance(ids, str) else ids) for ids in phrases]
        self.spelled = [ids for ids in phrases if isinstance(ids, str)]
        self.whole = sum(len(phrase.ids) for phrase in self.phrases)

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        return replace(super().facts, phrases=[phrase.ids for phrase in self.phrases])

    def fits(self, size: int) -> None:
        """Raise ConfigError for a setting that a vocabulary of `size` tokens does not allow."""
        super().fits(size)
        if self.spelled:
            allowed = "lists of ids: texts are for plmctl generate alone"
            raise ConfigError("search.phrases", self.spelled, allowed)
        for value in (value for phrase in self.phrases for value in phrase.ids):
            if not 0 <= value < size:
                allowed = f"an id below {size}, the size of the vocabulary"
                raise ConfigError("search.phrases", value, allowed)

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        longest, limit = max(len(p.ids) for p in self.phrases), int(start.limits.max(initial=0))
        if longest > limit:
            allowed = f"phrases of at most {limit} tokens, the most that are written"
            fix = f"max_new={longest}, or shorter phrases"
            raise ConfigError("search.phrases", f"a phrase of {longest}", allowed, fix=fix)
        found = super().__call__(step, start)
        if lacking := sum(sum(self._read(own.ids)) < self.whole for row in found for own in row):
            what = f"{counted(lacking, 'text')} without all phrases: there was no room"
            remark(f"{what}\n  fix: a larger max_new", WARN)
        return found

    def order(self, text: Hypothesis) -> tuple[float, ...]:
        return (-sum(self._read(text.ids)), -text.score)

    def extend(
        self, beams: Beams, logp: Tensor, width: int, *, end: int | None, last: np.ndarray
    ) -> Continuations:
        (n, w), size = beams.totals.shape, logp.shape[1]
        states = [self._read(beams.text(number)) for number in range(n * w)]
        lacking = np.array([sum(state) < self.whole for state in states])
        if end is not None:
            if self.last == end:  # it is the only token at the limit
                lacking &= ~last.repeat(w)
            logp[torch.from_numpy(lacking).to(logp.device), end] = -torch.inf
        values = beams.add_totals(logp)
        _, best = take_best(values, min(2 * width, w * size))
        own = values.view(n, w, size).argmax(-1) + size * torch.arange(w, device=logp.device)
        index = [{*row} for row in torch.cat([best, own], 1).tolist()]
        for number, state in enumerate(states):
            row, parent = divmod(number, w)
            index[row] |= {parent * size + token for token in self._list_next(state)}
        columns = max(map(len, index))
        flat = np.array([sorted(row) + [-1] * (columns - len(row)) for row in index])
        scores = values.gather(1, torch.from_numpy(flat).clamp(min=0).to(logp.device))
        found = scores.double().cpu().numpy()
        found[flat < 0] = -np.inf
        each = zip(found, flat, _split(states, w), last.tolist(), strict=True)
        order = np.stack([self._take_turns(*row, size) for row in each])[:, : 2 * width]
        found, flat = (np.take_along_axis(values, order, 1) for values in (found, flat))
        return beams.choose(found, flat, size, end=end, last=last)

    def _take_turns(
        self, scores: np.ndarray, index: np.ndarray, states: Sequence[State], last: bool, size: int
    ) -> np.ndarray:
        """The order in which banks take turns, the fullest first, which is the only one at the
        limit; excluded continuations are last.
        """
        banks = np.array([sum(self._go_on(states[i // size], i % size)) for i in index.tolist()])
        turns = np.zeros(len(banks), np.int64)
        for bank in np.unique(banks):
            own = np.flatnonzero(banks == bank)
            turns[own[np.argsort(-scores[own], kind="stable")]] = np.arange(len(own))
        keys = (turns, -banks) if last else (-banks, turns)
        return np.lexsort((*keys, scores == -np.inf))

    def _read(self, ids: Sequence[int]) -> State:
        """The tokens that a text has met of each phrase."""
        state: State = (0,) * len(self.phrases)
        for token in ids:
            state = self._go_on(state, token)
        return state

    def _go_on(self, state: State, token: int) -> State:
        met = zip(self.phrases, state, strict=True)
        return tuple(phrase.go_on(length, token) for phrase, length in met)

    def _list_next(self, state: State) -> Iterator[int]:
        """The next token of each phrase that a text lacks."""
        for phrase, met in zip(self.phrases, state, strict=True):
            if met < len(phrase.ids):
                yield phrase.ids[met]


State = tuple[int, ...]  # the tokens that a text has met of each phrase


class RequiredPhrase:
    """A phrase that a text is to contain.

    `go_on`: Knuth, Morris and Pratt (1977), sec. 2.

    Args:
        ids: Its tokens.
    """

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)
        self.shorter = [0] * len(self.ids)  # tokens of the next shorter beginning that ends alike
        for number in range(1, len(self.ids)):
            self.shorter[number] = self._lengthen(self.shorter[number - 1], self.ids[number])

    def go_on(self, met: int, token: int) -> int:
        """The tokens that a text has met after one more: all of them once and for all, or as many
        as it ends with.
        """
        return met if met == len(self.ids) else self._lengthen(met, token)

    def _lengthen(self, met: int, token: int) -> int:
        while met and self.ids[met] != token:
            met = self.shorter[met - 1]
        return met + (self.ids[met] == token)


def _split(states: Sequence[State], width: int) -> Iterator[Sequence[State]]:
    """The states of each row."""
    for first in range(0, len(states), width):
        yield states[first : first + width]
