"""How a language model reads windows of a text, and its losses on the tokens that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as tree

from plmctl.core.batch import IGNORE, Rows
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.core.progress import follow
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.models.capabilities import start_memory, start_reading
from plmctl.tasks.layouts import encode
from plmctl.text.vocab import Vocab

# ids, and at each position the id to predict or IGNORE
Window = tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]


def causal_windows(ids: Sequence[int], window: int, stride: int) -> Iterator[Window]:
    """Windows of `window` inputs; each predicts the tokens that no window before it predicted
    (the first token is never predicted).
    """
    scored = 1
    start = 0
    while scored < len(ids):
        end = min(start + window, len(ids) - 1)  # inputs [start, end), targets one further
        target = [
            ids[position + 1] if position + 1 >= scored else IGNORE
            for position in range(start, end)
        ]
        yield ids[start:end], target
        scored = end + 1
        start += stride


def last_windows(ids: Sequence[int], positions: Iterable[int], context: int) -> Iterator[Window]:
    """For each of `positions` a window of the `context` tokens before it, which asks for it."""
    for position in positions:
        inputs = ids[position - context : position]
        yield inputs, [*[IGNORE] * (context - 1), ids[position]]


def make_rows(laid_out: Sequence[encode.Row], vocab: Vocab) -> Rows:
    """Rows of equal length, the shorter ones padded."""
    rows = encode.pad(laid_out, vocab, example=range(len(laid_out)))
    return replace(rows, anchors=None)


class Asked(NamedTuple):
    """The input of a head for a batch of windows, and the state after it."""

    features: Tensor  # [P, W]
    ids: Tensor  # [P] the tokens to predict
    state: Any


@dataclass(frozen=True)
class WindowReader:
    """Reads windows with a model, `batch_size` at a time."""

    model: Model
    head: str  # the head that predicts the tokens
    vocab: Vocab
    batch_size: int
    device: torch.device
    # is given the mean loss of each batch of windows, with its graph, after they were scored
    watch: Callable[[Tensor], None] | None = None

    def remembers(self, memory: int | None) -> bool:
        """Whether the model has a state that goes from one window to the next."""
        if memory is not None and memory < 0:
            raise ConfigError(
                "task.memory", memory, "0 (none) or more tokens, or null: as in training"
            )
        has_state = start_memory(self.model.backbone, 1, self.device, memory) is not None
        if memory and not has_state:
            allowed = "null: this model has no memory, its windows overlap (task.stride)"
            raise ConfigError("task.memory", memory, allowed, fix="task.memory=null")
        return has_state

    def loss(self, windows: Iterable[Window]) -> tuple[float, int]:
        """(summed negative log-likelihood in nats, predicted tokens) over all windows, in
        float64.
        """
        return self._sum(self._read_apart(windows))

    def in_order(
        self, documents: Sequence[Iterable[Window]], memory: int | None
    ) -> tuple[float, int]:
        """The same of documents whose windows go on from each other, as many side by side as a
        batch has rows.

        A row whose document has ended takes the next one, without memory; only the last window of
        one is shorter than others.
        """
        return self._sum(self._read_in_order(documents, memory))

    def token_losses(self, windows: Iterable[Window]) -> np.ndarray:
        """[N] the negative log-likelihood of each predicted token."""
        return self._list(self._read_apart(windows))

    def token_losses_in_order(self, windows: Iterable[Window], memory: int | None) -> np.ndarray:
        """[N] that of each token of one document, whose windows go on from each other."""
        return self._list(self._read_in_order([windows], memory))

    def _sum(self, batches: Iterator[Asked]) -> tuple[float, int]:
        total, count = 0.0, 0
        head = head_of(self.model, self.head)
        for asked in follow(batches, lambda asked: len(asked.ids), "tokens"):
            with torch.set_grad_enabled(self.watch is not None):
                loss = head.loss(asked.features, asked.ids)[0]
                if self.watch is not None and len(asked.ids):
                    self.watch(loss / len(asked.ids))
            total, count = total + float(loss), count + len(asked.ids)
        return total, count

    def _list(self, batches: Iterator[Asked]) -> np.ndarray:
        head = head_of(self.model, self.head)
        losses = [head.token_losses(asked.features, asked.ids).cpu().numpy() for asked in batches]
        return np.concatenate(losses) if losses else np.zeros(0, np.float32)

    def _read_apart(self, windows: Iterable[Window]) -> Iterator[Asked]:
        pending = iter(windows)
        while group := list(islice(pending, self.batch_size)):
            yield self._read(group, None)

    def _read_in_order(
        self, documents: Sequence[Iterable[Window]], memory: int | None
    ) -> Iterator[Asked]:
        waiting = iter(documents)
        reading: list[Iterator[Window]] = [
            iter(()) for _ in range(min(self.batch_size, len(documents)))
        ]
        backbone = self.model.backbone
        start = start_reading if self.watch is None else start_memory
        state = start(backbone, len(reading), self.device, memory)
        while True:
            group = [next(windows, None) for windows in reading]
            goes_on = [window is not None for window in group]
            for row in range(len(group)):
                while group[row] is None and (document := next(waiting, None)) is not None:
                    reading[row] = iter(document)
                    group[row] = next(reading[row], None)
            if not any(group):
                return
            empty = ([self.vocab.pad], [IGNORE])
            asked = self._read([window or empty for window in group], state, np.array(goes_on))
            yield asked
            state = asked.state

    def _read(
        self, group: Sequence[Window], state: Any, goes_on: np.ndarray | None = None
    ) -> Asked:
        rows = make_rows(
            [encode.Row(list(map(int, ids)), 0, None, 0) for ids, _ in group], self.vocab
        )
        target = np.full(rows.seqs["text"].ids.shape, IGNORE, dtype=np.int64)
        for row, (_, labels) in enumerate(group):
            target[row, : len(labels)] = labels
        values = {} if goes_on is None else {"continues": goes_on}
        batch = collate(
            replace(rows.with_targets(asked=target), values={**rows.values, **values}), {}
        ).to(self.device)
        targets = batch.targets["asked"]
        with torch.set_grad_enabled(self.watch is not None):
            hidden = self.model(batch, state)
            features = hidden.gather_words(targets.index[: targets.count])
        state = tree.tree_map_only(Tensor, Tensor.detach, hidden.state)
        return Asked(features, targets.ids[: targets.count], state)
