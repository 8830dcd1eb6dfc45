"""The Transformer backbone of BERT, RoBERTa and GPT.

Encoder and decoder are one class: a decoder is an encoder with the pattern `Causal`, which is a
separate slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType
from typing import Any, NotRequired, Protocol, TypedDict

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.auto import Auto
from plmctl.attention.kernels.base import Bias, Kernel
from plmctl.attention.op import AttentionOp
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.offsets import Offsets
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.stated import check_sight
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.locate import parameters
from plmctl.core.parts import part_of
from plmctl.models.base import Backbone, Hidden
from plmctl.nn.cache import Cache
from plmctl.nn.cells.base import Cell, RowSize
from plmctl.nn.disentangled import DistanceVectors
from plmctl.nn.embeddings import Embedding
from plmctl.nn.env import Env, SourceStates, Streams
from plmctl.nn.halting import Halting
from plmctl.nn.peft.prompt import LearnedPrompt
from plmctl.nn.positions import Position
from plmctl.nn.recorder import ATTENTION, HASHES, NONE, Record, Recorder
from plmctl.nn.stack import Stack

Initializer = Callable[..., None]  # (module, *, generator)
_PAIRS = frozenset({"scores", "attention"})  # recorded of a query and a key


class Remembered(Protocol):
    """The input of each layer in earlier rows."""

    @property
    def layers(self) -> tuple[Tensor, ...]:
        """[B, M, W] each, M may differ from layer to layer."""
        ...

    @property
    def length(self) -> Tensor:
        """[B] how many of them are filled, the last ones."""
        ...


class EncoderParts(TypedDict):
    """The settings of an `Encoder` without its stack; encoders of other kinds pass them on."""

    embedding: Embedding
    position: Position
    pattern: Pattern
    attention_kernel: NotRequired[Kernel | None]
    initializer: NotRequired[Initializer | None]
    classifier: NotRequired[Mapping[str, Any] | None]


@part_of("model")
class Encoder(Backbone):
    """`stack(embedding(ids))`, with attention by `pattern & Padding & Documents`.

    Token ids [B, T] -> states [B, T, W]. `initializer(model, generator=g)` is the rule that draws
    the first weights of the backbone and of its heads; it is kept here and called by whoever starts
    a model from nothing. `attention_kernel` computes attention; None: `Auto`. `classifier` says how
    rows are classified in fine-tuning: `pooler`, whether BERT's stands before the head, and
    settings of `heads.classify.Classify`.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        position: Position,
        stack: Stack,
        pattern: Pattern,
        attention_kernel: Kernel | None = None,
        initializer: Initializer | None = None,
        classifier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.position, self.stack = embedding, position, stack
        self.width, self.num_layers = embedding.width * stack.widening, stack.num_layers
        _check_position(stack, position)
        cells = [blocks[0].cell for blocks in stack.blocks.values()]  # type: ignore[index, misc]
        self._embeds = any("embedded" in cell.facts.reads for cell in cells)
        self.set_pattern(pattern)
        self.kernel = attention_kernel or Auto()
        if (rates := self._find_rates()) and len(rates) == len(self._list_attention()):
            self.kernel = self.kernel.settle(
                bias=self._find_bias(),
                dropout=max(rates.values()),
                head_width=self._find_head_width(),
            )
        self.initializer, self.classifier = initializer, dict(classifier or {})
        self.needs = frozenset({"text"}) | self.pattern.needs
        self.max_length = position.max_length
        self.prompt: LearnedPrompt | None = None  # learned vectors before the tokens
        self.offset = 0  # positions before that of the first token

    @property
    def token_embedding(self) -> nn.Module:  # type: ignore[override]
        return self.embedding.token

    @property
    def prompt_reader(self) -> Encoder | None:
        return self if self.plain and isinstance(self.embedding, Embedding) else None

    @property
    def plain(self) -> bool:
        """Whether it computes what an `Encoder` does: a stack reads the text, nothing else."""
        return type(self) is Encoder

    @property
    def layer_patterns(self) -> list[Pattern]:
        """The pattern of each layer; the only one if it is the same in all."""
        return [self.pattern.at_layer(layer) for layer in range(self.pattern.layers)]

    @property
    def records(self) -> frozenset[str]:  # type: ignore[override]
        attention = ATTENTION if self.stack.records else frozenset()
        return frozenset({"hidden"}) | attention | (HASHES if self.stack.hashes else frozenset())

    @property
    def halting(self) -> Mapping[str, Halting]:
        return {} if self.stack.halting is None else {"text": self.stack.halting}

    def set_pattern(self, pattern: Pattern) -> None:
        check_sight(pattern)
        _check_cells(self.stack, pattern)
        _check_layers(self.stack, pattern)
        _check_heads(self.stack, pattern)
        self.pattern = pattern & Padding() & Documents()

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        return self.embed_tokens(batch.text, state.length if isinstance(state, Cache) else 0)

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        """`record={"hidden"}` adds the embedding output and the state after every layer to
        `recorded["hidden"]`; other names are those of `nn.recorder`.

        With a `Cache` as state the batch holds only new tokens, which follow the cached ones.
        """
        return self.read(batch.text, x, cache=state, record=record)

    def list_layer_parts(self) -> list[list[nn.Module]]:
        plain = self.plain or type(self).encode is Encoder.encode  # others read more streams
        # parts that methods of fine-tuning add outside of the layers are trained
        plain &= not set(self._modules) - {"embedding", "position", "stack", "places"}
        stack = self.stack
        if not plain or stack.halting is not None or stack.weighted or stack.reversible:
            return []
        below: list[nn.Module] = [self.embedding, self.position]
        return [below, *self.stack.list_layers()]

    def go_on(self, states: Sequence[Tensor], batch: Batch, record: Record = NONE) -> Hidden:
        hidden = self.read(batch.text, states[-1], record=record, first=len(states) - 1)
        if "hidden" not in record:
            return hidden
        recorded = [*states[:-1], *hidden.recorded["hidden"]]
        return replace(hidden, recorded={**hidden.recorded, "hidden": recorded})

    def read_at(self, batch: Batch, index: Tensor) -> Tensor | None:
        """Positions that change the stream of each layer, and a prompt, are read as a whole."""
        seq, (rows, length) = batch.text, batch.text.ids.shape
        moved = type(self.position).every_step is not Position.every_step
        plain = self.prompt is None and not moved and bool(self.list_layer_parts())
        if (
            not plain
            or not self.stack.narrows
            or len(index) % rows
            or 2 * len(index) > seq.ids.numel()
        ):
            return None
        places = index.view(rows, -1) - torch.arange(rows, device=index.device)[:, None] * length
        if bool(((places < 0) | (places >= length)).any()):
            return None
        x = self.embed(batch)
        content = self.read(seq, x, end=self.num_layers - 1).last
        return self.read_last(seq, content, places).flatten(0, 1)

    def read_last(self, seq: Seq, content: Tensor, places: Tensor) -> Tensor:
        """[B, P, W] the states after the last layer.

        Args:
            content: [B, T, W] the states before the last layer.
            places: [B, P] the tokens whose states are computed.
        """
        query = content.gather(1, places[..., None].expand(-1, -1, content.shape[-1]))
        last, op = self.num_layers - 1, AttentionOp(self.pattern, self.position, self.kernel)
        bound = op.bind_at(seq, places, positions=token_positions(seq, 0), layer=last)
        streams = Streams({"text": query, "content": content})
        return self.stack(streams, Env({"text": bound}, seq=seq), first=last)[0]["text"]

    def stacks(self, length: int, target_length: int) -> Iterator[tuple[Stack, RowSize]]:
        length += 0 if self.prompt is None else self.prompt.length
        shares = [self.kernel.share(pattern, length) for pattern in self.layer_patterns]
        share, stored = sum(shares) / len(shares), self.kernel.stores_scores
        keys = None if share == 1 else share * length
        yield self.stack, RowSize(length, keys=keys, stored=stored)

    def find_kernel_problem(self, length: int) -> ConfigError | None:
        """The reason why the kernel cannot train this model in rows of up to `length` tokens."""
        rates = self._find_rates()
        if not rates:
            return None
        if (narrowest := self._find_head_width()) < self.kernel.least_head_width:
            name, least = type(self.kernel).__name__.lower(), self.kernel.least_head_width
            allowed = f"heads of {least} columns or more for kernel={name}"
            return ConfigError(
                "size.num_heads", f"heads of {narrowest}", allowed, fix="kernel=auto"
            )
        dropout, bias = max(rates.values()), self._find_bias()
        problems = (
            self.kernel.problem(pattern, length, bias=bias, dropout=dropout)
            for pattern in self.layer_patterns
        )
        problem = next(filter(None, problems), None)
        if problem is None or problem.path != "dropout":
            return problem
        own = [f"model.stack.cells.{letter}.dropout" for letter, rate in rates.items() if rate]
        fix = f"{problem.fix} or {' '.join(f'{setting}=0' for setting in own)}"
        return ConfigError(own[0], problem.value, problem.allowed, fix=fix)

    def _find_rates(self) -> dict[str, float]:
        """{letter of the layout: rate of dropout on probabilities} of its cells of attention."""
        cells = self._list_attention().items()
        found = ((letter, cell.projections().heads) for letter, cell in cells)
        return {letter: heads.dropout for letter, heads in found if heads is not None}

    def _list_attention(self) -> dict[str, Cell]:
        """{letter of the layout: its first cell}, for cells that compute attention."""
        cells: dict[str, Cell] = {
            letter: blocks[0].cell  # type: ignore[index, misc]
            for letter, blocks in self.stack.blocks.items()
        }
        return {
            letter: cell for letter, cell in cells.items() if cell.facts.computes == "attention"
        }

    def _find_head_width(self) -> int:
        """Columns of the narrowest head of its cells of attention."""
        found = (cell.projections().heads for cell in self._list_attention().values())
        return min(heads.width for heads in found if heads is not None)

    def _find_bias(self) -> Bias | None:
        """The function of positions that is added to scores; None: none."""
        changes = type(self.position).bias is not Position.bias
        return self.position.bias if changes else None

    def fresh_cache(self, batch: Batch) -> Cache:
        return Cache.of(len(self.stack.steps))

    def embed_tokens(self, seq: Seq, start: int = 0, vectors: Tensor | None = None) -> Tensor:
        """[B, T, W] the input of the first layer, for tokens from position `start` on; from 0 on
        with the prompt before them, [B, P + T, W]. `vectors` [B, T, E] replace those of the table.
        """
        if self.prompt is not None and start == 0:
            vectors = self.embedding.token(seq.ids) if vectors is None else vectors
            vectors, seq = self.prompt.before(vectors), self.prompt.extend(seq)
        return self.embedding(seq, self.position, self._places(seq, start), vectors)

    def _places(self, seq: Seq, start: int) -> Tensor:
        """[B | 1, T] where tokens stand, in the vectors of positions."""
        places = token_positions(seq, start)
        return places + self.offset if self.offset else places

    def read(
        self,
        seq: Seq,
        x: Tensor,
        *,
        cache: Cache | None = None,
        source: SourceStates | None = None,
        memory: Remembered | None = None,
        record: Record = NONE,
        beside: Mapping[str, Tensor] = MappingProxyType({}),
        first: int = 0,
        end: int | None = None,
        whole: bool = False,
    ) -> Hidden:
        """The states of `seq`, whose embeddings are `x`; cross-attention reads `source`, each layer
        its own part of `memory`, and some cells further streams that stand `beside` the text.

        Args:
            first: The number of the layer that reads `x`; those before it do not run.
            end: The number of the first layer that does not run; None: all run.
            whole: Whether the states of the prompt are among them.
        """
        start, recorder = 0 if cache is None else cache.length, Recorder.of(record)
        before = 0
        if self.prompt is not None and start == 0:
            seq, before = self.prompt.extend(seq), 0 if whole else self.prompt.length
        seen = seq if cache is None else cache.extend(seq)
        op = AttentionOp(self.pattern, self.position, self.kernel)
        places = {
            "positions": token_positions(seq, start),
            "all_positions": token_positions(seen, 0),
        }
        by_layer = op.bind_layers(seen, **places, start=start)
        bound = by_layer[0] if by_layer else op.bind(seen, **places, start=start)
        text = {"text": x, **({} if first else {"embedded": x} if self._embeds else {}), **beside}
        streams = Streams(
            text if source is None else {**text, "source": source.states},
            {} if memory is None else {"memory": memory.layers},
        )
        ops = {"text": bound, **({"source": source.op} if source else {})}
        filled = None if memory is None else memory.length
        env = Env(ops, by_layer, seq=seq, cache=cache, recorder=recorder, filled=filled)
        # a module that replaces a stack runs all of it
        some = {"first": first} if first else {}
        some |= {} if end is None else {"end": end}
        streams, hidden = self.stack(streams, env, record="hidden" in record, **some)
        recorded = {
            **({"hidden": hidden} if hidden else {}),
            **(recorder.recorded if recorder else {}),
        }
        ponder = streams.get("ponder")
        pondered = {} if ponder is None else {"text": ponder}
        # a second run in the backward pass notes everything again
        noted = {part: tuple(notes) for part, notes in env.notes.items()}
        result = Hidden(
            streams["text"], recorded=recorded, state=cache, pondered=pondered, noted=noted
        )
        return _leave_out(result, before) if before else result


