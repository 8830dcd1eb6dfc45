"""Two stacks (Vaswani et al., 2017): the encoder reads the source, the decoder writes the
target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from plmctl.attention.kernels.dense import Mask
from plmctl.attention.op import BoundOp
from plmctl.attention.patterns.padding import Padding
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError, UsageError, nearest
from plmctl.core.parts import part_of
from plmctl.models.base import Backbone, Hidden
from plmctl.models.encoder import Encoder, Initializer, refuse_halting, token_positions
from plmctl.nn.cache import Cache
from plmctl.nn.cells.base import RowSize
from plmctl.nn.env import SourceStates
from plmctl.nn.halting import Halting
from plmctl.nn.positions import NoPosition
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.stack import Stack

if TYPE_CHECKING:
    from plmctl.text.vocab import Vocab

ROLES = ("cls", "sep", "bos", "eos", "pad", "mask")
LAST = "last"  # instead of a role: the last token of the target


@part_of("model")
class EncoderDecoder(Backbone):
    """`last = decoder(start, y_1 .. y_{n-1} | encoder(x))`: source ids [B, S] and target ids [B, T]
    -> states [B, T, W].

    The state at position t has read the target before t, and predicts y_t. `streams["encoder"]` are
    the states of the source [B, S, W]. The first token that the decoder reads is `start`: a role of
    the tokenizer, or an id. With "last" it is the last token of each target, which names its
    language (Liu et al., 2020, arXiv:2001.08210, sec. 2.2). `forced` is the first token of every
    text that is written; training ignores it. Where a row has a track `target.tracks.previous`, the
    decoder reads that instead. Without a target, both stacks read the text, which classifies a
    sequence (Lewis et al., 2020, arXiv:1910.13461, sec. 3.1). In packed rows a document sees only
    its own source. `tied`: one table of tokens for both stacks. `unread`: a token whose states
    cross-attention leaves out, as MASS does with the mask (microsoft/MASS,
    MASS-unsupNMT/src/trainer.py, mass_step). `front`: another encoder, whose states the encoder
    reads instead of vectors of tokens. A pretrained model so learns to read another language (Lewis
    et al., sec. 3.4).

    With a `Cache` the batch holds the very tokens that the decoder reads next, as `target`.
    """

    writes = "target"
    uses = Backbone.uses | {"tracks.previous"}

    def __init__(
        self,
        *,
        encoder: Encoder,
        decoder: Encoder,
        start: str | int,
        tied: bool = True,
        forced: str | int | None = None,
        unread: str | int | None = None,
        front: Encoder | None = None,
        vocab: Vocab | None = None,
        initializer: Initializer | None = None,
        classifier: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        for name, part in (("encoder", encoder), ("front", front)):
            if part is not None and part.stack.widening != 1:
                allowed = "mean: another stack reads its states, which have the width of the model"
                raise ConfigError(f"model.{name}.stack.join", part.stack.join, allowed)
        if front is not None:
            refuse_halting(front.stack, "model.front is read as a whole")
        self.encoder, self.decoder, self.front = encoder, decoder, front
        self.width, self.num_layers = decoder.width, decoder.num_layers
        if tied:
            decoder.embedding.token = encoder.embedding.token
        self.start = LAST if start == LAST else _id("start", start, vocab, decoder)
        self.forced = None if forced is None else _id("forced", forced, vocab, decoder)
        self.unread = None if unread is None else _id("unread", unread, vocab, encoder)
        self.initializer, self.classifier = initializer, dict(classifier or {})
        self.needs = (encoder.needs | decoder.needs) - {"text"}
        lengths = [
            part.max_length for part in (encoder, front) if part and part.max_length is not None
        ]
        self.max_length = min(lengths, default=None)

    @property
    def prompt_reader(self) -> Encoder | None:
        return self.encoder.prompt_reader if self.front is None else None

    @property
    def max_target(self) -> int | None:
        return self.decoder.max_length

    @property
    def token_embedding(self) -> nn.Module:  # type: ignore[override]
        return self.decoder.token_embedding

    @property
    def records(self) -> frozenset[str]:  # type: ignore[override]
        return self.decoder.records | {"source", "encoder"}

    @property
    def halting(self) -> Mapping[str, Halting]:
        stacks = {"source": self.encoder.stack, "target": self.decoder.stack}
        return {name: stack.halting for name, stack in stacks.items() if stack.halting is not None}

    def looks_ahead(self, seq: str) -> bool:
        return seq != "target" or self.decoder.looks_ahead("text")

    def embed(self, batch: Batch, state: Any = None) -> Tensor:
        """[B, T, W] the input of the decoder's first layer."""
        if isinstance(state, Cache):
            return self.decoder.embed_tokens(_target(batch), state.length)
        return self.decoder.embed_tokens(self._previous(_target(batch)))

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        """The decoder from `x` on; `record={"hidden"}` records its layers, {"source"} those of
        the encoder, and the names of `nn.recorder` the decoder's self-attention. {"encoder"} has
        the last states of the encoder; alone, it runs no decoder.
        """
        if isinstance(state, Cache):
            assert isinstance(state.source, SourceStates)
            hidden = self.decoder.read(
                _target(batch), x, cache=state, source=state.source, record=record
            )
            return replace(hidden, pondered=_rename(target=hidden))
        read, encoded = self._read(batch, record)
        layers = [x[:, self._places :] for x in encoded.recorded.get("hidden", [])]
        states = read.states[:, self._places :]
        alone = record == {"encoder"}
        hidden = (
            Hidden(states)
            if alone
            else self.decoder.read(_target(batch), x, source=read, record=record)
        )
        recorded = {**hidden.recorded, **({"source": layers} if layers else {})}
        recorded |= {"encoder": [states]} if "encoder" in record else {}
        pondered = _rename(source=encoded, target=hidden)
        pondered |= (
            {"source": pondered["source"][:, self._places :]} if "source" in pondered else {}
        )
        streams = {"encoder": states}
        noted = {**encoded.noted, **hidden.noted}
        return replace(hidden, streams=streams, recorded=recorded, pondered=pondered, noted=noted)

    def fresh_cache(self, batch: Batch) -> Cache:
        cache = Cache.of(len(self.decoder.stack.steps))
        cache.source = self._read(batch, frozenset())[0]
        return cache

    def stacks(self, length: int, target_length: int) -> Iterator[tuple[Stack, RowSize]]:
        for part in (self.front, self.encoder):
            if part is not None:
                yield from part.stacks(length, 0)
        for stack, row in self.decoder.stacks(target_length, 0):
            yield stack, replace(row, source=length)

    def _read(self, batch: Batch, record: Record) -> tuple[SourceStates, Hidden]:
        """The source for cross-attention, and the result of the encoder."""
        source = batch.seqs[batch.input]
        hidden = self.encoder.read(
            source,
            self._embed_source(source),
            record=frozenset({"hidden"}) if "source" in record else frozenset(),
            whole=True,
        )
        seen = source if self.encoder.prompt is None else self.encoder.prompt.extend(source)
        mask = self._visible(seen, batch.seqs.get("target"))
        op = BoundOp(mask, NoPosition(), token_positions(seen, 0))
        return SourceStates(hidden.last, op), hidden

    @property
    def _places(self) -> int:
        """The number of prompt states among the states of the source."""
        return 0 if self.encoder.prompt is None else self.encoder.prompt.length

    def _embed_source(self, source: Seq) -> Tensor:
        """[B, S, W] the input of the encoder's first layer."""
        if self.front is None:
            return self.encoder.embed_tokens(source)
        vectors = self.front.read(source, self.front.embed_tokens(source)).last
        return self.encoder.embedding(
            source, self.encoder.position, token_positions(source, 0), vectors
        )

    def _visible(self, source: Seq, target: Seq | None) -> Mask:
        """The states of the source that each token of the target may see: no padding, and in packed
        rows the same document.
        """
        allowed = Padding().dense(source) if not source.full else None  # [B, 1, 1, S]
        if self.unread is not None:
            read = (source.ids != self.unread)[:, None, None]
            allowed = read if allowed is None else read & allowed
        target = source if target is None else target
        if "document" in source.tracks and "document" in target.tracks:
            same = (
                target.tracks["document"][:, None, :, None]
                == source.tracks["document"][:, None, None, :]
            )
            allowed = same if allowed is None else same & allowed
        return Mask(allowed)

    def _previous(self, target: Seq) -> Seq:
        """The input of the decoder: every token one position later, `start` at the beginning of
        each row and document.
        """
        if "previous" in target.tracks:
            return replace(target, ids=target.tracks["previous"])
        if self.start is None:
            raise UsageError(
                "the first token of the decoder is unknown:"
                " model.start is a role, and there is no tokenizer"
            )
        first = self._find_first(target)
        shifted = torch.cat([first[:, :1], target.ids[:, :-1]], 1)
        document = target.tracks.get("document")
        if document is not None:
            begins = document != torch.cat(
                [torch.full_like(document[:, :1], -1), document[:, :-1]], 1
            )
            shifted = torch.where(begins, first, shifted)
        return replace(target, ids=shifted)

    def _find_first(self, target: Seq) -> Tensor:
        """[B, T] the token that stands before the first one of each token's text."""
        if self.start != LAST:
            return torch.full_like(target.ids, cast(int, self.start))
        text = target.tracks.get("document", torch.zeros_like(target.ids))
        text = text.masked_fill(~target.real, -1)
        ends = text != torch.cat([text[:, 1:], torch.full_like(text[:, :1], -2)], 1)
        places = torch.arange(text.shape[1], device=text.device).expand_as(text)
        places = places.masked_fill(~ends, text.shape[1])
        return target.ids.gather(1, places.flip(1).cummin(1).values.flip(1))


