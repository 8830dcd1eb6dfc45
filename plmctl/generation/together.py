"""Texts of one model that are written together, though their prompts come one after the other.

A text joins the running batch at the next token, and leaves it at its end (Yu et al., 2022, "Orca:
A Distributed Serving System for Transformer-Based Generative Models", sec. 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plmctl.core.batch import Batch
from plmctl.generation.decode import begin, find_writing_head
from plmctl.generation.packed import pack_linear
from plmctl.generation.search import Hypothesis, Walking
from plmctl.generation.step import Reading
from plmctl.generation.walk import TextRow, TextWalk, make_rows, sort_texts
from plmctl.models.base import Model
from plmctl.text.vocab import Vocab


@dataclass(frozen=True)
class TextOrder:
    """A text that is ordered.

    Args:
        ticket: The name of the order.
        key: The number of the prompt, on which drawn tokens depend.
        max_new: The most tokens; None: as in `generate`.
    """

    ticket: Hashable
    search: Walking
    key: int = 0
    max_new: int | None = None


@dataclass
class Running:
    """The texts that are written, what the model has read of them, and what may follow."""

    walk: TextWalk
    reading: Reading
    logits: Tensor  # [N, V] of the next tokens


class Together:
    """The running batch of a model. Every text is that of `generate` for its prompt alone, but for
    rounding. No row depends on what another reads or draws.

    Args:
        model: The model.
        vocab: The vocabulary.
        head: The head that writes; None: the first that predicts tokens.
        weights: The numbers of the weights: fp32, int8, int4 or w8a8. The weights must stay as they
            are while texts are written.
        opening: The first tokens of every text; none: as the model forces.
    """

    def __init__(
        self,
        model: Model,
        *,
        vocab: Vocab,
        head: str | None = None,
        weights: str = "fp32",
        opening: Sequence[int] = (),
    ) -> None:
        self.opening = opening
        self.model, self.vocab, self.weights = model.eval(), vocab, weights
        self.head = find_writing_head(model, head)
        self.rows: dict[
            TextRow, Hypothesis | None
        ] = {}  # the texts of open orders; None: not ended
        self.running: Running | None = None
        self.packed = ExitStack()

    def __len__(self) -> int:
        """The texts that are being written."""
        return 0 if self.running is None else len(self.running.walk.rows)

    @property
    def joins(self) -> bool:
        """Whether further texts can join now."""
        return self.running is None or self.running.reading.joins

    @torch.inference_mode()
    def join(self, batch: Batch, orders: Sequence[TextOrder]) -> None:
        """Read the prompts of `batch`, one for each order; their texts begin with the next `step`.

        Raises:
            DataError: A prompt is empty or too long.
        """
        if self.running is None:
            self.packed.enter_context(pack_linear(self.model, self.weights))
        given = [order.max_new for order in orders]
        known = [most for most in given if most is not None]
        most = max(known) if len(known) == len(given) else None
        try:
            head, vocab = self.head, self.vocab
            reading, start = begin(
                self.model, batch, head, vocab, most, {}, joins=True, opening=self.opening
            )
        except BaseException:
            self._end_if_empty()
            raise
        limits = [
            int(limit if most is None else min(limit, most))
            for limit, most in zip(start.limits, given, strict=True)
        ]
        rows = [
            make_rows(order.ticket, order.search, key=order.key, limit=limit)
            for order, limit in zip(orders, limits, strict=True)
        ]
        places = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
        logits = start.logits
        if len(places) > len(rows):
            every = torch.from_numpy(places).to(logits.device)
            reading.select(every)
            logits = logits[every]
        self._add([row for own in rows for row in own], reading, logits, start.read[places])

    @torch.inference_mode()
    def step(self) -> list[tuple[Hashable, list[Hypothesis]]]:
        """Write a token of every text.

        Returns:
            The orders that end here, each with its texts, the likeliest first.
        """
        if (running := self.running) is None:
            return []
        tokens, going, ended = running.walk.take(running.logits)
        self.rows |= dict(ended)
        if len(going):
            if ended:
                running.reading.leave(torch.from_numpy(going).to(tokens.device))
            running.logits = running.reading.advance(tokens)
        self._end_if_empty()
        return self._collect({row.ticket for row, _ in ended})

    def read(self, ticket: Hashable) -> list[int]:
        """The tokens so far of the first text of an order that is being written."""
        assert self.running is not None
        walk = self.running.walk
        return walk.read(next(row for row in walk.rows if row.ticket == ticket))

    @torch.inference_mode()
    def drop(self, gone: Callable[[Hashable], bool]) -> None:
        """Write nothing more for the orders whose ticket is `gone`."""
        self.rows = {row: text for row, text in self.rows.items() if not gone(row.ticket)}
        if (running := self.running) is None:
            return
        keep = np.flatnonzero([row in self.rows for row in running.walk.rows])
        if len(keep) == len(self):
            return
        running.walk.keep(keep)
        if len(keep):
            index = torch.from_numpy(keep).to(running.logits.device)
            running.reading.leave(index)
            running.logits = running.logits[index]
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        """Forget the batch, and restore the weights, when nothing is written any more."""
        if not len(self):
            self.running = None
            self.packed.close()

    def _add(
        self, rows: Sequence[TextRow], reading: Reading, logits: Tensor, read: np.ndarray
    ) -> None:
        """Begin texts, whose prompts are read."""
        self.rows |= dict.fromkeys(rows)
        if self.running is None:
            self.running = Running(TextWalk(self.vocab.eos, self.vocab.size), reading, logits)
        else:
            self.running.reading.join(reading)
            self.running.logits = torch.cat([self.running.logits, logits])
        self.running.walk.add(rows, read)

    def _collect(self, tickets: set[Hashable]) -> list[tuple[Hashable, list[Hypothesis]]]:
        """The texts of those orders of `tickets` whose texts have all ended."""
        found = []
        for ticket in tickets:
            own = [row for row in self.rows if row.ticket == ticket]
            texts = [text for row in own if (text := self.rows[row]) is not None]
            if len(texts) == len(own):
                found.append((ticket, sort_texts(texts)))
                for row in own:
                    del self.rows[row]
        return found
