"""The interface of backbones, their result, and the model that training, export, embedding and
generation share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

from plmctl.attention.patterns.base import Pattern
from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import break_graphs
from plmctl.core.parts import base_of
from plmctl.nn.cells.base import RowSize
from plmctl.nn.dropout import Dropout
from plmctl.nn.peft.base import Method
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.restrained import Noted
from plmctl.nn.stack import Stack


@dataclass(frozen=True)
class Hidden:
    """The result of a backbone for a batch."""

    last: Tensor  # [B, T, W]
    # e.g. XLNet's "query" [P, W], BART's "encoder"
    streams: Mapping[str, Tensor] = field(default_factory=dict)
    state: Any = None  # recurrent memory or KV cache for the next call
    # "hidden": embedding output first, then each layer
    recorded: Mapping[str, list[Tensor]] = field(default_factory=dict)
    # [B, T, 2] by sequence: layers of each token and its remainder, where tokens halt
    pondered: Mapping[str, Tensor] = field(default_factory=dict)
    # [B] losses of the model's own, by the name of their term: `Costly`
    losses: Mapping[str, Tensor] = field(default_factory=dict)
    # values of this pass that parts of cells note: `Env.note`
    noted: Noted = field(default_factory=dict)

    @property
    def words(self) -> Tensor:
        """[B, T, W] the states that heads over the vocabulary read."""
        return self.streams.get("words", self.last)

    def gather_words(self, index: Tensor) -> Tensor:
        """[P, W] as `gather`, for heads over the vocabulary."""
        return self.words.flatten(0, 1)[index]

    def gather(self, index: Tensor) -> Tensor:
        """[P, W] the states at the flattened (row, position) `index [P]`."""
        return self.last.flatten(0, 1)[index]

    def gather_anchors(self, anchors: Tensor) -> Tensor:
        """[N, W] the states at `anchors [N, 2]` = (row, position)."""
        return self.last[anchors[:, 0], anchors[:, 1]]


@base_of("model")
class Backbone(nn.Module):
    """Maps token sequences to states. `needs` names the fields that it cannot do without.

    Each of its parts may state what else it reads if it is there (`uses`), and which fields it
    introduces (`fields`).
    """

    needs: frozenset[str] = frozenset({"text"})
    # every backbone excludes padding, separates packed documents and counts positions
    uses: frozenset[str] = frozenset({"tracks.real", "tracks.document", "tracks.position"})
    width: int
    num_layers: int  # states that "hidden" records after the embedding output
    token_embedding: nn.Module  # has `.weight`, at least [V, W] or [V, E], for tied heads
    max_length: int | None  # longest row the positions allow
    # how fine-tuning classifies rows: `pooling` ("first": by the cls token, wherever it stands;
    # "last": by the last token; "mean": by all; "compare": by the means of its two texts; absent:
    # as the pattern lets tokens see), `pooler` (kept or not), and settings of the head
    classifier: Mapping[str, Any] = {}

    # the sequence that a causal model continues; "": the model cannot be causal
    writes: str = "text"
    records: frozenset[str] = frozenset({"hidden"})  # names that `record` may have
    # whether it reads weights of cells outside of their own forward pass. Then a process that has
    # a share of each must have them whole while the model runs
    holds_cells = False
    # names that `Hidden.streams` may have besides the last states
    streams: frozenset[str] = frozenset()

    asked_rows: int = 0  # more rows for each predicted token

    @property
    def max_target(self) -> int | None:
        """The longest text that it writes, as far as positions allow; None: any."""
        return self.max_length

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        """[B, T, W] the input of the first layer."""
        raise NotImplementedError(type(self).__name__)

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        """The states of a batch.

        Args:
            x: [B, T, W] the input of the first layer, as `embed` gives it.
            state: memory or cache of an earlier call.
            record: names of states that are also returned, of `records`.
        """
        raise NotImplementedError(type(self).__name__)

    def forward(self, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        return self.encode(self.embed(batch, state), batch, state, record)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile in place, as every module can; what works on values stays outside of graphs."""
        break_graphs()
        super().compile(*args, **kwargs)

    def looks_ahead(self, seq: str) -> bool:
        """Whether a state of the sequence `seq` may have seen a later token of it."""
        pattern: Pattern | None = getattr(self, "pattern", None)
        if pattern is None or self.writes != seq:
            return self.writes != seq  # without a pattern: it reads token by token
        return any(pattern.looks_ahead(segment) for segment in pattern.prefix_segments or (0,))

    def set_pattern(self, pattern: Pattern) -> None:
        """Let tokens see each other by another pattern from now on; weights stay as they are.

        Raises:
            ConfigError: The model does not fit it, or goes by no pattern.
        """
        allowed = f"none for a {type(self).__name__}, which keeps how it sees"
        raise ConfigError("pattern", type(pattern).__name__, allowed)

    def serve(self, *, words: bool, rows: bool = False) -> None:
        """Prepare for the heads of a model.

        Args:
            words: Some are over the vocabulary.
            rows: All decide about whole rows.
        """

    def stacks(self, length: int, target_length: int) -> Iterator[tuple[Stack, RowSize]]:
        """Every stack with the size of one row in it, from which costs are computed."""
        for child in self.children():
            if isinstance(child, Backbone):
                yield from child.stacks(length, target_length)
            else:
                inside = (part for part in child.modules() if isinstance(part, Stack))
                yield from ((stack, RowSize(length)) for stack in inside)


