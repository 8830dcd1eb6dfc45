"""DeBERTa's encoder with the enhanced mask decoder (He et al., 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Hidden
from plmctl.models.encoder import Encoder, EncoderParts, refuse_halting, token_positions
from plmctl.nn.positions import check_rows
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.stack import Stack


@part_of("model")
class Deberta(Encoder):
    """`Encoder`, and for heads over the vocabulary other states, the stream `words` [B, T, W].

    H' are the states before the last layer, p the absolute positions. Q_0 = H' + p, and Q_(n + 1) =
    layer(Q_n): the last layer, with its own weights. Its queries and residual sums are Q_n, its
    keys and values are H'. `words` is Q after `decoder_steps`; 0: no decoder. So
    absolute positions enter only here. Other heads read the last layer as it is, and a model
    without a head over words does not run the decoder. (He et al., 2021, arXiv:2006.03654, sec.
    3.2; microsoft/DeBERTa, apps/models/masked_language_model.py.)
    """

    def __init__(
        self,
        *,
        stack: Stack,
        max_length: int,
        decoder_steps: int = 2,
        **parts: Unpack[EncoderParts],
    ) -> None:
        super().__init__(stack=stack, **parts)
        if decoder_steps < 0:
            raise ConfigError("decoder_steps", decoder_steps, "0 (no decoder) or more")
        self.decoder_steps, self.places = decoder_steps, None
        if not decoder_steps:
            return
        refuse_halting(stack, "the decoder runs the last layer again")
        cells = [stack.block(step).cell for steps in stack.rounds[-1] for _, step in steps]
        if stack.reversible or not any("content" in cell.facts.reads for cell in cells):
            allowed = "0: this last layer has no queries of other states"
            raise ConfigError("model.decoder_steps", decoder_steps, allowed)
        self.places = nn.Embedding(max_length, self.width)
        self.serve(words=True)

    @property
    def plain(self) -> bool:
        return not self.streams

    def serve(self, *, words: bool, rows: bool = False) -> None:
        decodes = words and self.places is not None
        self.streams = frozenset({"words"}) if decodes else frozenset()
        if decodes and self.places is not None:
            longest = self.places.num_embeddings
            own = self.position.max_length
            self.max_length = longest if own is None else min(longest, own)
        else:
            self.max_length = self.position.max_length

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        if self.plain:
            return super().encode(x, batch, state, record)
        text = batch.text
        hidden = self.read(text, x, cache=state, record=record | {"hidden"})
        content = hidden.recorded["hidden"][-2]
        words = self.decode(batch, content)
        recorded = dict(hidden.recorded)
        if "hidden" not in record:
            del recorded["hidden"]
        return replace(hidden, recorded=recorded, streams={"words": words})

    def decode(self, batch: Batch, content: Tensor) -> Tensor:
        """[B, T, W] the states for heads over the vocabulary, of those before the last layer."""
        assert self.places is not None
        positions, last = token_positions(batch.text, 0), self.stack.num_layers - 1
        check_rows(content, self.places, positions)
        query = content + self.places(positions).to(content.dtype)
        for _ in range(self.decoder_steps):
            query = self.read(batch.text, query, beside={"content": content}, first=last).last
        return query
