"""What every search is given, what it returns, and the rules that all of them obey."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of


@dataclass(frozen=True)
class Hypothesis:
    """A text that was written: its tokens without the end token, how likely a search finds it,
    whether it ended by itself.
    """

    ids: list[int]
    score: float
    finished: bool


class DecodingStep(Protocol):
    """A model in the middle of some texts."""

    def advance(self, tokens: Tensor) -> Tensor:
        """[B, V] log-probabilities of what follows, once every row has read its next token
        `[B]`.
        """

    def select(self, rows: Tensor, *, same_prompt: bool = False) -> None:
        """Go on with these rows [B'], in their order; `same_prompt`: each takes the place of one
        with the same prompt.
        """


@dataclass(frozen=True)
class Start:
    """Where a search begins."""

    logp: Tensor  # [B, V] log-probabilities of the first token
    limits: np.ndarray  # [B] most tokens to write
    end: int | None = None  # the token that ends a text
    # [B, T] what stands before, -1 in front where it is shorter: its n-grams count too
    history: np.ndarray | None = None
    # numbers of the prompts: a row's random numbers depend on them alone
    keys: Sequence[int] | None = None
    # told of every token [B] as it is chosen (not by a beam)
    watch: Callable[[list[int]], None] | None = None

    @property
    def read(self) -> np.ndarray:
        """[B, T], T >= 0."""
        return np.zeros((len(self.logp), 0), np.int64) if self.history is None else self.history


@base_of("search")
class Search(Protocol):
    """One way to choose: for each row of `start` its texts, best first."""

    count: int  # texts that each row gets

    def fits(self, size: int) -> None:
        """ConfigError for a setting that a vocabulary of `size` tokens does not allow."""

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]: ...


class Rules:
    """Which tokens a search may not take: log-probabilities become -inf, nothing is normed again.

    `min_length`: the text does not end before so many tokens. `no_repeat_ngram`: no n-gram stands
    twice, what was read before the text included (Paulus et al., 2018, arXiv:1705.04304, sec. 2.5);
    0: off. `first`: the id of the first token.
    """

    def __init__(self, *, min_length: int, no_repeat_ngram: int, first: int | None) -> None:
        for name, value in (("min_length", min_length), ("no_repeat_ngram", no_repeat_ngram)):
            if value < 0:
                raise ConfigError(f"search.{name}", value, "0 (off) or more")
        if first is not None and first < 0:
            raise ConfigError("search.first", first, "an id of the vocabulary")
        self.min_length, self.no_repeat_ngram, self.first = min_length, no_repeat_ngram, first

    def fits(self, size: int) -> None:
        """ConfigError for an id that is none of `size`."""
        if self.first is not None and self.first >= size:
            raise ConfigError(
                "search.first", self.first, f"an id below {size}, the size of the vocabulary"
            )

    def __call__(self, logp: Tensor, written: int, end: int | None, ids: np.ndarray) -> Tensor:
        """`logp [N, V]`, changed in place, for rows of which `written` tokens stand in `ids [N,
        T]`, behind what was read.
        """
        if written == 0 and self.first is not None:
            return torch.full_like(logp, -torch.inf).index_fill_(
                1, torch.tensor(self.first, device=logp.device), 0.0
            )
        if written < self.min_length and end is not None:
            logp[:, end] = -torch.inf
        if self.no_repeat_ngram:
            rows, tokens = find_repeats(ids, self.no_repeat_ngram)
            if len(rows):
                logp[
                    torch.from_numpy(rows).to(logp.device), torch.from_numpy(tokens).to(logp.device)
                ] = -torch.inf
        return logp


def find_repeats(ids: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, tokens): what would end an n-gram that stands in the row `ids [N, T]` already; -1
    is no token.
    """
    if ids.shape[1] < n:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(ids, n, axis=1)  # [N, T - n + 1, n]
    again = (windows[..., :-1] == ids[:, None, ids.shape[1] - n + 1 :]).all(-1) & (
        windows[..., -1] >= 0
    )
    rows, places = np.nonzero(again)
    return rows, windows[rows, places, -1]
