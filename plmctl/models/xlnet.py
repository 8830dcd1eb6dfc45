"""The backbone of XLNet (Yang et al., 2019) and, without its second stream, of Transformer-XL
(Dai et al., 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.auto import Auto
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense, Mask
from plmctl.attention.patterns.base import Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.attention.patterns.documents import Documents
from plmctl.attention.patterns.order import Order
from plmctl.attention.patterns.padding import Padding
from plmctl.attention.patterns.stated import check_sight
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.models.base import Backbone, Hidden
from plmctl.models.encoder import Initializer, refuse_halting, token_positions
from plmctl.models.query_rows import QueryRows, make_query_rows
from plmctl.models.segment_memory import KeyMemory, Memory, see
from plmctl.nn.cache import Cache
from plmctl.nn.cells.relative_attention import RelativeAttention
from plmctl.nn.embeddings import Embedding
from plmctl.nn.env import Env, Streams
from plmctl.nn.positions import NoPosition, Position
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.relations import Relations, RelativeOp, make_relations
from plmctl.nn.stack import Stack

TARGETS = "plm"


@part_of("model")
class XLNet(Backbone):
    """Two streams over one stack: the content stream h, which sees its token, and the query stream
    g, which sees only its position.

    `h_t` sees h of order <= its own (`tracks.order`; without it all), and g_t only h of lower
    order; both within `pattern`. Token ids [B, T] -> states h [B, T, W]. `streams["query"]` [P, W]
    are g at the positions of `targets.plm`. Only those are computed, as rows after the content
    rows. `g` begins as one learned vector. Distances and changes of segment replace absolute
    positions and segments; in rows whose `values.reversed` is set, distances count backwards.

    State: each layer's input of the first `reuse` tokens of a row (null: of all) is appended to
    those of earlier rows; the last `memory` are kept (or as many as `fresh_state` was given),
    without gradient; all tokens see them, as tokens of segment 0. A row that does not continue
    (`values.continues`) sees none. `two_streams=False` with `pattern=causal` is Transformer-XL.
    With `same_length` every query sees equally many tokens, itself and those before it: as many as
    the memory has. Distances above `clamp_len` count as that one.
    (arXiv:1906.08237, sec. 2.3 to 2.5, appendix A.2; arXiv:1901.02860, sec. 3.2; zihangdai/xlnet,
    modeling.py.) Differs: each row decides whether it reads backwards, not its half of the batch;
    dropout on the sinusoids is the same for all rows.
    """

    uses = Backbone.uses | {"tracks.segment", "tracks.order"}

    def __init__(
        self,
        *,
        embedding: Embedding,
        position: Position,
        stack: Stack,
        pattern: Pattern,
        attention_kernel: Kernel | None = None,
        memory: int,
        reuse: int | None = None,
        two_streams: bool = True,
        same_length: bool = False,
        clamp_len: Count | None = None,
        initializer: Initializer | None = None,
        classifier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(position, NoPosition):
            allowed = "none: relative attention counts distances itself"
            raise ConfigError("position", type(position).__name__, allowed, fix="position=none")
        if not isinstance(attention_kernel, Auto | Dense | None):
            allowed = "auto or dense: relative attention computes all scores"
            raise ConfigError("kernel", type(attention_kernel).__name__, allowed, fix="kernel=auto")
        if memory < 0:
            raise ConfigError("memory", memory, "0 (no memory) or more tokens")
        if reuse is not None and reuse < 1:
            raise ConfigError("reuse", reuse, "at least 1 token of each row, or null: all")
        if same_length and not memory:
            allowed = "false: this model has no memory whose length could count"
            raise ConfigError("same_length", True, allowed, fix="same_length=false")
        self.same_length, self.clamp_len = same_length, clamp_len
        self.embedding, self.position, self.stack = embedding, position, stack
        self.width, self.num_layers = embedding.width, stack.num_layers
        self.memory, self.reuse, self.two_streams = memory, reuse, two_streams
        self.set_pattern(pattern)
        self.query = (
            nn.Parameter(torch.empty(1, embedding.width).normal_(std=0.02)) if two_streams else None
        )
        self.streams = frozenset({"query"}) if two_streams else frozenset()
        self.asked_rows = int(two_streams)
        self.initializer, self.classifier = initializer, dict(classifier or {})
        self.needs = frozenset({"text", *(["values.continues"] if memory else [])}) | pattern.needs
        self.max_length = None
        self._check_layers(memory)

    @property
    def token_embedding(self) -> nn.Module:  # type: ignore[override]
        return self.embedding.token

    def set_pattern(self, pattern: Pattern) -> None:
        check_sight(pattern)
        if pattern.layers > 1:
            allowed = "a pattern that is the same in all layers, for this model"
            raise ConfigError("pattern", f"{pattern.layers} layers", allowed, fix="model=decoder")
        self.pattern = pattern & Padding() & Documents() & Order()
        self.query_pattern = pattern & Padding() & Documents() & Order(strict=True)

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        return self.embedding(batch.text, self.position, token_positions(batch.text, 0))

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        """`record={"hidden"}` adds the embedding output and the content state after every layer
        to `recorded["hidden"]`.
        """
        if isinstance(state, Cache):
            return self._continue(x, batch.text, state)
        seq, query_rows, length = batch.text, None, x.shape[1]
        memory: Memory | KeyMemory | None = (
            None if state is None else state.resume(batch.require("values.continues"))
        )
        if self.query is not None and TARGETS in batch.targets:
            batch.require("tracks.order")
            query_rows = make_query_rows(batch.targets[TARGETS], *seq.ids.shape)
            x = self._add_queries(x, query_rows.positions.shape[1])
        op = RelativeOp(
            self._mask(seq, query_rows, memory),
            self.position,
            token_positions(seq, 0),
            relations=self._relations(seq, x, query_rows, memory, batch.values.get("reversed")),
            keys=length,
        )
        outputs, layers = self.stack(
            Streams({"text": x}, {} if memory is None else memory.streams),
            Env({"text": op}, cache=None if memory is None else memory.cache),
            record="hidden" in record or not isinstance(memory, KeyMemory | None),
        )
        last = self.embedding.dropout(outputs["text"])
        streams = (
            {} if query_rows is None else {"query": last[:, length:].flatten(0, 1)[query_rows.slot]}
        )
        recorded = {"hidden": [layer[:, :length] for layer in layers]} if "hidden" in record else {}
        kept = None if memory is None else self._update_memory(memory, layers, length)
        return Hidden(last[:, :length], streams, kept, recorded)

    def fresh_state(
        self, rows: int, device: torch.device, memory: int | None = None
    ) -> Memory | None:
        room = self.memory if memory is None else memory
        if not room:
            return None
        self._check_layers(room)
        kind = next(self.stack.parameters()).dtype
        empty = torch.zeros(rows, room, self.width, device=device, dtype=kind)
        return Memory(
            (empty,) * self.num_layers, torch.zeros(rows, dtype=torch.int64, device=device)
        )

    def reading_state(
        self, rows: int, device: torch.device, memory: int | None = None
    ) -> Memory | KeyMemory | None:
        """Keys and values instead of states, unless a cell would store something else, too."""
        state = self.fresh_state(rows, device, memory)
        cells = [self.stack.block(step).cell for step in self.stack.steps]
        if state is None or any(cell.facts.ahead is not None for cell in cells):
            return state
        return KeyMemory(Cache.of(len(cells)), state.length, state.size)

    def fresh_cache(self, batch: Batch, memory: Memory | None = None) -> Cache:
        """A cache to read token by token, after `memory` if this is not None; with `same_length` it
        has no more tokens than the model's memory.

        `last` is then what predicts the token after each new one: with two streams, the query
        stream at the next position.
        """
        cache = Cache.of(len(self.stack.steps))
        if memory is not None:
            cache.memory = (torch.stack(memory.layers), memory.length)
        return cache

    def _continue(self, x: Tensor, new: Seq, cache: Cache) -> Hidden:
        """The states of new tokens; with two streams also of one query row after each, which sees
        what that token sees.
        """
        memory = Memory(cache.memory[0].unbind(0), cache.memory[1]) if cache.memory else None
        limited = memory is None and self.same_length
        if limited:
            cache.keep_last(self.memory - 1)
        start, length = cache.length, x.shape[1]
        seen = cache.extend(new)
        front = 0 if memory is None else memory.size
        allowed = (self.pattern & Causal()).dense(seen, k_offset=start)
        assert allowed is not None  # causal at least
        if self.query is not None:
            x, allowed = self._add_queries(x, length), torch.cat([allowed, allowed], 2)
        places = torch.arange(start, start + length, device=x.device)
        places = places if self.query is None else torch.cat([places, places + 1])
        allowed = self._add_memory(memory, allowed, places[None])
        if limited:
            keys = torch.arange(allowed.shape[3], device=x.device)
            allowed = allowed & (keys > places[:, None] - self.memory)
        op = RelativeOp(
            Mask(allowed),
            self.position,
            token_positions(new, start),
            relations=self._relations_of_new(seen, start, front, x),
            keys=length,
        )
        streams, _ = self.stack(
            Streams({"text": x}, {} if memory is None else {"memory": memory.layers}),
            Env({"text": op}, cache=cache),
        )
        return Hidden(streams["text"][:, -length:], state=cache)

    def _add_queries(self, x: Tensor, count: int) -> Tensor:
        """[B, T + count, W] content rows, then query rows."""
        assert self.query is not None
        queries = self.embedding.dropout(self.query.to(x.dtype).expand(x.shape[0], count, -1))
        return torch.cat([x, queries], 1)

    def _mask(
        self, seq: Seq, query_rows: QueryRows | None, memory: Memory | KeyMemory | None
    ) -> Mask:
        if query_rows is None and memory is None:
            return Mask.of(self.pattern, seq)
        length = seq.ids.shape[1]
        allowed = self.pattern.dense(seq)
        everything = torch.ones(1, 1, length, length, dtype=torch.bool, device=seq.ids.device)
        allowed = everything if allowed is None else allowed.expand(-1, -1, length, -1)
        places = torch.arange(length, device=seq.ids.device)[None]
        if query_rows is not None:
            rows = query_rows.positions.shape[0]
            places = torch.cat([places.expand(rows, -1), query_rows.positions], 1)
            asking = query_rows.real[:, None, :, None]
            before = self.query_pattern.dense(seq, q_index=query_rows.positions)
            allowed = _cat(
                [allowed, asking.expand(-1, -1, -1, length) if before is None else before & asking],
                2,
            )
        return Mask(self._add_memory(memory, allowed, places))

    def _add_memory(
        self, memory: Memory | KeyMemory | None, allowed: Tensor, places: Tensor
    ) -> Tensor:
        """[B | 1, H | 1, Tq, M + K]: every query sees all filled memory. With `same_length` it sees
        only the last tokens, as many as fit into it.

        Args:
            places: [B | 1, Tq] where each query stands in the text.
        """
        if memory is None:
            return allowed
        seen = _cat([see(memory).expand(-1, -1, allowed.shape[2], -1), allowed], 3)
        if self.same_length:  # key k stands at k - M
            keys = torch.arange(seen.shape[3], device=seen.device) + (memory.room - memory.size)
            seen = seen & (keys > places[:, None, :, None])
        return seen

    def _relations(
        self,
        seq: Seq,
        x: Tensor,
        query_rows: QueryRows | None,
        memory: Memory | KeyMemory | None,
        reversed: Tensor | None,
    ) -> Relations:
        """Distances and segments of all rows and keys."""
        front = 0 if memory is None else memory.size
        segment, apart = seq.tracks.get("segment"), None
        if segment is not None:
            own = (
                segment
                if query_rows is None
                else torch.cat([segment, segment.gather(1, query_rows.positions)], 1)
            )
            apart = _apart(own, segment, front)
        make = partial(
            make_relations,
            width=self.width,
            first=front,
            rows=seq.ids.shape[1],
            like=x,
            apart=apart,
            reversed=reversed,
            positions=None if query_rows is None else front + query_rows.positions,
            farthest=self.clamp_len,
        )
        plain = apart is None and reversed is None and query_rows is None
        if plain and isinstance(memory, KeyMemory):
            return memory.relate(seq.ids.shape[1], make)
        return make().drop_out(self.embedding.dropout)

    def _relations_of_new(self, seen: Seq, start: int, front: int, x: Tensor) -> Relations:
        """Distances and segments of the tokens from `start` on and of the positions after them."""
        kinds = range(1 if self.query is None else 2)
        position = seen.tracks.get("position") if front else None
        segment = seen.tracks.get("segment")
        own = None if segment is None else torch.cat([segment[:, start:] for _ in kinds], 1)
        # with padding between memory and text, the positions of keys are not consecutive
        if position is not None:
            keys = torch.cat(
                [
                    torch.arange(front, device=position.device).expand(position.shape[0], -1),
                    front + position,
                ],
                1,
            )
            asking: Tensor | None = torch.cat(
                [front + position[:, start:] + behind for behind in kinds], 1
            )
        else:
            keys = None
            asking = torch.arange(
                front + start + 1, front + seen.ids.shape[1] + 1, device=x.device
            )[None]
            asking = asking if self.query is not None else None
        return make_relations(
            width=self.width,
            first=front + start,
            rows=seen.ids.shape[1] - start,
            like=x,
            positions=asking,
            key_positions=keys,
            apart=None if own is None or segment is None else _apart(own, segment, front),
            farthest=self.clamp_len,
        )

    def _update_memory(
        self, memory: Memory | KeyMemory, layers: list[Tensor], length: int
    ) -> Memory | KeyMemory:
        """Memory with the first `reuse` of `length` new tokens."""
        count = length if self.reuse is None else self.reuse
        if count > length:
            allowed = f"at most {length}, the tokens of a row"
            raise ConfigError("model.reuse", count, allowed, fix="model.reuse=null")
        return memory.append(layers, length, count)

    def _check_layers(self, memory: int) -> None:
        """Raise ConfigError unless attention is the first cell of each layer, since memory is the
        input of a layer.
        """
        if self.stack.widening != 1:
            allowed = "mean: the two streams of this model have one width"
            raise ConfigError("model.stack.join", self.stack.join, allowed)
        refuse_halting(self.stack, "memory and queries are of every layer")
        if memory and self.stack.reversible:
            allowed = "false: memory is the input of a layer, and a layer here has two"
            raise ConfigError("model.stack.reversible", True, allowed, fix="model.memory=0")
        for layer in self.stack.rounds:
            for _, step in [step for later in layer[1:] for step in later] if memory else []:
                if isinstance(self.stack.block(step).cell, RelativeAttention):
                    allowed = (
                        f"each group beginning with '{step.letter}',"
                        " because memory is the input of a layer"
                    )
                    fix = "model.memory=0"
                    raise ConfigError("model.stack.layout", step.letter, allowed, fix=fix)


def _apart(own: Tensor, segment: Tensor, front: int) -> Tensor:
    """[B, 1, Tq, front + K] whether query and key are of different segments; memory is of
    segment 0.
    """
    keys = torch.cat([segment.new_zeros(segment.shape[0], front), segment], 1)
    return own[:, None, :, None] != keys[:, None, None, :]


def _cat(parts: list[Tensor], axis: int) -> Tensor:
    """`torch.cat` with broadcasting of the other axes."""
    sizes = [max(part.shape[axis_number] for part in parts) for axis_number in range(4)]
    return torch.cat(
        [
            part.expand([-1 if axis_number == axis else n for axis_number, n in enumerate(sizes)])
            for part in parts
        ],
        axis,
    )
