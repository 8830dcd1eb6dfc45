"""The interface of cells: sublayers without their norms and residual connections."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from plmctl.attention.kernels.dense import Before
from plmctl.attention.patterns.offsets import Offsets
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import base_of
from plmctl.nn.divided import WHOLE, WholeCell
from plmctl.nn.env import Env, Streams

Prefix = Callable[[], Before]  # keys and values that are learned


@dataclass(frozen=True)
class RowSize:
    """The numbers of a row on which the cost of a cell depends."""

    tokens: int  # tokens that run through the cell
    # keys for each query, on average: fewer if a kernel leaves some out; None: all
    keys: float | None = None
    source: int = 0  # tokens that cross-attention reads
    memory: int = 0  # states of earlier segments that relative attention reads
    queries: float = 0.0  # rows of a query stream for each token
    stored: bool = True  # whether the kernel keeps scores for the backward pass


@dataclass(frozen=True)
class Work:
    """The work of a cell for one row, in the forward pass."""

    macs: float  # multiply-adds with its weights
    # multiply-adds between tokens; a causal pattern needs only half of them
    scores: float = 0.0
    kept: float = 0.0  # numbers that the backward pass needs


@dataclass(frozen=True)
class LinearRows:
    """The rows of a linear map that give one thing, such as the queries."""

    linear: nn.Linear
    rows: slice


# {attribute of a cell: what its linear map gives, in equal shares of its rows, in this order}
MAPS: Mapping[str, tuple[str, ...]] = {
    "qkv": ("query", "key", "value"),
    "q": ("query",),
    "kv": ("key", "value"),
    "out": ("output",),
    "up": ("up",),
    "gate": ("gate",),
    "down": ("down",),
}


@dataclass(frozen=True)
class CellFacts:
    """The facts of a cell that are known before it reads a row.

    Args:
        computes: The heading of its multiply-adds: attention, feed-forward; "": its class.
        reads: Streams that it reads if a model has them.
        writes: The stream to which its result is added.
        also_writes: Further streams that it changes, in `prepare`.
        stream_width: Columns of the stream that it writes; None: those of the text.
        outputs: Columns of its result; None: as many as it reads.
        complete: It has norms and residual sums inside: its result replaces its stream.
        dropped: The dropout of residual sums acts on its result.
        ahead: True: it reads later tokens, too; False: only earlier ones; None: the pattern
            decides.
        offsets: The offsets, token read - token, that it reads whatever the pattern allows; None:
            `ahead` says it.
        longest: The most tokens before a token that it ever sees; None: all.
        records: It fills `env.recorder`, once each time it runs.
        hashes: It gives `env.recorder` the buckets of the tokens.
        cached: It reads the tokens before these from `env.slot` where they come one by one, or
            needs none of them; False: a model with it generates nothing.
        recomputes: It runs again in the backward pass, whatever its stack does.
        biased: It adds the bias of positions to its scores, if it computes scores.
        turned: Positions may turn its queries and keys, if it has them.
        reads_distances: It reads vectors of distances, which positions must have
            (`nn/disentangled.py`).
        takes_prefix: A learned prefix changes all that it computes (`Prefixed`).
        whole: All tokens of a row decide about each result, so that no token is computed alone.
        continues: The part that goes on as the trained cell that this one replaces
            (`model.stack.adds`).
        gives: {attribute: what its linear map gives, in equal shares of its rows, in this order}.
    """

    computes: str = ""
    reads: frozenset[str] = frozenset({"text"})
    writes: str = "text"
    also_writes: frozenset[str] = frozenset()
    stream_width: int | None = None
    outputs: int | None = None
    complete: bool = False
    dropped: bool = True
    ahead: bool | None = None
    offsets: Offsets | None = None
    longest: int | None = None
    records: bool = False
    hashes: bool = False
    cached: bool = True
    recomputes: bool = False
    biased: bool = True
    turned: bool = True
    reads_distances: bool = False
    takes_prefix: bool = False
    whole: bool = False
    continues: str = ""
    gives: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MAPS)

    @property
    def own_offsets(self) -> Offsets:
        """The offsets, token read - token, that it reads whatever the pattern allows."""
        if self.offsets is not None:
            return self.offsets
        if self.ahead is None:
            return ~Offsets.everything()
        return Offsets.between(None, None if self.ahead else 0)


NAMES = frozenset(each.name for each in dataclasses.fields(CellFacts))


@dataclass(frozen=True)
class Heads:
    """The heads whose scores the kernel of the model computes from queries, keys and values."""

    count: int
    width: int  # columns of one
    dropout: float  # rate on the probabilities


@dataclass(frozen=True)
class Projections:
    """The linear maps of a cell by what they give: query, key, value, output, up, gate, down.

    Args:
        heads: The heads of queries, keys and values; None: the kernel computes no scores of it, or
            others than their products.
    """

    maps: Mapping[str, LinearRows]
    heads: Heads | None = None


@base_of("cells")
class Cell(nn.Module):
    """`forward(streams, env) -> [B, T, W]`: the result is added to the stream that it writes.

    `projection` is the last linear map, which writes the result; `projected_by` names its
    attribute, if that has another name. Tools call `last_map`, since a cell without weights has
    none. `facts` is all that tools know of it: a class states them, and
    `self.facts = replace(self.facts, ...)` adds what depends on settings. Capabilities that few
    cells have are the protocols below.
    """

    facts: CellFacts = CellFacts()
    team: WholeCell = WHOLE  # the part that this process computes (nn/divided.py)
    projection: nn.Linear

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take facts that a class states one by one, `ahead = True`, into its `facts`, and the map
        that it names into `projection`.
        """
        super().__init_subclass__(**kwargs)
        if stated := {name: vars(cls)[name] for name in NAMES & vars(cls).keys()}:
            cls.facts = replace(cls.facts, **stated)
        if path := vars(cls).get("projected_by"):
            cls.projection = property(attrgetter(path))  # type: ignore[assignment]

    def forward(self, streams: Streams, env: Env) -> Tensor:
        raise NotImplementedError(type(self).__name__)

    def prepare(self, streams: Streams, env: Env) -> Streams:
        """The streams, with all that the cell changes in addition to its result, and all that
        `forward` needs.
        """
        return streams

    def last_map(self) -> nn.Linear | None:
        """The last linear map, which writes the result; None where the cell has no such map."""
        return getattr(self, "projection", None)

    def columns(self) -> int:
        """Columns of its result, by its facts or its last map."""
        if self.facts.outputs is not None:
            return self.facts.outputs
        if (last := self.last_map()) is None:
            raise TypeError(f"{type(self).__name__} has no projection: state facts.outputs")
        return last.out_features

    def projections(self) -> Projections:
        """Its linear maps, by `facts.gives`."""
        found: dict[str, LinearRows] = {}
        for attribute, names in self.facts.gives.items():
            linear = getattr(self, attribute, None)
            if isinstance(linear, nn.Linear):
                rows = linear.out_features // len(names)
                for place, name in enumerate(names):
                    found[name] = LinearRows(linear, slice(place * rows, (place + 1) * rows))
        return Projections(found)

    def work(self, row: RowSize) -> Work:
        """The cost of a row if every matrix multiplies every token once, and the outputs of linear
        and recurrent maps are kept.
        """
        macs, kept = 0, 0
        for part in self.modules():
            own: list[Tensor] = list(part.parameters(recurse=False))
            # the weights of a copy that is not trained are buffers
            if not own and isinstance(part, nn.Linear | nn.RNNBase):
                own = list(part.buffers(recurse=False))
            macs += sum(p.numel() for p in own if p.dim() > 1)
            if isinstance(part, nn.Linear):
                kept += part.out_features
            if isinstance(part, nn.RNNBase):  # the gates, and the states
                kept += sum(p.numel() + part.hidden_size for p in own if p.dim() == 1) // 2
        rows = (1 + row.queries) * row.tokens
        return Work(rows * macs, kept=rows * kept)