def _leave_out(hidden: Hidden, places: int) -> Hidden:
    """`hidden` without the first positions."""
    recorded = {
        name: [
            x[:, places:] if name == "hidden" else x[:, :, places:, places * (name in _PAIRS) :]
            for x in tensors
        ]
        for name, tensors in hidden.recorded.items()
    }
    pondered = {name: x[:, places:] for name, x in hidden.pondered.items()}
    return replace(hidden, last=hidden.last[:, places:], recorded=recorded, pondered=pondered)


def _check_cells(stack: Stack, pattern: Pattern) -> None:
    """Raise ConfigError for a cell that ignores the pattern and reads what it forbids."""
    by_layer = (pattern.at_layer(layer).always_seen() for layer in range(pattern.layers))
    seen = reduce(Offsets.__and__, by_layer)
    for letter, blocks in stack.blocks.items():
        cell = blocks[0].cell  # type: ignore[index]
        if not (cell.facts.own_offsets & ~seen).is_empty():
            reads = (
                "reads earlier and later tokens" if cell.facts.ahead else "reads all earlier tokens"
            )
            wanted = f"{reads}, but {type(pattern).__name__} allows less"
            kind: Any = type(cell)
            causal = isinstance(pattern, Causal) and "causal" in parameters(kind)
            fix = (
                f"model.stack.cells.{letter}.causal=true"
                if causal
                else f"pattern=full, or no '{letter}' in the layout"
            )
            raise ConfigError(f"model.stack.cells.{letter}", type(cell).__name__, wanted, fix=fix)


