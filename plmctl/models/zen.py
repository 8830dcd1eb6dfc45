"""ZEN's encoder (Diao et al., 2019): characters, together with the n-grams that cover them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Unpack

import torch
from torch import Tensor

from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import part_of
from plmctl.models.base import Hidden
from plmctl.models.encoder import Encoder, EncoderParts, refuse_halting
from plmctl.nn.cells.base import RowSize
from plmctl.nn.ngram_lexicon import Matches, NgramLexicon
from plmctl.nn.ngram_stack import NgramStack
from plmctl.nn.recorder import NONE, Record
from plmctl.nn.stack import Stack


@part_of("model")
class Zen(Encoder):
    """`Encoder` whose layers add the states of n-grams, which another encoder, without positions,
    computes from the n-grams of each row (Diao et al., 2019, arXiv:1911.00720, sec. 2.2).

    N-grams are those of the lexicon that stand among the tokens that the model is shown: a hidden
    token is in none (sinovation/ZEN, examples/create_pre_train_data.py: n-grams of the masked row).
    Each has the segment of its first token.
    Differs: of too many n-grams short ones are left out; there random ones.
    """

    def __init__(
        self,
        *,
        stack: NgramStack,
        lexicon: NgramLexicon,
        ngrams: Encoder,
        **parts: Unpack[EncoderParts],
    ) -> None:
        super().__init__(stack=stack, **parts)
        for part in (stack, ngrams.stack):
            refuse_halting(part, "tokens read n-grams in every layer")
            if part.reversible:
                allowed = "false: layers add what the n-grams are after each of them"
                raise ConfigError("model.stack.reversible", True, allowed)
        self.lexicon, self.ngrams = lexicon, ngrams

    def encode(self, x: Tensor, batch: Batch, state: Any = None, record: Record = NONE) -> Hidden:
        found, seq = self.find_ngrams(batch.text)
        read = self.ngrams.read(seq, self.ngrams.embed_tokens(seq), record=frozenset({"hidden"}))
        states = torch.stack(read.recorded["hidden"][1:])  # [L, B, K, W]
        beside = {"ngrams": states.to(x.dtype), "cover": cover(found, x.shape[1]).to(x.dtype)}
        return self.read(batch.text, x, cache=state, record=record, beside=beside)

    @outside_graphs  # how many n-grams there are depends on values
    def find_ngrams(self, text: Seq) -> tuple[Matches, Seq]:
        """The n-grams of rows, and as the sequence that their encoder reads."""
        found = self.lexicon(text.ids, text.tracks.get("document"))
        tracks = {
            name: text.tracks[name].expand(text.ids.shape).gather(1, found.start)
            for name in ("segment", "document")
            if name in text.tracks
        }
        return found, Seq(found.numbers, found.length, tracks)

    def stacks(self, length: int, target_length: int) -> Iterator[tuple[Stack, RowSize]]:
        yield from super().stacks(length, target_length)
        yield from self.ngrams.stacks(min(length, self.lexicon.most), 0)


def cover(found: Matches, length: int) -> Tensor:
    """[B, T, K] bool: the n-gram covers the token."""
    place = torch.arange(length, device=found.start.device)[None, :, None]
    start, end = found.start[:, None], (found.start + found.size)[:, None]
    return (start <= place) & (place < end)
