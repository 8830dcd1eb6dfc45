"""The likeliest texts of several kept side by side (Sutskever et al., 2014, arXiv:1409.3215,
sec. 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.generation.search import DecodingStep, Hypothesis, Rules, Start

_CHUNK = 64  # values that `take_best` takes the maximum of first


@part_of("search")
class Beam:
    """`argmax_y log p(y) / penalty(|y|)` among the texts that are reached from the `width` best
    beginnings at every length.

    `penalty`: `length`, |y|^alpha (fairseq, `transformers`), or `gnmt`, ((5 + |y|) / 6)^alpha (Wu
    et al., 2016, arXiv:1609.08144, eq. 14); |y| counts the end token, not the prompt. Of the 2
    `width` best continuations those that end are finished texts if they are among the `width` best;
    the others go on. A row is done as `early` says: `true`, with `width` finished texts; `false`,
    when the best open text would not be better than the worst of those if it ended now; `never`, if
    it would not be at any length. (`transformers`' rules, generation/utils.py; fairseq's is
    `true`.) `count` texts, best first.
    """

    def __init__(
        self,
        *,
        width: int,
        alpha: float,
        penalty: Literal["length", "gnmt"],
        early: Literal["never", True, False],
        count: int = 1,
        min_length: int = 0,
        no_repeat_ngram: int = 0,
        first: int | None = None,
    ) -> None:
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
        self.width, self.alpha, self.penalty, self.early, self.count = (
            width,
            alpha,
            penalty,
            early,
            count,
        )
        self.rules = Rules(min_length=min_length, no_repeat_ngram=no_repeat_ngram, first=first)

    def divisor(self, length: int) -> float:
        """What the log-probability of a text of so many tokens is divided by."""
        base = length if self.penalty == "length" else (5 + length) / 6
        return float(base**self.alpha)

    def fits(self, size: int) -> None:
        if self.width > size:
            raise ConfigError(
                "search.width",
                self.width,
                f"at most {size}, the size of the vocabulary",
                fix=f"search.width={size}",
            )
        self.rules.fits(size)

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]:
        self.fits(start.logp.shape[1])
        pools = [_Pool(self.width) for _ in start.limits]
        beams = _Beams(np.arange(len(pools)), start.read, np.zeros((len(pools), 1)))
        logp = start.logp
        for written in range(1, int(start.limits.max(initial=0)) + 1):
            logp = self.rules(logp, written - 1, start.end, beams.ids)
            found = beams.continued(
                logp, 2 * self.width, start.end, written >= start.limits[beams.rows]
            )
            self._finish(pools, beams, found, written)
            shape = beams.totals.shape
            beams, source = beams.next(
                found, self.width, partial(self._open, pools, start.limits, written)
            )
            if not len(source):
                break
            same = beams.totals.shape == shape
            if not same or (source != np.arange(len(source))).any():
                step.select(torch.from_numpy(source).to(logp.device), same_prompt=same)
            logp = step.advance(torch.from_numpy(beams.ids[:, -1].copy()).to(logp.device))
        return [pool.texts[: self.count] for pool in pools]

    def _finish(self, pools: list[_Pool], beams: _Beams, found: _Found, written: int) -> None:
        """Put the texts that end now into the pools of their rows."""
        closing = found.closes[:, : self.width] & (found.scores[:, : self.width] > -np.inf)
        for n, place in zip(*np.nonzero(closing), strict=True):
            ended = bool(found.ended[n, place])
            text = beams.text(int(found.source[n, place]), written - 1)
            text = text if ended else [*text, int(found.tokens[n, place])]
            pools[beams.rows[n]].add(
                Hypothesis(text, float(found.scores[n, place] / self.divisor(written)), ended)
            )
        # no token is left: what there is has to do
        for n in np.flatnonzero(found.scores[:, 0] == -np.inf):
            open_, score = (
                int(beams.totals[n].argmax()),
                float(beams.totals[n].max() / self.divisor(max(1, written - 1))),
            )
            pools[beams.rows[n]].add(
                Hypothesis(beams.text(n * beams.totals.shape[1] + open_, written - 1), score, False)
            )

    def _open(
        self, pools: list[_Pool], limits: np.ndarray, written: int, row: int, best: float
    ) -> bool:
        """Whether a row goes on whose best open text, of so many tokens, has the log-probability
        `take_best`.
        """
        pool, limit = pools[row], int(limits[row])
        if best == -np.inf or written >= limit:
            return False
        if len(pool.texts) < self.width:
            return True
        longest = limit if self.early == "never" and self.alpha > 0 else written
        return self.early is not True and best / self.divisor(longest) > pool.texts[-1].score


class _Pool:
    """The best finished texts of a row."""

    def __init__(self, width: int) -> None:
        self.width, self.texts = width, list[Hypothesis]()

    def add(self, text: Hypothesis) -> None:
        # stable: the older of equals first
        self.texts = sorted([*self.texts, text], key=lambda it: -it.score)[: self.width]


@dataclass(frozen=True)
class _Found:
    """The best continuations of n rows, best first; [n, C] each."""

    scores: np.ndarray
    parents: np.ndarray  # number of the open text that goes on, within its row
    source: np.ndarray  # the same, within the batch
    tokens: np.ndarray
    ended: np.ndarray  # by the end token
    closes: np.ndarray  # by that, or because there is no more room


@dataclass(frozen=True)
class _Beams:
    """The open texts of the rows that are not done: w of each, those of a row side by side."""

    rows: np.ndarray  # [n]
    ids: np.ndarray  # [n w, T]
    totals: np.ndarray  # [n, w] log-probabilities; -inf: there is no such text

    def text(self, number: int, written: int) -> list[int]:
        """The last `written` tokens of an open text."""
        return self.ids[number, self.ids.shape[1] - written :].tolist()  # type: ignore[no-any-return]

    def continued(self, logp: Tensor, count: int, end: int | None, last: np.ndarray) -> _Found:
        """The best `count` continuations of each row, `logp [n w, V]` (changed in place)."""
        (n, w), size = self.totals.shape, logp.shape[1]
        values = logp.add_(torch.from_numpy(self.totals).to(logp).view(-1, 1)).view(n, w * size)
        found, at = take_best(values, min(count, w * size))
        scores, places = found.double().cpu().numpy(), at.cpu().numpy()
        parents, tokens = places // size, places % size
        ended = tokens == end if end is not None else np.zeros(tokens.shape, bool)
        return _Found(
            scores,
            parents,
            parents + w * np.arange(n)[:, None],
            tokens,
            ended,
            ended | last[:, None],
        )

    def next(
        self, found: _Found, width: int, open: Callable[[int, float], bool]
    ) -> tuple[_Beams, np.ndarray]:
        """The `width` best that go on, of the rows that are still `open(row, best)`; and which
        text each of them continues.
        """
        order = np.argsort(found.closes, axis=1, kind="stable")[:, :width]

        def at(values: np.ndarray) -> np.ndarray:
            return np.take_along_axis(values, order, 1)

        totals = np.where(at(found.closes), -np.inf, at(found.scores))
        kept = np.array(
            [
                open(row, top)
                for row, top in zip(self.rows.tolist(), totals.max(1).tolist(), strict=True)
            ],
            bool,
        )
        if kept.all() and self.totals.shape[1] == width:
            swap = in_place(at(found.parents))
            order, totals = np.take_along_axis(order, swap, 1), np.take_along_axis(totals, swap, 1)
        source, tokens = at(found.source)[kept].ravel(), at(found.tokens)[kept].ravel()
        ids = np.concatenate([self.ids[source], tokens[:, None]], 1)
        return _Beams(self.rows[kept], ids, totals[kept]), source


def take_best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`values.topk(count)` of [n, M]: of the maxima of chunks first, then inside the best
    `count` chunks.
    """
    n, size = values.shape
    strides = size // _CHUNK  # chunk j: places j, j + strides, ...
    if strides < 2 * count:
        return values.topk(count)
    chunks = values[:, : strides * _CHUNK].unflatten(1, (_CHUNK, strides))
    which = chunks.amax(1).topk(count).indices  # [n, count]
    places = (
        which[:, None] + strides * torch.arange(_CHUNK, device=values.device)[:, None]
    ).flatten(1)
    rest = torch.arange(strides * _CHUNK, size, device=values.device).expand(n, -1)
    places = torch.cat([places, rest], 1)
    found, at = values.gather(1, places).topk(count)
    return found, places.gather(1, at)


def in_place(parents: np.ndarray) -> np.ndarray:
    """[n, w] an order of the texts that continue `parents [n, w]` in which most stand where
    their parent stood.
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