def _check_layers(stack: Stack, pattern: Pattern) -> None:
    """Raise ConfigError for a pattern of another number of layers."""
    if pattern.layers not in (1, stack.num_layers):
        allowed = f"one for each layer, and the layout has {stack.num_layers}; or the same for all"
        count = stack.num_layers
        fix = f"pattern.reach=<a number, or a list of {count}>, or pattern.num_layers={count}"
        raise ConfigError("pattern", f"windows for {pattern.layers} layers", allowed, fix=fix)


def _check_heads(stack: Stack, pattern: Pattern) -> None:
    """Raise ConfigError for a pattern that tells other heads apart than a cell has."""
    for letter, blocks in stack.blocks.items():
        cell = blocks[0].cell  # type: ignore[index]
        heads = getattr(cell, "num_heads", pattern.heads)
        if cell.facts.ahead is None and pattern.heads not in (1, heads):
            allowed = f"one for each of the {heads} heads of '{letter}', or the same for all"
            raise ConfigError("pattern", f"windows for {pattern.heads} heads", allowed)


def refuse_halting(stack: Stack, reason: str) -> None:
    """Raise ConfigError if the tokens of `stack` halt, or its layers read all earlier ones, where a
    model cannot carry it.
    """
    for name in ("halting", "weighted"):
        if getattr(stack, name) is not None:
            raise ConfigError(f"model.stack.{name}", ..., f"null: {reason}")


