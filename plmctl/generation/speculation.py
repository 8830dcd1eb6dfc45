"""Speculative decoding (Leviathan et al., 2023, arXiv:2211.17192): a small model drafts tokens, and
the model reads several of them in one pass.

A search sees no difference. It wants the probabilities after each of its tokens, and these are
known already where it chose as the draft did. So a draft changes no text, greedy or sampled.

Differs: sampling accepts a drafted token if it draws the same one, and not by the ratio of both
probabilities. So the same seed gives the same text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plmctl.core.errors import UsageError
from plmctl.generation.step import Reading
from plmctl.models.capabilities import Remembering
from plmctl.nn.cache import Cache


@dataclass
class Count:
    """Counts of a text: passes of the model, and the drafted tokens that the search chose."""

    passes: int = 0
    chosen: int = 0


class Speculation:
    """One row of a model, with a smaller one that drafts `tokens` after each pass.

    Args:
        target: The model, which has read the prompt.
        draft: The other model, which has read it, too.
        tokens: Drafted tokens of a pass.
        room: Tokens that the row has room for behind the prompt.

    Raises:
        UsageError: One of them cannot forget tokens, or there are several rows.
    """

    def __init__(self, target: Reading, draft: Reading, *, tokens: int, room: int) -> None:
        for reading in (target, draft):
            _check(reading)
        self.target, self.draft, self.tokens, self.room = target, draft, tokens, room
        self.count = Count()
        self.ahead: list[int] = []  # drafted tokens that the model has read, but the search has not
        self.known: list[Tensor] = []  # [1, V] of each, the logits after it
        self.behind: list[int] = []  # tokens that the draft has not read yet

    def advance(self, tokens: Tensor) -> Tensor:
        """[1, V] logits after the row has read its token [1]."""
        token = int(tokens)
        self.room -= 1
        if self.ahead and self.ahead[0] == token:
            self.count.chosen += 1
            self.ahead.pop(0)
            return self.known.pop(0)
        self._forget()
        self.behind.append(token)
        self.ahead = self._guess(tokens.device)
        read = torch.tensor([[token, *self.ahead]], device=tokens.device)
        first, *self.known = self.target.read(read).unbind(1)
        self.count.passes += 1
        return first

    def select(self, rows: Tensor, *, same_prompt: bool = False) -> None:
        """The one row goes on."""
        if rows.tolist() != [0]:
            raise UsageError("a draft is for searches of one text\n  fix: search=greedy")

    def _forget(self) -> None:
        """Undo what was read beyond the tokens of the search."""
        if lost := len(self.ahead):
            self.target.forget(lost)
            # the draft has not read the last of its tokens
            self.draft.forget(lost - len(self.behind))
            self.behind = []
        self.ahead, self.known = [], []

    def _guess(self, device: torch.device) -> list[int]:
        """The likeliest next tokens by the draft, which then lacks the last one."""
        guessed: list[int] = []
        for _ in range(min(self.tokens, self.room)):
            logits = self.draft.read(torch.tensor([self.behind], device=device))
            guessed.append(int(logits[0, -1, : self.draft.size].argmax()))
            self.behind = guessed[-1:]
        return guessed


def _check(reading: Reading) -> None:
    """UsageError for a model whose states cannot be undone."""
    cache = reading.cache
    keeps = not isinstance(cache, Cache) or any(slot.holds_states for slot in cache.slots)
    name = type(reading.model.backbone).__name__
    if keeps or isinstance(reading.model.backbone, Remembering) or reading.mask is not None:
        what = f"{name} keeps states that cannot be undone, as a draft needs"
        raise UsageError(f"{what}\n  fix: leave draft out")