def _rename(**results: Hidden) -> dict[str, Tensor]:
    """The halting states by the sequences of this model; each stack calls its own `text`."""
    return {name: x for name, hidden in results.items() for x in hidden.pondered.values()}


def _target(batch: Batch) -> Seq:
    return batch.seqs.get("target") or batch.text


def _id(name: str, token: str | int, vocab: Vocab | None, reader: Encoder) -> int | None:
    """The id of a role, or the id itself; None without a vocabulary. `reader`: the encoder with the
    table.
    """
    if isinstance(token, int):
        rows = cast(int, reader.token_embedding.num_embeddings)
        # a model without weights may have a table of any size
        if not 0 <= token < rows and not next(reader.parameters()).is_meta:
            raise ConfigError(
                f"model.{name}", token, f"0 up to {rows - 1}, the ids of this vocabulary, or a role"
            )
        return token
    if token not in ROLES:
        raise ConfigError(
            f"model.{name}", token, f"an id, or one of {', '.join(ROLES)}{nearest(token, ROLES)}"
        )
    if vocab is None:
        return None
    token_id: int | None = getattr(vocab, token)
    if token_id is None:
        roles = ", ".join(role for role in ROLES if getattr(vocab, role) is not None)
        allowed = f"this tokenizer has no such token; it has {roles}"
        raise ConfigError(f"model.{name}", token, allowed, fix=f"model.{name}=pad")
    return token_id
