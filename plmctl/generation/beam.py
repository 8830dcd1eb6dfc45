"""Beam search: the likeliest of several texts that are continued in parallel (Sutskever et al.,
2014, arXiv:1409.3215, sec. 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Required, Unpack

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.generation.search import (
    DecodingStep,
    Hypothesis,
    OpenTexts,
    Ruled,
    RuleSettings,
    SearchFacts,
    Start,
    find_logp,
)

_CHUNK = 64  # values that `take_best` takes the maximum of first


class BeamSettings(RuleSettings):
    """The settings of `Beam` but its width, which searches pass on."""

    alpha: Required[float]
    penalty: Required[Literal["length", "gnmt"]]
    early: Required[Literal["never", True, False]]
    count: int


@part_of("search")
class Beam(Ruled):
    """`argmax_y log p(y) / penalty(|y|)` among the continuations of the `width` best beginnings at
    every length.

    `penalty`: `length`, |y|^alpha (fairseq, `transformers`), or `gnmt`, ((5 + |y|) / 6)^alpha (Wu
    et al., 2016, arXiv:1609.08144, eq. 14); |y| counts the end token, not the prompt. The 2 `width`
    best continuations are considered: an ended one becomes a finished text if it is among the
    `width` best, and the others continue. `early` decides when a row is done: `true`, with `width`
    finished texts; `false`, when the best open text would not be better than the worst of those if
    it ended now; `never`, if it would not be at any length. (`transformers`' rules,
    generation/utils.py; fairseq's is `true`.) `count` texts, best first.

    One row with width 2, log-probabilities without a penalty; </s> ends a text:

        open      best 4 continuations                       then
        ""        a -0.5, b -1.0, c -2.0, </s> -4.0          open: a, b
        a, b      ab -0.9, b</s> -1.1, aa -1.3, ba -1.6      finished: b</s>; open: ab, aa
        ab, aa    ab</s> -1.0, aa</s> -1.5, aba -2.0, ...    the best two are ab</s>, b</s>
    """

    def __init__(
        self,
        *,
        width: int,
        alpha: float,
        penalty: Literal["length", "gnmt"],
        early: Literal["never", True, False],
        count: int = 1,
        **rules: Unpack[RuleSettings],
    ) -> None:
        super().__init__(**rules)
        if width < 1:
            raise ConfigError("search.width", width, "1 or more")
        if not 1 <= count <= width:
            raise ConfigError(
                "search.count",
                count,
                f"1 to {width}, the width of the beam",
                fix=f"width={count}" if count > 0 else "count=1",
            )
        if penalty not in ("length", "gnmt"):
            raise ConfigError("search.penalty", penalty, "length or gnmt")
        if early not in (True, False, "never"):
            raise ConfigError("search.early", early, "true, false or never")
        self.width = width
        self.alpha = alpha
        self.penalty = penalty
        self.early = early
        self.count = count

    @property
    def facts(self) -> SearchFacts:
        """Its settings, for a library that searches itself."""
        how: Any = {"count": self.count, "alpha": self.alpha, "penalty": self.penalty}
        return SearchFacts(self, self.width, early=self.early, **how)

    def divisor(self, length: int) -> float:
        """The divisor of the log-probability of a text of so many tokens."""
        base = length if self.penalty == "length" else (5 + length) / 6
        return float(base**self.alpha)

    def fits(self, size: int) -> None:
        """Raise ConfigError for a setting that a vocabulary of `size` tokens does not allow."""
        if self.width > size:
            allowed = f"at most {size}, the size of the vocabulary"
            raise ConfigError("search.width", self.width, allowed, fix=f"search.width={size}")
        super().fits(size)

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        self.fits(start.logits.shape[1])
        return [texts[: self.count] for texts in self.write(step, start, self.width)]

    def write(self, step: DecodingStep, start: Start, width: int) -> list[list[Hypothesis]]:
        """The texts of each row by a beam of `width`, best first."""
        pools = [_Pool(width, self.order) for _ in start.limits]
        beams = Beams(np.arange(len(pools)), start.read, np.zeros((len(pools), 1)))
        logits = start.logits
        for written in range(1, int(start.limits.max(initial=0)) + 1):
            limits = start.limits[beams.rows]
            logp = self._weigh(find_logp(logits, start.size), beams, limits, start.end)
            last = written >= limits
            continuations = self.extend(beams, logp, width, end=start.end, last=last)
            self._finish(pools, beams, continuations, width)
            shape = beams.totals.shape
            beams, source = beams.next(
                continuations, width, partial(self._open, pools, start.limits, written)
            )
            if not len(source):
                break
            same = beams.totals.shape == shape
            if not same or (source != np.arange(len(source))).any():
                step.select(torch.from_numpy(source).to(logp.device), same_prompt=same)
            logits = step.advance(torch.from_numpy(beams.ids[:, -1].copy()).to(logp.device))
        return [pool.texts for pool in pools]

    def order(self, text: Hypothesis) -> tuple[float, ...]:
        """The least one is the best text."""
        return (-text.score,)

    def extend(
        self, beams: Beams, logp: Tensor, width: int, *, end: int | None, last: np.ndarray
    ) -> Continuations:
        """The continuations of open texts that are considered, best first.

        Args:
            beams: The open texts, w of each of n rows.
            logp: [n w, V] the log-probabilities of their next tokens, changed in place.
            width: The texts of a row that go on.
            end: The token that ends a text.
            last: [n] whether the next token is the last of its limit.
        """
        return beams.extend(logp, 2 * width, end, last)

    def _weigh(self, logp: Tensor, beams: Beams, limits: np.ndarray, end: int | None) -> Tensor:
        """`logp [n w, V]` after the rules, changed in place; `limits [n]`."""
        limit = limits.repeat(beams.totals.shape[1])
        logp = self.exclude(logp, OpenTexts(beams.ids, beams.written, limit, end))
        return logp if self.repetition_penalty == 1 else self.penalise(logp, beams.ids)

    def _finish(
        self, pools: list[_Pool], beams: Beams, continuations: Continuations, width: int
    ) -> None:
        """Put the texts that end now into the pools of their rows."""
        scores, divisor = continuations.scores, self.divisor(beams.written + 1)
        closing = continuations.closes[:, :width] & (scores[:, :width] > -np.inf)
        for n, column in zip(*np.nonzero(closing), strict=True):
            ended = bool(continuations.ended[n, column])
            text = beams.text(int(continuations.source[n, column]))
            text = text if ended else [*text, int(continuations.tokens[n, column])]
            pools[beams.rows[n]].add(Hypothesis(text, float(scores[n, column] / divisor), ended))
        # no token is left: the best open text is the result
        for n in np.flatnonzero(scores[:, 0] == -np.inf):
            total, divisor = float(beams.totals[n].max()), self.divisor(max(1, beams.written))
            text = beams.text(n * beams.totals.shape[1] + int(beams.totals[n].argmax()))
            pools[beams.rows[n]].add(Hypothesis(text, total / divisor, False))

    def _open(
        self, pools: list[_Pool], limits: np.ndarray, written: int, row: int, best: float
    ) -> bool:
        """Whether a row continues whose best open text, of so many tokens, has the log-probability
        `best`.
        """
        pool, limit = pools[row], int(limits[row])
        if best == -np.inf or written >= limit:
            return False
        if len(pool.texts) < pool.width:
            return True
        longest = limit if self.early == "never" and self.alpha > 0 else written
        return self.early is not True and best / self.divisor(longest) > pool.texts[-1].score


class _Pool:
    """The best finished texts of a row."""

    def __init__(self, width: int, order: Callable[[Hypothesis], tuple[float, ...]]) -> None:
        self.width, self.order, self.texts = width, order, list[Hypothesis]()

    def add(self, text: Hypothesis) -> None:
        """Add a finished text; only the best `width` are kept."""
        # a stable sort: of equal scores the older text is first
        self.texts = sorted([*self.texts, text], key=self.order)[: self.width]


@dataclass(frozen=True)
class Continuations:
    """The best continuations of n rows, best first; [n, C] each."""

    scores: np.ndarray
    parents: np.ndarray  # number of the open text that is continued, within its row
    source: np.ndarray  # the same, within the batch
    tokens: np.ndarray
    ended: np.ndarray  # by the end token
    closes: np.ndarray  # by that, or at the limit of its length


@dataclass(frozen=True)
class Beams:
    """The open texts of the rows that are not done: w of each row, next to each other."""

    rows: np.ndarray  # [n]
    ids: np.ndarray  # [n w, T]
    totals: np.ndarray  # [n, w] log-probabilities; -inf: there is no such text
    written: int = 0  # the last tokens of `ids` that are not of the prompt

    def text(self, number: int) -> list[int]:
        """The tokens of an open text without its prompt."""
        tokens: list[int] = self.ids[number, self.ids.shape[1] - self.written :].tolist()
        return tokens

    def take(self, rows: np.ndarray) -> Beams:
        """Some of the rows."""
        w = self.totals.shape[1]
        ids = self.ids[(w * rows[:, None] + np.arange(w)).ravel()]
        return replace(self, rows=self.rows[rows], ids=ids, totals=self.totals[rows])

    def extend(self, logp: Tensor, count: int, end: int | None, last: np.ndarray) -> Continuations:
        """The best `count` continuations of each row, `logp [n w, V]` (changed in place)."""
        values = self.add_totals(logp)
        best, index = take_best(values, min(count, values.shape[1]))
        return self.choose(
            best.double().cpu().numpy(), index.cpu().numpy(), logp.shape[1], end=end, last=last
        )

    def add_totals(self, logp: Tensor) -> Tensor:
        """[n, w V] the log-probabilities of all continuations, by `logp [n w, V]`, which is changed
        in place.
        """
        totals = torch.from_numpy(self.totals).to(logp).view(-1, 1)
        return logp.add_(totals).view(len(self.rows), -1)

    def choose(
        self, scores: np.ndarray, index: np.ndarray, size: int, *, end: int | None, last: np.ndarray
    ) -> Continuations:
        """The continuations `index [n, C]` of `w V`, with their scores; V is `size`."""
        n, w = self.totals.shape
        parents, tokens = index // size, index % size
        source = parents + w * np.arange(n)[:, None]
        ended = tokens == end if end is not None else np.zeros(tokens.shape, bool)
        return Continuations(scores, parents, source, tokens, ended, ended | last[:, None])

    def next(
        self, continuations: Continuations, width: int, is_open: Callable[[int, float], bool]
    ) -> tuple[Beams, np.ndarray]:
        """The `width` best continued texts of the rows that are still `is_open(row, best)`, and the
        text that each of them continues.
        """
        order = np.argsort(continuations.closes, axis=1, kind="stable")[:, :width]

        def gather(values: np.ndarray) -> np.ndarray:
            return np.take_along_axis(values, order, 1)

        totals = np.where(gather(continuations.closes), -np.inf, gather(continuations.scores))
        kept = np.array(
            [
                is_open(row, top)
                for row, top in zip(self.rows.tolist(), totals.max(1).tolist(), strict=True)
            ],
            bool,
        )
        if kept.all() and self.totals.shape[1] == width:
            swap = keep_order(gather(continuations.parents))
            order, totals = np.take_along_axis(order, swap, 1), np.take_along_axis(totals, swap, 1)
        source = gather(continuations.source)[kept].ravel()
        tokens = gather(continuations.tokens)[kept].ravel()
        ids = np.concatenate([self.ids[source], tokens[:, None]], 1)
        return Beams(self.rows[kept], ids, totals[kept], self.written + 1), source


def take_best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`values.topk(count)` of [n, M]: first of the maxima of chunks, then inside the best `count`
    chunks.
    """
    n, size = values.shape
    strides = size // _CHUNK  # chunk j: indices j, j + strides, ...
    if strides < 2 * count:
        return values.topk(count)
    chunks = values[:, : strides * _CHUNK].unflatten(1, (_CHUNK, strides))
    which = chunks.amax(1).topk(count).indices  # [n, count]
    indices = (
        which[:, None] + strides * torch.arange(_CHUNK, device=values.device)[:, None]
    ).flatten(1)
    rest = torch.arange(strides * _CHUNK, size, device=values.device).expand(n, -1)
    indices = torch.cat([indices, rest], 1)
    best, order = values.gather(1, indices).topk(count)
    return best, indices.gather(1, order)


def keep_order(parents: np.ndarray) -> np.ndarray:
    """[n, w]: an order of the texts that continue `parents [n, w]` in which most keep the index of
    their parent.

    Parents 2 0 2 0 (w = 4): the first child of 2 stays at index 2, the first child of 0 at 0; the
    second children get the free indices 1 and 3. The order of the texts is 1 2 0 3.
    """
    rows = np.arange(len(parents))[:, None]
    first = ~np.tril(parents[:, :, None] == parents[:, None], -1).any(-1)
    taken = np.zeros(parents.shape, bool)
    taken[rows, parents] = True
    free = np.argsort(taken, axis=1, kind="stable")
    slots = np.where(
        first, parents, np.take_along_axis(free, np.maximum(np.cumsum(~first, 1) - 1, 0), 1)
    )
    order = np.empty_like(parents)
    np.put_along_axis(order, slots, np.arange(parents.shape[1])[None].repeat(len(parents), 0), 1)
    return order
