"""LUKE's encoder (Yamada et al., 2020): words, and behind them tokens of the entities that they
mention.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from plmctl.attention.kernels.auto import Auto
from plmctl.attention.kernels.base import Kernel
from plmctl.attention.kernels.dense import Dense
from plmctl.attention.patterns.base import Full
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.models.base import Hidden
from plmctl.models.encoder import Encoder, EncoderParts, token_positions
from plmctl.nn.entity_tokens import EntityTokens
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.stack import Stack


@part_of("model")
class Luke(Encoder):
    """`Encoder` over T words and E entities as one row; all see each other. The states of the
    entities are the stream `entities` [B, E, W].

    The sequence `entities` of a batch holds them (noise=entity_tokens); without it this is
    `Encoder`. In packed rows an entity belongs to the document of its mention. With
    `read_entities=False` they are not read, a control. (Yamada et al., 2020, arXiv:2010.01057, sec.
    3.) If positions turn queries and keys, or change scores, an entity is at the middle token of
    its mention. It has no neighbours, as a convolution would read them. A trained model computes
    without entities what it did; with them not, since attention gives them a share.
    """

    uses = Encoder.uses | {"entities", "tracks.mention_start", "tracks.mention_size"}
    streams = frozenset({"entities"})
    records = frozenset({"hidden"})  # type: ignore[assignment]

    def __init__(
        self,
        *,
        stack: Stack,
        entities: EntityTokens,
        read_entities: bool = True,
        **parts: Unpack[EncoderParts],
    ) -> None:
        parts["attention_kernel"] = _choose_kernel(parts.get("attention_kernel"))
        super().__init__(stack=stack, **parts)
        pattern = parts["pattern"]
        if not isinstance(pattern, Full):
            allowed = "full: words and entities all see each other"
            raise ConfigError("pattern", type(pattern).__name__, allowed, fix="pattern=full")
        self.entities, self.read_entities = entities, read_entities
        self.streams = frozenset({"entities"}) if read_entities else frozenset()

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        entities, text = batch.seqs.get("entities"), batch.text
        if entities is None or not self.read_entities:
            return self.read(text, x, cache=state, record=record)
        words = x.shape[1]
        vectors = self.entities(entities, words).to(x.dtype)
        start, size = (entities.tracks[f"mention_{name}"] for name in ("start", "size"))
        place = (start + (size - 1).clamp(min=0) // 2).clamp(0, words - 1).long()  # the middle
        positions = token_positions(text, 0).expand(x.shape[0], -1)
        tracks = {
            "real": torch.cat([text.real, entities.real], 1),
            "position": torch.cat([positions, positions.gather(1, place)], 1),
            "alone": (torch.arange(words + place.shape[1], device=x.device) >= words)[None],
        }
        if "document" in text.tracks:
            document = text.tracks["document"]
            tracks["document"] = torch.cat([document, document.gather(1, place)], 1)
        both = Seq(torch.cat([text.ids, entities.ids], 1), text.length + entities.length, tracks)
        beside = {"entities": vectors}
        hidden = self.read(both, torch.cat([x, vectors], 1), record=record, beside=beside)
        recorded = {
            name: [states[:, :words] for states in layers]
            for name, layers in hidden.recorded.items()
        }
        streams = {"entities": hidden.last[:, words:]}
        return replace(hidden, last=hidden.last[:, :words], streams=streams, recorded=recorded)


def _choose_kernel(kernel: Kernel | None) -> Kernel:
    """The dense kernel; ConfigError if the settings name another."""
    if kernel is None or isinstance(kernel, Auto | Dense):
        return Dense()
    allowed = "dense: scores differ between words and entities"
    raise ConfigError("kernel", type(kernel).__name__, allowed, fix="kernel=dense")