def _check_position(stack: Stack, position: Position) -> None:
    """Raise ConfigError for positions that change scores, or queries and keys, of a cell that
    cannot use them, or that serve fewer layers.
    """
    position.check_layers(stack.num_layers)
    adds = type(position).bias is not Position.bias
    turns = type(position).rotate is not Position.rotate
    for letter, blocks in stack.blocks.items():
        cell = blocks[0].cell  # type: ignore[index]
        name = f"{type(cell).__name__} ({letter})"
        if adds and not cell.facts.biased:
            allowed = f"positions that change no scores: {name} adds none"
            raise ConfigError("position", type(position).__name__, allowed, fix="position=learned")
        if turns and not cell.facts.turned:
            allowed = f"positions that turn no queries and keys: {name} knows distances itself"
            raise ConfigError("position", type(position).__name__, allowed, fix="position=none")
        reads = cell.facts.computes == "attention" and cell.facts.turned
        if position.turns_values and reads and cell.projections().heads is None:
            allowed = f"false: {name} reads its values as they are"
            raise ConfigError("position.values", True, allowed, fix="position.values=false")
        if cell.facts.reads_distances and not isinstance(position, DistanceVectors):
            allowed = f"positions with vectors of distances, which {name} reads"
            fix = "position=disentangled"
            raise ConfigError("position", type(position).__name__, allowed, fix=fix)


def token_positions(seq: Seq, start: int) -> Tensor:
    """[B | 1, T] the position track if rows are packed or padded at the left, otherwise `start`,
    `start + 1`, ...
    """
    track = seq.tracks.get("position")
    return (
        torch.arange(start, start + seq.ids.shape[1], device=seq.ids.device)[None]
        if track is None
        else track
    )
