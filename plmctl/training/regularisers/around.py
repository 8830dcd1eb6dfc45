"""A micro-batch whose words are given other vectors: its loss, and the gradients of that loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.distill.base import Predictions
from plmctl.training.randomness import random_state, restore_random_state

# how far the vectors of a table are moved at first: (vectors [B, T, W], real [B, T], generator)
Begin = Callable[[Tensor, Tensor, Generator], Tensor]


@dataclass(frozen=True)
class Pass:
    """One pass over the micro-batch.

    Args:
        shift: [B, T, W] what was added, for each time that the model looked up its words.
        whole: the gradient of this pass goes on into the table of words.
    """

    whole: bool
    shift: list[Tensor] = field(default_factory=list)
    loss: Tensor = field(default_factory=lambda: torch.zeros(()))
    predictions: Predictions | None = None


@dataclass
class Passes:
    """The facts about its update that a micro-batch needs.

    Args:
        table: the module that maps ids to vectors of words.
        forward: one pass; its loss as the update counts it, and its predictions if asked.
        backward: adds the gradient of a value; True: nothing comes after it in this update.
        scale: a value as its gradient is computed (fp16).
        counts: sums over the update, by "term/<name>".
    """

    table: nn.Module
    forward: Callable[[bool], tuple[Tensor, Predictions | None]]
    backward: Callable[[Tensor, bool], None]
    scale: Callable[[Tensor], Tensor]
    counts: Mapping[str, int]


class Around:
    """Reads one micro-batch as often as a regulariser wants, each time with other vectors.

    Words are looked up once: gradients of all passes are summed at their vectors, and go into the
    table with the last pass. A gradient that only says where to go next computes none of a weight.
    """

    def __init__(self, batch: Batch, passes: Passes) -> None:
        self.batch, self.passes, self.device = batch, passes, batch.key.device
        self.counts = passes.counts
        seed = int(torch.randint(1 << 62, ()))
        self.generator = Generator(self.device).manual_seed(seed)
        self.losses: dict[str, Tensor] = {}  # losses of the regulariser's own terms
        self._random = random_state(self.device)
        self._ids: list[Tensor] = []
        self._vectors: list[Tensor] = []
        self._real: list[Tensor] = []
        self._owed: dict[int, Tensor] = {}  # gradients that the table has not had yet

    def read(
        self,
        shift: Sequence[Tensor] | Begin | None = None,
        *,
        whole: bool = False,
        predict: bool = False,
    ) -> Pass:
        """One pass.

        Args:
            shift: [B, T, W] each, what is added to vectors of words; None: nothing.
            whole: Whether the gradient goes on into the table. It does so in the pass that is
                learned last, and in passes that are learned with it.
            predict: also return the predictions.
        """
        restore_random_state(self._random, self.device)
        reading = Pass(whole)
        with self._moving(reading, shift):
            loss, predictions = self.passes.forward(predict)
        if not reading.shift:
            allowed = "none: this model looks up no vectors of words here"
            raise ConfigError("regulariser", ..., allowed, fix="regulariser=none")
        return Pass(whole, reading.shift, loss, predictions)

    def ascend(self, value: Tensor, reading: Pass) -> list[Tensor]:
        """The gradient of `value` with respect to the vectors added in `reading`, and to nothing
        else.
        """
        found = torch.autograd.grad(self.passes.scale(value), reading.shift, allow_unused=True)
        return [
            torch.zeros_like(own) if gradient is None else gradient
            for own, gradient in zip(reading.shift, found, strict=True)
        ]

    def words(self) -> list[tuple[Tensor, Tensor]]:
        """([B, T, W] vectors as they are, [B, T] bool: which are no padding) of each look-up."""
        return list(zip(self._vectors, self._real, strict=True))

    def learn(self, value: Tensor, *readings: Pass, last: bool = False) -> list[Tensor]:
        """Add the gradient of `value` to that of the weights.

        Args:
            value: The value of these readings.
            readings: all of which it depends.
            last: nothing is learned of this micro-batch after it.

        Returns:
            The gradient with respect to the vectors added in the last of `readings`.
        """
        value = self.passes.scale(value)
        if last:  # its derivative is what earlier passes owe
            for place, gradient in self._owed.items():
                if self._vectors[place].requires_grad:
                    value = value + (self._vectors[place] * gradient).sum()
        self.passes.backward(value, last)
        for reading in readings:
            for place, own in enumerate(reading.shift):
                if own.grad is not None and not reading.whole and self._is_kept(place):
                    before = self._owed.get(place)
                    self._owed[place] = own.grad if before is None else before + own.grad
        return [
            torch.zeros_like(own) if own.grad is None else own.grad for own in readings[-1].shift
        ]

    def _is_kept(self, place: int) -> bool:
        """Whether the words of this look-up are those of the batch, the same in each pass."""
        return any(self._ids[place] is seq.ids for seq in self.batch.seqs.values())

    @contextmanager
    def _moving(self, reading: Pass, shift: Sequence[Tensor] | Begin | None) -> Iterator[None]:
        def move(module: nn.Module, args: tuple[Tensor, ...], vectors: Tensor) -> Tensor:
            place, ids = len(reading.shift), args[0]
            if place == len(self._ids):
                self._ids.append(ids)
                self._vectors.append(vectors)
                self._real.append(self._find_real(ids))
            if ids is self._ids[place] and self._is_kept(place):
                vectors = self._vectors[place]
                vectors = vectors if reading.whole else vectors.detach()
            if shift is None:
                own = torch.zeros_like(vectors)
            elif callable(shift):
                own = shift(vectors.detach(), self._real[place], self.generator)
            else:
                own = shift[place]
            own = (own * self._real[place][..., None]).detach().requires_grad_()
            reading.shift.append(own)
            return vectors + own

        hook = self.passes.table.register_forward_hook(move)
        try:
            yield
        finally:
            hook.remove()

    def _find_real(self, ids: Tensor) -> Tensor:
        """[B, T] bool: which of these words are no padding."""
        seqs = list(self.batch.seqs.values())
        same = [seq for seq in seqs if seq.ids is ids]
        same += [seq for seq in seqs if seq.ids.shape == ids.shape]
        if not same:
            allowed = "none: the model reads other words than those of the batch"
            raise ConfigError("regulariser", ..., allowed, fix="regulariser=none")
        real: Tensor = same[0].real
        return real
