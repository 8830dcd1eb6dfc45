"""One text a row, token by token: what greedy search and sampling share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.generation.search import DecodingStep, Hypothesis, OpenTexts, Start, Walking, find_logp


@dataclass(frozen=True, eq=False)
class TextRow:
    """A text that is written.

    Args:
        ticket: The name of its group: the texts of one prompt.
        search: The search, which has its own rules.
        limit: The most tokens.
        numbers: The random numbers of its tokens, or none.
    """

    ticket: Hashable
    search: Walking
    limit: int
    numbers: np.ndarray


def make_rows(ticket: Hashable, search: Walking, *, key: int, limit: int) -> list[TextRow]:
    """The texts of a prompt with the number `key`, `search.count` of them."""
    texts = range(search.count)
    return [TextRow(ticket, search, limit, search.draw_numbers(key, text, limit)) for text in texts]


class TextWalk:
    """Texts side by side. Rows come (`add`) and leave (`take`, `keep`) between two tokens, and none
    depends on another.

    Args:
        end: The token that ends a text; None: nothing but its limit does.
        size: Ids from here on are never written; None: all may be.
        watch: Receives the tokens of every step.
    """

    def __init__(
        self, end: int | None, size: int | None, watch: Callable[[list[int]], None] | None = None
    ) -> None:
        self.end, self.size, self.watch = end, size, watch
        self.rows: list[TextRow] = []
        self.ids = np.zeros((0, 0), np.int64)  # [N, T] the tokens so far, -1 before shorter ones
        self.written, self.scores = np.zeros(0, np.int64), np.zeros(0)

    def add(self, rows: Sequence[TextRow], read: np.ndarray) -> None:
        """Begin further texts, behind the tokens `read [N, T]` of their prompts."""
        length = max(self.ids.shape[1], read.shape[1])
        both = (_pad_left(ids, length) for ids in (self.ids, read))
        self.ids = np.concatenate([*both])
        self.rows = [*self.rows, *rows]
        self.written = np.concatenate([self.written, np.zeros(len(rows), np.int64)])
        self.scores = np.concatenate([self.scores, np.zeros(len(rows))])

    def keep(self, indices: np.ndarray) -> None:
        """Go on with these texts alone."""
        self.rows = [self.rows[index] for index in indices]
        self.ids, self.written = self.ids[indices], self.written[indices]
        self.scores = self.scores[indices]

    def read(self, row: TextRow) -> list[int]:
        """The tokens of a text so far."""
        index = self.rows.index(row)
        ids = self.ids[index]
        return ids[len(ids) - int(self.written[index]) :].tolist()

    def take(self, logits: Tensor) -> tuple[Tensor, np.ndarray, list[tuple[TextRow, Hypothesis]]]:
        """Take the next token of every text, by `logits [N, V]`, which may be changed.

        Returns:
            The tokens of the texts that go on, their indices, and the texts that end here.
        """
        chosen, gain = self._choose(logits)
        tokens = chosen.cpu().numpy()
        self.scores = self.scores + gain.double().cpu().numpy()
        self.ids = np.concatenate([self.ids, tokens[:, None]], 1)
        self.written = self.written + 1
        if self.watch is not None:
            self.watch(tokens.tolist())
        ended = tokens == self.end if self.end is not None else np.zeros(len(tokens), bool)
        done = ended | (self.written >= [row.limit for row in self.rows])
        texts = [
            (self.rows[index], self._end(index, bool(ended[index])))
            for index in np.flatnonzero(done).tolist()
        ]
        going = np.flatnonzero(~done)
        if texts:
            self.keep(going)
            chosen = chosen[torch.from_numpy(going).to(chosen.device)]
        return chosen, going, texts

    def _choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The next token of each text, by its own search, and their log-probabilities."""
        logp = find_logp(logits, self.size)
        searches = list(dict.fromkeys(row.search for row in self.rows))
        if len(searches) == 1:
            tokens = self._search(searches[0], logp, logits, np.arange(len(self.rows)))
        else:
            tokens = torch.empty(len(logp), dtype=torch.long, device=logp.device)
            for search in searches:
                own = np.flatnonzero([row.search is search for row in self.rows])
                index = torch.from_numpy(own).to(logp.device)
                some = logp[index]
                tokens[index] = self._search(search, some, logits[index], own)
                logp[index] = some
        return tokens, logp.gather(1, tokens[:, None])[:, 0]

    def _search(self, search: Walking, logp: Tensor, logits: Tensor, own: np.ndarray) -> Tensor:
        """The next tokens of the texts `own`, by their `logp` and `logits`, which are changed."""
        written, limit = self.written[own], np.array([self.rows[n].limit for n in own])
        scores = search.weigh(logits, logp, OpenTexts(self.ids[own], written, limit, self.end))
        places = zip(own, written, strict=True)
        numbers = [self.rows[n].numbers[t] for n, t in places if len(self.rows[n].numbers)]
        return search.choose(scores, torch.tensor(numbers, dtype=torch.float64).to(logp))

    def _end(self, index: int, by_itself: bool) -> Hypothesis:
        """A text, whose last token is left out if it ends the text."""
        ids, written = self.ids[index], int(self.written[index])
        text = ids[len(ids) - written : len(ids) - by_itself].tolist()
        return Hypothesis(text, float(self.scores[index]), by_itself)


def walk(step: DecodingStep, start: Start, search: Walking) -> list[list[Hypothesis]]:
    """Write `search.count` texts for each row, the likeliest first; a row leaves the batch when its
    text ends.
    """
    search.fits(start.logits.shape[1])
    keys = range(len(start.logits)) if start.keys is None else start.keys
    limits = start.limits.tolist()
    rows = [
        row
        for ticket, (key, limit) in enumerate(zip(keys, limits, strict=True))
        for row in make_rows(ticket, search, key=key, limit=limit)
    ]
    places = np.array([row.ticket for row in rows])
    texts = {row: Hypothesis([], 0.0, False) for row in rows}
    going, logits = TextWalk(start.end, start.size, start.watch), start.logits
    going.add(rows, start.read[places])
    if search.count > 1:
        every = torch.from_numpy(places).to(logits.device)
        logits = logits[every]
        step.select(every)
    while max(limits, default=0) and going.rows:
        tokens, rest, ended = going.take(logits)
        texts |= dict(ended)
        if len(rest):
            if ended:
                step.select(torch.from_numpy(rest).to(tokens.device))
            logits = step.advance(tokens)
    count = search.count
    return [
        sort_texts([texts[row] for row in rows[n : n + count]]) for n in range(0, len(rows), count)
    ]


def sort_texts(texts: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The texts of a prompt, the likeliest first."""
    return sorted(texts, key=lambda text: -text.score)


def _pad_left(ids: np.ndarray, length: int) -> np.ndarray:
    return np.pad(ids, ((0, 0), (length - ids.shape[1], 0)), constant_values=-1)
