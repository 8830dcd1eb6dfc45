"""The interface of searches: their start, their results, and the rules that all of them obey."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError
from plmctl.core.parts import base_of


@dataclass(frozen=True)
class Hypothesis:
    """A written text: its tokens without the end token, its score, whether it ended by itself."""

    ids: list[int]
    score: float
    finished: bool


class DecodingStep(Protocol):
    """A model that reads token by token."""

    def advance(self, tokens: Tensor) -> Tensor:
        """[B, V] log-probabilities of the next token, after every row has read one more token
        `[B]`.
        """

    def select(self, rows: Tensor, *, same_prompt: bool = False) -> None:
        """Continue with these rows [B'], in this order; `same_prompt`: each replaces one with the
        same prompt.
        """


@dataclass(frozen=True)
class Start:
    """The start of a search."""

    logp: Tensor  # [B, V] log-probabilities of the first token
    limits: np.ndarray  # [B] most tokens to write
    end: int | None = None  # the token that ends a text
    # [B, T] earlier tokens, -1 before shorter ones; their n-grams count, too
    history: np.ndarray | None = None
    # numbers of the prompts; a row's random numbers depend only on them
    keys: Sequence[int] | None = None
    # receives every token [B] when it is chosen (not by a beam)
    watch: Callable[[list[int]], None] | None = None

    @property
    def read(self) -> np.ndarray:
        """[B, T] the earlier tokens, T >= 0."""
        return np.zeros((len(self.logp), 0), np.int64) if self.history is None else self.history


@base_of("search")
class Search(Protocol):
    """A search: for each row of `start` its texts, best first."""

    count: int  # texts of each row

    def fits(self, size: int) -> None:
        """Raise ConfigError for a setting that a vocabulary of `size` tokens does not allow."""

    def __call__(self, step: DecodingStep, start: Start) -> list[list[Hypothesis]]: ...


@runtime_checkable
class Walking(Protocol):
    """A search that writes each text token by token, whatever the others are: `walk.TextWalk`."""

    count: int  # texts of each row
    rules: Rules

    def fits(self, size: int) -> None:
        """Raise ConfigError for a setting that a vocabulary of `size` tokens does not allow."""

    def draw_numbers(self, key: int, text: int, length: int) -> np.ndarray:
        """[length] the random numbers of a text, one a token; empty: it needs none.

        Args:
            key: The number of the prompt.
            text: The number of the text, of `count`.
            length: The most tokens.
        """

    def choose(self, logp: Tensor, numbers: Tensor) -> Tensor:
        """[N] the next tokens.

        Args:
            logp: [N, V] their log-probabilities.
            numbers: [N] the random numbers of these tokens, or none.
        """


class Rules:
    """Excludes tokens: their log-probabilities become -inf, without renormalisation.

    `min_length`: the text does not end before so many tokens. `no_repeat_ngram`: no n-gram occurs
    twice, with the prompt included (Paulus et al., 2018, arXiv:1705.04304, sec. 2.5);
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
        """Raise ConfigError for an id that is not below `size`."""
        if self.first is not None and self.first >= size:
            raise ConfigError(
                "search.first", self.first, f"an id below {size}, the size of the vocabulary"
            )

    def __call__(
        self, logp: Tensor, written: int | np.ndarray, end: int | None, ids: np.ndarray
    ) -> Tensor:
        """`logp [N, V]`, changed in place, for rows whose last `written` tokens in `ids [N, T]`
        were written, by row or in all rows.
        """
        written = np.broadcast_to(written, len(logp))
        begins = written == 0 if self.first is not None else np.zeros(len(logp), bool)
        if self.min_length and end is not None:
            logp[_at(logp, written < self.min_length), end] = -torch.inf
        if self.no_repeat_ngram:
            rows, tokens = find_repeats(ids, self.no_repeat_ngram)
            if len(rows):
                logp[_at(logp, rows), _at(logp, tokens)] = -torch.inf
        if begins.any():
            logp[_at(logp, begins)] = -torch.inf
            logp[_at(logp, begins), self.first] = 0.0
        return logp


@dataclass(frozen=True)
class SearchFacts:
    """The settings of a search, for a library that has searches of its own.

    Args:
        rules: The excluded tokens.
        width: Open texts of a beam; 1: one text, token by token.
        count: Texts of each prompt.
        alpha: The exponent of the length that divides scores.
        penalty: The function of the length.
        early: When a beam is done.
        draws: Whether tokens are drawn.
        temperature: The divisor of the logits of drawn tokens.
        top_k: Tokens that are drawn from; None: all.
        top_p: The least share of the tokens that are drawn from.
        seed: The seed of the drawn numbers.
    """

    rules: Rules
    width: int = 1
    count: int = 1
    alpha: float = 0.0
    penalty: str = "length"
    early: Literal["never", True, False] = True
    draws: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0


def _at(like: Tensor, values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(like.device)


def find_repeats(ids: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, tokens): tokens that would complete an n-gram which is in the row `ids [N, T]`
    already; -1 is not a token.
    """
    if ids.shape[1] < n:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(ids, n, axis=1)  # [N, T - n + 1, n]
    again = (windows[..., :-1] == ids[:, None, ids.shape[1] - n + 1 :]).all(-1) & (
        windows[..., -1] >= 0
    )
    rows, positions = np.nonzero(again)
    return rows, windows[rows, positions, -1]