@runtime_checkable
class Softened(Protocol):
    """A cell whose scores an initializer may scale."""

    head_width: int

    def soften(self, factor: float) -> None:
        """Multiply the scores that the weights give by `factor`."""
        ...


@runtime_checkable
class Prefixed(Protocol):
    """A cell of attention that reads a learned prefix before the tokens (`facts.takes_prefix`)."""

    facts: CellFacts
    num_heads: int
    head_width: int

    def find_prefix(self) -> Prefix | None:
        """The prefix that every token sees."""
        ...

    def take_prefix(self, prefix: nn.Module) -> None:
        """Let every token see this prefix from now on."""
        ...


@runtime_checkable
class Spanning(Protocol):
    """A cell that learns how far back it sees."""

    def looks_back(self) -> int:
        """How many tokens before a token it sees with the weights that it has."""
        ...


@runtime_checkable
class Distanced(Protocol):
    """A cell whose scores have a bias by distance."""

    def bias_by_distance(self, distance: Tensor) -> Tensor:
        """[H, n] the bias of the score of a key by its `distance [n]` = query - key, whatever
        stands there.
        """
        ...


def check_heads(num_heads: int, width: int) -> None:
    """Raise ConfigError unless the heads divide the columns of the stream evenly."""
    if width % num_heads:
        fits = [number for number in range(1, width + 1) if width % number == 0]
        nearest = min(fits, key=lambda number: (abs(number - num_heads), -number))
        wider = -(-width // num_heads) * num_heads
        divisors = ", ".join(map(str, [*fits[:8], *(["..."] if len(fits) > 8 else [])]))
        fix = f"size.num_heads={nearest}, or size.width={wider}"
        raise ConfigError(
            "size.num_heads", num_heads, f"must divide size.width={width}: {divisors}", fix=fix
        )


def split_heads(projected: Tensor, num_heads: int, head_width: int) -> tuple[Tensor, ...]:
    """[B, T, n H D] -> n tensors [B, H, T, D], for H heads of D columns."""
    return projected.unflatten(-1, (-1, num_heads, head_width)).permute(2, 0, 3, 1, 4).unbind(0)


def check_reading(cell: Cell, env: Env) -> None:
    """Raise UsageError if a cell that looks ahead is to read token by token."""
    if cell.facts.ahead and env.slot is not None:
        raise UsageError(f"{type(cell).__name__} with causal=false cannot read token by token")
