"""Funnel-Transformer (Dai et al., 2020): an encoder whose rows become shorter with depth."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plmctl.attention.kernels.auto import Auto
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense, Mask
from plmctl.attention.patterns.base import Full, Pattern
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.core.parts import part_of
from plmctl.core.problems import PartContext
from plmctl.models.base import Backbone, Hidden
from plmctl.models.encoder import Initializer, refuse_halting, token_positions
from plmctl.nn.cells.base import RowSize
from plmctl.nn.cells.pooled_attention import PooledOp
from plmctl.nn.embeddings import Embedding
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import NoPosition, Position
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.relations import Relations, compute_sinusoids
from plmctl.nn.stack import Stack

POOLINGS = ("mean", "max")
BOTH = 2  # the segment of a token that is in all segments
FORBIDDEN = "rows of one document: pooling joins neighbouring tokens"


@dataclass(frozen=True)
class PairPooling:
    """How two neighbouring tokens become one.

    Args:
        how: "mean" or "max" of their states.
        first: The first token stays apart: pairs begin behind it.
        truncate: With `first`, the last token is left out, so that lengths halve.
    """

    how: str
    first: bool
    truncate: bool

    def count(self, length: int) -> int:
        """The length after pooling."""
        return -(-(length + (self.first and not self.truncate)) // 2)

    def pairs(self, x: Tensor) -> Tensor:
        """[B, T, ...] -> [B, T', 2, ...]; a last token alone is its own neighbour."""
        if self.first:
            x = torch.cat([x[:, :1], x[:, :-1] if self.truncate else x], 1)
        if x.shape[1] % 2:
            x = torch.cat([x, x[:, -1:]], 1)
        return x.unflatten(1, (-1, 2))

    def states(self, x: Tensor) -> Tensor:
        """[B, T, W] -> [B, T', W]."""
        pairs = self.pairs(x)
        return pairs.mean(2) if self.how == "mean" else pairs.amax(2)

    def stretch(self, x: Tensor, step: int, length: int) -> Tensor:
        """[B, T', W] -> [B, T, W]: states after log2 `step` poolings, each for all of its tokens.
        Tokens that pooling left out have zeros.
        """
        if step == 1:
            return x
        head, rest = (x[:, :1], x[:, 1:]) if self.first else (x[:, :0], x)
        rest = rest.repeat_interleave(step, 1)[:, : length - head.shape[1]]
        missing = length - head.shape[1] - rest.shape[1]
        return torch.cat([head, rest, x.new_zeros(len(x), missing, x.shape[2])], 1)


@dataclass(frozen=True)
class PooledTokens:
    """The tokens between two poolings.

    Args:
        length: T.
        step: Tokens of the text that one of them stands for.
        real: [B, T] bool, the tokens all of whose parts are real; None: every one.
        segment: [B, T] the segment of the first part; None: all tokens have one segment.
    """

    length: int
    step: int
    real: Tensor | None
    segment: Tensor | None

    def pool(self, pooling: PairPooling) -> PooledTokens:
        """The tokens after one pooling."""
        real, segment = self.real, self.segment
        if real is not None:
            real = pooling.pairs(real).all(2)
        if segment is not None:
            first = torch.cat([segment[:, :1], segment], 1) if pooling.first else segment
            segment = first[:, ::2][:, : pooling.count(self.length)]
        return PooledTokens(pooling.count(self.length), 2 * self.step, real, segment)


@part_of("model")
class Funnel(Backbone):
    """Blocks of layers, between which two neighbouring tokens become one, and a decoder that has a
    state for each token again.

    Token ids [B, T] -> states [B, T, W]. The first layer of a block has pooled queries and residual
    sums; its keys and values are the states before pooling. The decoder reads the last states, each
    repeated for all of its tokens, plus the states after the first block. Layers of that block may
    run more than once. The decoder then reads the states after as many runs as it has layers, as in
    the released code. Without a decoder the repeated states are the result. So they are where all
    heads decide about whole rows. A row of up to 2 tokens is not pooled further. Recorded states
    are repeated, too. (Dai et al., 2020, arXiv:2006.03236, sec. 2; laiguokun/Funnel-Transformer.)

    A pair with padding is hidden from others, and the last pair of a row may have some. So a text
    has slightly other states in a longer batch, as in the released code. Packed rows are refused.

    Args:
        embedding: Ids to [B, T, W].
        position: None, since the cells know distances.
        stack: The layers of all blocks.
        pattern: Full.
        blocks: The number of layers of each block; or the number of blocks, as equal as the layers
            allow, the first ones larger.
        decoder: The layers behind it; None: no decoder.
        pooling: "mean" or "max" of two tokens.
        first_apart: The first token stays apart.
        truncate: With `first_apart`, pooling leaves out the last token of the longest row.
        queries_only: Keys and values are the states before pooling; false: after it.
        attention_kernel: Auto or dense.
        initializer: The rule of the first weights.
        classifier: Settings of a head of rows.
    """

    uses = Backbone.uses | {"tracks.segment"}

    def __init__(
        self,
        *,
        embedding: Embedding,
        position: Position,
        stack: Stack,
        pattern: Pattern,
        blocks: int | Sequence[int],
        decoder: Stack | None = None,
        pooling: str = "mean",
        first_apart: bool = True,
        truncate: bool = True,
        queries_only: bool = True,
        attention_kernel: Kernel | None = None,
        initializer: Initializer | None = None,
        classifier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        sizes = split_layers(blocks, stack.num_layers)
        _check(position, attention_kernel, pooling, sizes, [stack, *filter(None, [decoder])])
        self.embedding, self.position = embedding, position
        self.stack, self.decoder = stack, decoder
        self.starts = [sum(sizes[:number]) for number in range(1, len(sizes))]
        self.bridge = _count_own(stack, sizes[0])
        self.pooling = PairPooling(pooling, first_apart, truncate)
        self.queries_only, self.decodes = queries_only, decoder is not None
        self.width = embedding.width
        self.num_layers = stack.num_layers + (0 if decoder is None else decoder.num_layers)
        self.set_pattern(pattern)
        self.initializer, self.classifier = initializer, dict(classifier or {})
        self.needs, self.max_length = frozenset({"text"}) | pattern.needs, None

    @property
    def token_embedding(self) -> Any:  # type: ignore[override]
        return self.embedding.token

    def set_pattern(self, pattern: Pattern) -> None:
        if not isinstance(pattern, Full):
            allowed = "full: pooled tokens see all others"
            raise ConfigError("pattern", type(pattern).__name__, allowed, fix="pattern=full")
        self.pattern = pattern

    def problems(self, path: str, around: PartContext) -> Iterator[ConfigError]:
        """Packed rows."""
        if around.format is not None and "tracks.document" in around.format.provides:
            kind = type(around.format).__name__
            yield ConfigError("format", kind, FORBIDDEN, fix="format=sentence_pair")

    def serve(self, *, words: bool, rows: bool = False) -> None:
        self.decodes = self.decoder is not None and not rows

    def stacks(self, length: int, target_length: int) -> Iterator[tuple[Stack, RowSize]]:
        whole, begin = length, 0
        for start in [*self.starts, self.stack.num_layers]:
            if start > begin:
                yield _cut(self.stack, begin, start), RowSize(length)
            if start < self.stack.num_layers and length > 1 + self.pooling.first:
                before, length = length, self.pooling.count(length)
                keys = float(before) if self.queries_only else None
                yield _cut(self.stack, start, start + 1), RowSize(length, keys=keys)
                start += 1
            begin = start
        if self.decoder is not None and self.decodes:
            yield self.decoder, RowSize(whole)

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        return self.embedding(batch.text, self.position, token_positions(batch.text, 0))

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        """`record={"hidden"}` adds the embedding output and the state after every layer."""
        whole = _begin(batch.text)
        recorded = [x]
        notes: dict[Any, list[Tensor]] = {}
        states, first, level = self._run_blocks(x, whole, recorded, notes)
        length = whole.length
        last = self.pooling.stretch(states, level.step, length)
        if self.decoder is not None and self.decodes:
            streams = Streams({"text": last + first})
            env = Env({"text": self._bind(whole, whole, x)}, seq=batch.text, notes=notes)
            streams, layers = self.decoder(streams, env, record=True)
            last = streams["text"]
            recorded += layers[1:]
        recorded += [last] * (self.num_layers + 1 - len(recorded))
        noted = {part: tuple(values) for part, values in notes.items()}
        kept = {"hidden": recorded} if "hidden" in record else {}
        return Hidden(last, recorded=kept, noted=noted)

    def _run_blocks(
        self, x: Tensor, level: PooledTokens, recorded: list[Tensor], notes: dict[Any, list[Tensor]]
    ) -> tuple[Tensor, Tensor, PooledTokens]:
        """Run the layers of all blocks, and add the states after each of them to `recorded`.

        Returns:
            The last states, the states of the first block for the decoder, and the last tokens.
        """
        length, first = level.length, x
        x = self.stack.lower(x)
        op = self._bind(level, level, x)
        for number in range(self.stack.num_layers):
            streams, own = Streams({"text": x}), op
            if number in self.starts and level.length > 1 + self.pooling.first:
                before, level = level, level.pool(self.pooling)
                streams = Streams({"text": self.pooling.states(x)})
                own = op = self._bind(level, level, x)
                if self.queries_only:
                    streams, own = streams.replace("unpooled", x), self._bind(level, before, x)
            env = Env({"text": own}, notes=notes)
            x = self.stack.layer(number, streams, env)["text"]
            if number + 1 == self.stack.num_layers:
                x = self.stack.final_norm(x)
            if number + 1 == self.bridge:
                first = x
            recorded.append(self.pooling.stretch(x, level.step, length))
        return x, first, level

    def _bind(self, queries: PooledTokens, keys: PooledTokens, like: Tensor) -> PooledOp:
        """Attention of the tokens of one level to those of another."""
        apart = None
        if queries.segment is not None and keys.segment is not None:
            one, other = queries.segment[:, None, :, None], keys.segment[:, None, None]
            apart = (one != other) & (one != BOTH) & (other != BOTH)
        relations = self._relate(queries, keys, like, apart)
        return PooledOp(
            Mask(None if keys.real is None else keys.real[:, None, None]),
            self.position,
            torch.arange(queries.length, device=like.device)[None],
            relations=relations.drop_out(self.embedding.dropout),
            lone_first=self.pooling.first,
        )

    def _relate(
        self, queries: PooledTokens, keys: PooledTokens, like: Tensor, apart: Tensor | None
    ) -> Relations:
        """Distances in tokens of the text: key j is at `o + s j`, query i at `o' + s' i`, with the
        steps s of both levels. If the first token stays apart, o = 1 - s, for the second one is at
        1 in every level; else o = 0.
        """
        if queries.step == keys.step:
            high, low, index = keys.length, 1 - keys.length, None
        else:  # in steps of the keys
            shift = -1 if self.pooling.first else 0
            high, low = shift + 2 * (queries.length - 1), shift + 1 - keys.length
            own, other = (torch.arange(each.length, device=like.device) for each in (queries, keys))
            index = (high - shift - 2 * own[:, None] + other)[None]
        distance = torch.arange(high, low - 1, -1, device=like.device) * keys.step
        table = compute_sinusoids(distance, self.width)[None].to(like.dtype)
        rows = queries.length if index is None else 0
        return Relations(table, high, 0, rows, keys.length, index=index, apart=apart)


def split_layers(blocks: int | Sequence[int], layers: int) -> list[int]:
    """The number of layers of each block, of `blocks` equal ones or as it is stated."""
    if not isinstance(blocks, int):
        return list(blocks)
    least, more = divmod(layers, min(blocks, layers) if blocks > 0 else 1)
    return [least + (number < more) for number in range(min(blocks, layers))]


def _begin(seq: Seq) -> PooledTokens:
    """The tokens of a text; its first token is in all segments."""
    if "document" in seq.tracks:
        raise UsageError(f"Funnel reads {FORBIDDEN}")
    segment = seq.tracks.get("segment")
    if segment is not None:
        segment = torch.cat([torch.full_like(segment[:, :1], BOTH), segment[:, 1:]], 1)
    return PooledTokens(seq.ids.shape[1], 1, None if seq.full else seq.real, segment)


def _count_own(stack: Stack, layers: int) -> int:
    """How many of the first layers have weights of their own."""
    first = [layer[0][0][1] for layer in stack.rounds[:layers]]
    return len({(step.letter, step.copy) for step in first})


def _cut(stack: Stack, begin: int, end: int) -> Stack:
    """A view of some layers of a stack."""
    part = copy.copy(stack)
    part.rounds = stack.rounds[begin:end]
    return part


def _check(
    position: Position,
    kernel: Kernel | None,
    pooling: str,
    blocks: Sequence[int],
    stacks: Sequence[Stack],
) -> None:
    """Raise ConfigError for parts that a model with pooling cannot have."""
    if not isinstance(position, NoPosition):
        allowed = "none: its attention counts distances itself"
        raise ConfigError("position", type(position).__name__, allowed, fix="position=none")
    if not isinstance(kernel, Auto | Dense | None):
        allowed = "auto or dense: its attention computes all scores"
        raise ConfigError("kernel", type(kernel).__name__, allowed, fix="kernel=auto")
    if pooling not in POOLINGS:
        allowed = f"one of {', '.join(POOLINGS)}{nearest(pooling, POOLINGS)}"
        raise ConfigError("model.pooling", pooling, allowed)
    layers = stacks[0].num_layers
    if not blocks or min(blocks) < 1 or sum(blocks) != layers:
        allowed = f"numbers of layers, 1 or more each, {layers} together as the layout has"
        raise ConfigError("model.blocks", list(blocks), allowed)
    for stack in stacks:
        refuse_halting(stack, "its rows change their length")
        if stack.reversible:
            allowed = "false: rows change their length, which cannot be inverted"
            raise ConfigError("model.stack.reversible", True, allowed)
