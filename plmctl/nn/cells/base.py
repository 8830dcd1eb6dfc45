"""The interface of cells: sublayers without their norms and residual connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from plmctl.attention.patterns.offsets import Offsets
from plmctl.core.errors import ConfigError, UsageError
from plmctl.core.parts import base_of
from plmctl.nn.env import Env, Streams


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


@base_of("cells")
class Cell(nn.Module):
    """`forward(streams, env) -> [B, T, W]`: the result is added to the stream that it `writes`.

    `projection` is the last linear map, which writes the result.
    """

    projection: nn.Linear
    reads: frozenset[str] = frozenset({"text"})  # streams that it reads if they are there
    writes: str = "text"  # the stream that its result is added to
    # further streams that it changes, in `prepare`
    also_writes: frozenset[str] = frozenset()
    stream_width: int | None = None  # columns of the stream that it writes; None: of the text
    outputs: int | None = None  # columns of its result; None: as many as it reads
    # the heading of its multiply-adds: attention, feed-forward, ...; "": the name of its class
    computes: str = ""
    records: bool = False  # fills `env.recorder`, once each time it runs
    hashes: bool = False  # tells `env.recorder` the buckets of the tokens
    # True: reads later tokens, too; False: only earlier ones; None: what the pattern allows
    ahead: bool | None = None
    # reads the tokens before these from `env.slot`, where they come one by one, or needs none of
    # them; False: nothing is generated with it
    cached: bool = True
    recomputes: bool = False  # runs again in the backward pass, whatever its stack does
    biased: bool = True  # adds what positions add to scores, if it computes scores
    turned: bool = True  # positions may turn its queries and keys, if it has them

    # the part that goes on as the trained cell whose place this one takes (model.stack.adds)
    continues: str = ""

    # the most tokens before a token that it ever sees; None: all that there are
    longest: int | None = None

    gives: Mapping[str, tuple[str, ...]] = MAPS  # by `list_maps`

    def list_maps(self) -> dict[str, LinearRows]:
        """Its linear maps by what they give: query, key, value, output, up, gate, down."""
        found: dict[str, LinearRows] = {}
        for attribute, names in self.gives.items():
            linear = getattr(self, attribute, None)
            if isinstance(linear, nn.Linear):
                rows = linear.out_features // len(names)
                for place, name in enumerate(names):
                    found[name] = LinearRows(linear, slice(place * rows, (place + 1) * rows))
        return found

    def forward(self, streams: Streams, env: Env) -> Tensor:
        raise NotImplementedError(type(self).__name__)

    def prepare(self, streams: Streams, env: Env) -> Streams:
        """The streams with those that it changes beside its result, and with what `forward` needs
        of that.
        """
        return streams

    def looks_back(self) -> int | None:
        """How many tokens before a token it sees with the weights that it has; None: all that there
        are.
        """
        return self.longest

    def own_offsets(self) -> Offsets:
        """The offsets, token read - token, that it reads whatever the pattern allows."""
        if self.ahead is None:
            return ~Offsets.everything()
        return Offsets.between(None, None if self.ahead else 0)

    def bias_by_distance(self, distance: Tensor) -> Tensor | None:
        """[H, n] what every query adds to its score of a key by its `distance [n]` = query - key,
        whatever stands there; None: nothing.
        """
        return None

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
    if cell.ahead and env.slot is not None:
        raise UsageError(f"{type(cell).__name__} with causal=false cannot read token by token")
