"""The interface of searches: their start, their results, and the rules that all of them obey."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict, runtime_checkable

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


@dataclass(frozen=True)
class OpenTexts:
    """N texts whose next tokens are to be chosen."""

    ids: np.ndarray  # [N, T] the tokens of prompts and texts, -1 before shorter ones
    written: int | np.ndarray  # the last tokens of `ids` that were written, in all rows or [N]
    limit: int | np.ndarray  # most tokens of a text, of all rows or [N]
    end: int | None  # the token that ends a text


class DecodingStep(Protocol):
    """A model that reads token by token."""

    def advance(self, tokens: Tensor) -> Tensor:
        """[B, V] logits of the next token, after every row has read one more token `[B]`."""

    def select(self, rows: Tensor, *, same_prompt: bool = False) -> None:
        """Continue with these rows [B'], in this order; `same_prompt`: each replaces one with the
        same prompt.
        """


@runtime_checkable
class ShowingStep(DecodingStep, Protocol):
    """A model that also shows its last hidden states."""

    states: Tensor  # [B, T, W] of the tokens that were read last, at first of the prompt
    real: Tensor  # [B, T] which of them are no padding


@dataclass(frozen=True)
class Start:
    """The start of a search."""

    logits: Tensor  # [B, V] of the first token
    limits: np.ndarray  # [B] most tokens to write
    size: int | None = None  # ids from here on are never written; None: all may be
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
        none = np.zeros((len(self.logits), 0), np.int64)
        return none if self.history is None else self.history


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

    def fits(self, size: int) -> None:
        """Raise ConfigError for a setting that a vocabulary of `size` tokens does not allow."""

    def weigh(self, logits: Tensor, logp: Tensor, texts: OpenTexts) -> Tensor:
        """As `Ruled.weigh`."""

    def draw_numbers(self, key: int, text: int, length: int) -> np.ndarray:
        """[length] the random numbers of a text, one a token; empty: it needs none.

        Args:
            key: The number of the prompt.
            text: The number of the text, of `count`.
            length: The most tokens.
        """

    def choose(self, scores: Tensor, numbers: Tensor) -> Tensor:
        """[N] the next tokens.

        Args:
            scores: [N, V] their log-probabilities, up to a constant of each row.
            numbers: [N] the random numbers of these tokens, or none.
        """


class RuleSettings(TypedDict, total=False):
    """The settings of `Ruled`, which searches pass on."""

    min_length: int
    no_repeat_ngram: int
    repetition_penalty: float
    excluded: Sequence[Sequence[int]] | None
    first: int | None
    last: int | None


class Ruled:
    """The rules that every search obeys.

    Excluded tokens get the log-probability -inf, without renormalisation.

    Args:
        min_length: The text does not end before so many tokens.
        no_repeat_ngram: No n-gram occurs twice, with the prompt included (Paulus et al., 2018,
            arXiv:1705.04304, sec. 2.5); 0: off.
        repetition_penalty: The score s of a token of prompt or text becomes s times the penalty
            below 0, else s over it (Keskar et al., 2019, arXiv:1909.05858, sec. 4.1). Scores are
            logits, and log-probabilities in a beam, as in `transformers`; 1: off.
        excluded: Sequences of ids, none of which occurs; None: none.
        first: The id of the first token.
        last: The id of the last token of a text of the longest length.
    """

    def __init__(
        self,
        *,
        min_length: int = 0,
        no_repeat_ngram: int = 0,
        repetition_penalty: float = 1.0,
        excluded: Sequence[Sequence[int]] | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        for name, value in (("min_length", min_length), ("no_repeat_ngram", no_repeat_ngram)):
            if value < 0:
                raise ConfigError(f"search.{name}", value, "0 (off) or more")
        if not 0 < repetition_penalty < math.inf:
            allowed = "more than 0 (1: off; above 1: fewer repetitions)"
            raise ConfigError("search.repetition_penalty", repetition_penalty, allowed)
        self.excluded = [list(ids) for ids in excluded or ()]
        if not all(self.excluded):
            raise ConfigError("search.excluded", self.excluded, "lists of one id or more")
        self.min_length, self.no_repeat_ngram, self.first = min_length, no_repeat_ngram, first
        self.repetition_penalty, self.last = repetition_penalty, last
        self._check_ids(None)

    def fits(self, size: int) -> None:
        """Raise ConfigError for an id that is not below `size`."""
        self._check_ids(size)

    def _check_ids(self, size: int | None) -> None:
        """ConfigError for an id that no vocabulary of this size has."""
        allowed, above = "an id of the vocabulary", math.inf
        if size is not None:
            allowed, above = f"an id below {size}, the size of the vocabulary", size
        excluded = (("excluded", value) for ids in self.excluded for value in ids)
        for name, value in (("first", self.first), ("last", self.last), *excluded):
            if value is not None and not 0 <= value < above:
                raise ConfigError(f"search.{name}", value, allowed)

    def weigh(self, logits: Tensor, logp: Tensor, texts: OpenTexts) -> Tensor:
        """[N, V] the scores of the next tokens after all rules, up to a constant of each row. A
        penalty changes `logits [N, V]`; without one they are `logp`, changed in place.
        """
        logp = self.exclude(logp, texts)
        if self.repetition_penalty == 1:
            return logp
        return self.penalise(logits.to(logp), texts.ids).masked_fill(logp == -torch.inf, -torch.inf)

    def exclude(self, logp: Tensor, texts: OpenTexts) -> Tensor:
        """The log-probabilities `logp [N, V]` of the next tokens, changed in place."""
        written, ids = np.broadcast_to(texts.written, len(logp)), texts.ids
        if self.min_length and texts.end is not None:
            logp[_at(logp, written < self.min_length), texts.end] = -torch.inf
        if self.no_repeat_ngram:
            _exclude(logp, *find_repeats(ids, self.no_repeat_ngram))
        for sequence in self.excluded:
            rows = find_begun(ids, sequence)
            _exclude(logp, rows, np.full(len(rows), sequence[-1]))
        if self.first is not None:
            _force(logp, written == 0, self.first)
        if self.last is not None:
            _force(logp, written + 1 == texts.limit, self.last)
        return logp

    def penalise(self, scores: Tensor, ids: np.ndarray) -> Tensor:
        """`scores [N, V]` after the penalty of the tokens `ids [N, T]`, changed in place; -1 is
        not a token.
        """
        rows, columns = np.nonzero(ids >= 0)
        seen = _at(scores, rows), _at(scores, ids[rows, columns])
        values, penalty = scores[seen], self.repetition_penalty
        scores[seen] = torch.where(values < 0, values * penalty, values / penalty)
        return scores


@dataclass(frozen=True)
class SearchFacts:
    """The settings of a search, for a library that has searches of its own.

    Args:
        rules: The rules of the texts.
        width: Open texts of a beam; 1: one text, token by token.
        count: Texts of each prompt.
        alpha: The exponent of the length that divides scores.
        penalty: The function of the length.
        early: When a beam is done.
        groups: Groups of a beam that avoid each other's tokens.
        diversity: The penalty of a token for each text of an earlier group.
        phrases: Sequences of ids that every text contains.
        contrast: The weight of likeness to earlier tokens.
        draws: Whether tokens are drawn.
        temperature: The divisor of the logits of drawn tokens.
        top_k: Tokens that are drawn from; None: all.
        top_p: The least share of the tokens that are drawn from.
        min_p: The least probability, as a share of the largest.
        typical_p: The least share of the most typical tokens that are drawn from.
    """

    rules: Ruled
    width: int = 1
    count: int = 1
    alpha: float = 0.0
    penalty: str = "length"
    early: Literal["never", True, False] = True
    groups: int = 1
    diversity: float = 0.0
    phrases: Sequence[Sequence[int]] = ()
    contrast: float = 0.0
    draws: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int = 0


def find_logp(logits: Tensor, size: int | None) -> Tensor:
    """[N, V] the log-probabilities of tokens by their logits, -inf from the id `size` on."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logp = torch.log_softmax(logits, -1, dtype=dtype)
    if size is not None and size < logp.shape[-1]:
        logp[..., size:] = -torch.inf
    return logp


def _at(like: Tensor, values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(like.device)


def _exclude(logp: Tensor, rows: np.ndarray, tokens: np.ndarray) -> None:
    if len(rows):
        logp[_at(logp, rows), _at(logp, tokens)] = -torch.inf


def _force(logp: Tensor, rows: np.ndarray, token: int) -> None:
    """In some rows, no token but this one is possible."""
    if rows.any():
        logp[_at(logp, rows)] = -torch.inf
        logp[_at(logp, rows), token] = 0.0


def find_begun(ids: np.ndarray, sequence: Sequence[int]) -> np.ndarray:
    """The rows of `ids [N, T]` that end with all of a sequence but its last id."""
    before = len(sequence) - 1
    if ids.shape[1] < before:
        return np.zeros(0, np.int64)
    return np.flatnonzero((ids[:, ids.shape[1] - before :] == sequence[:-1]).all(1))


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