def list_parts(backbone: Backbone) -> list[object]:
    """A backbone, all modules inside, and their patterns: the parts that state which fields they
    read.
    """
    inside = list(backbone.modules())
    patterns = [getattr(part, "pattern", None) for part in inside]
    return [*inside, *(pattern for pattern in patterns if isinstance(pattern, Pattern))]


class KeptStates(Protocol):
    """The stored outputs of layers for the rows of a batch, so that the layers do not run again."""

    def find(self, backbone: Backbone, batch: Batch, record: Record) -> Hidden | None:
        """The result of the backbone from what is kept; None: it has to run."""
        ...


class Model(nn.Module):
    """A backbone and named heads: what is trained, saved as `model.safetensors`, exported, embedded
    with.

    A head maps features `[..., W]` to logits `[..., K]`; the objective or task chooses the
    positions.
    """

    def __init__(self, *, backbone: Backbone, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleDict(heads)
        # methods that were added to the backbone, in their order; empty: the whole model is trained
        self.methods: list[Method] = []
        self.kept: KeptStates | None = None
        # another library that writes its texts (generation/writer.py); None: it writes itself
        self.writer: Any = None
        # or a choice between the model and such a library; None: none
        self.choice: Any = None
        # finds the ranges of its numbers in training (runtime/whole_numbers.py); None: it has none
        self.find_ranges: Callable[[], Any] | None = None

    @property
    def recomputes(self) -> bool:
        """Whether a backward pass runs layers again."""
        return any(isinstance(part, Stack) and part.recomputes for part in self.modules())

    @property
    def drops(self) -> bool:
        """Whether a rate of dropout is above 0."""
        rates = [
            part.rate if isinstance(part, Dropout) else getattr(part, "dropout", None)
            for part in self.modules()
        ]
        return any(isinstance(rate, float) and rate > 0 for rate in rates)

    def drop_nothing(self) -> None:
        """Set every rate of dropout to 0."""
        for part in self.modules():
            if isinstance(part, Dropout):
                part.rate = 0.0
            elif isinstance(getattr(part, "dropout", None), float):
                part.dropout = 0.0  # type: ignore[assignment]

    def trainable(self, chosen: Sequence[str] = ()) -> list[str]:
        """The trained parameters, as names or globs: `chosen`, and if methods were added, their own
        parameters and the heads; empty: everything.
        """
        own = [
            f"backbone.{name}" for method in self.methods for name in method.trains(self.backbone)
        ]
        heads = [f"heads.{name}" for name, _ in self.heads.named_parameters()]
        return [*chosen, *own, *heads] if self.methods else list(chosen)

    def forward(self, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        known = None
        if self.kept is not None and state is None:
            known = self.kept.find(self.backbone, batch, record)
        return self.backbone(batch, state, record) if known is None else known


class Once:
    """A model with a cache for one update: equal (batch, record) run the backbone only once.

    `record`: what every pass records. A `Once` of a `Once` shares its cache.
    """

    def __init__(self, model: Model | Once, record: Record = NONE) -> None:
        inner = model if isinstance(model, Once) else None
        self.model: Model = inner.model if inner else model  # type: ignore[assignment]
        self.heads, self.backbone = self.model.heads, self.model.backbone
        self._record: frozenset[str] = record | inner._record if inner else record
        self._seen: list[tuple[Batch, frozenset[str], Hidden]] = inner._seen if inner else []

    def know(self, batch: Batch, record: Record, hidden: Hidden) -> None:
        """Take `hidden` for the result of `batch`, as if the backbone had run."""
        self._seen.append((batch, record, hidden))

    @property
    def passes(self) -> list[Hidden]:
        """The results of all passes so far."""
        return [hidden for *_, hidden in self._seen]

    def __call__(self, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        record |= self._record
        for seen, recorded, hidden in self._seen:
            if seen is batch and record <= recorded:
                return hidden
        hidden = self.model(batch, state, record)
        self.know(batch, record, hidden)
        return hidden
