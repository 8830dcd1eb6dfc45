"""Capabilities that some backbones have, as protocols: tools ask for them by `isinstance`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.models.base import Backbone, Hidden, Model
from plmctl.nn.cache import Cache
from plmctl.nn.halting import Halting
from plmctl.nn.recorder import NONE, Record


@runtime_checkable
class Caching(Protocol):
    """A backbone that reads token by token."""

    def fresh_cache(self, batch: Batch) -> Cache:
        """An empty cache for `forward(..., state=cache)`; an encoder-decoder reads the source of
        `batch` first.
        """
        ...


@runtime_checkable
class Remembering(Protocol):
    """A backbone with a memory of earlier segments."""

    def fresh_state(self, rows: int, device: torch.device, memory: int | None = None) -> Any:
        """The state before the first segment of `rows` streams; None where it remembers nothing.

        Args:
            memory: Tokens of the memory; None: as many as in training.
        """
        ...


@runtime_checkable
class Precomputing(Remembering, Protocol):
    """A backbone whose state may hold keys and values while its weights stay as they are."""

    def reading_state(self, rows: int, device: torch.device, memory: int | None = None) -> Any:
        """`fresh_state` of a model that only reads."""
        ...


@runtime_checkable
class Layered(Protocol):
    """A backbone that can begin at a layer."""

    def list_layer_parts(self) -> list[list[nn.Module]]:
        """The modules before the first layer, then those of each layer; empty: `go_on` cannot begin
        at a layer.
        """
        ...

    def go_on(self, states: Sequence[Tensor], batch: Batch, record: Record = NONE) -> Hidden:
        """The states of a batch from the results of its first layers, which do not run again.

        Args:
            states: [B, T, W] the input of the first layer, and the output of the layers that do not
                run. All of them are recorded, the last one is read.
            record: Names of states that are also returned.
        """
        ...


@runtime_checkable
class Selective(Protocol):
    """A backbone that may compute its last layer for some tokens alone."""

    def read_at(self, batch: Batch, index: Tensor) -> Tensor | None:
        """[P, W] the states for heads over the vocabulary at the flattened (row, position) `index
        [P]`, equally many in each row, row by row; None: it computes all.
        """
        ...


@runtime_checkable
class Halts(Protocol):
    """A backbone whose tokens may halt."""

    @property
    def halting(self) -> Mapping[str, Halting]:
        """The part that decides when the tokens of a sequence halt: `Hidden.pondered`."""
        ...


@runtime_checkable
class Prompted(Protocol):
    """A backbone with a part before whose tokens a learned prompt may stand (`nn.peft.prompt`)."""

    @property
    def prompt_reader(self) -> Backbone | None:
        """The part; None: no prompt fits this backbone."""
        ...


@runtime_checkable
class Costly(Protocol):
    """A backbone with losses of its own."""

    @property
    def own_losses(self) -> Mapping[str, float]:
        """{name of a loss: its weight}: `Hidden.losses`."""
        ...


def make_cache(backbone: Backbone, batch: Batch) -> Cache:
    """The cache of a backbone; UsageError for one that cannot read token by token."""
    if not isinstance(backbone, Caching):
        raise UsageError(f"{type(backbone).__name__} cannot read token by token")
    return backbone.fresh_cache(batch)


def start_memory(
    backbone: object, rows: int, device: torch.device, memory: int | None = None
) -> Any:
    """The state of a backbone before the first segment; None without memory."""
    if not isinstance(backbone, Remembering):
        return None
    how = {} if memory is None else {"memory": memory}
    return backbone.fresh_state(rows, device, **how)


def start_reading(
    backbone: Backbone, rows: int, device: torch.device, memory: int | None = None
) -> Any:
    """`start_memory` of a model that only reads."""
    if isinstance(backbone, Precomputing):
        return backbone.reading_state(rows, device, memory)
    return start_memory(backbone, rows, device, memory)


def list_layer_parts(backbone: Backbone) -> list[list[nn.Module]]:
    """The modules of each layer of a backbone, after those before the first; empty: unknown."""
    return backbone.list_layer_parts() if isinstance(backbone, Layered) else []


def read_at(model: Model, batch: Batch, index: Tensor) -> Tensor:
    """[P, W] the states for heads over the vocabulary at the flattened (row, position) `index [P]`;
    nothing else of the last layer is computed where a backbone can do so.
    """
    backbone = model.backbone
    some = backbone.read_at(batch, index) if isinstance(backbone, Selective) else None
    if some is not None:
        return some
    hidden: Hidden = model(batch)
    return hidden.gather_words(index)


def find_prompt_reader(backbone: object) -> Any:
    """The part of a model before whose tokens a learned prompt may stand; None: no part."""
    return backbone.prompt_reader if isinstance(backbone, Prompted) else None


def find_halting(backbone: Backbone) -> Mapping[str, Halting]:
    """The part that decides when the tokens of a sequence halt, by the sequence."""
    return backbone.halting if isinstance(backbone, Halts) else {}


def find_own_losses(backbone: Backbone) -> Mapping[str, float]:
    """{name of a loss that a backbone has of its own: its weight}."""
    return backbone.own_losses if isinstance(backbone, Costly) else {}
