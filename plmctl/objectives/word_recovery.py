"""Cross-lingual word recovery (Huang et al., 2019: Unicoder): the words of a sentence are recovered
from those of its translation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from plmctl.core.batch import Batch
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Whole
from plmctl.heads.base import head_of
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder, token_positions
from plmctl.objectives.ask import make_output
from plmctl.objectives.base import Facts, Objective, Output
from plmctl.objectives.contrast import restore_originals
from plmctl.text.vocab import Vocab


class Sides(NamedTuple):
    """The tokens to predict, and the tokens from which each may be built."""

    own: Tensor  # [B, T] bool: the side that is recovered, special tokens too
    asked: Tensor  # [B, T] bool: of these, words that have a translation
    sources: Tensor  # [B, T, T] bool: the words of the translation of each


@part_of("objective")
class WordRecovery(Objective):
    """`- sum_i log p(x_i | x^t)`, where every word of a sentence is shown as a mix of the words of
    its translation:

        x^t_i = sum_j softmax_j(w . [x_i; y_j; x_i * y_j]) y_j

    x and y are the vectors of tokens in the table, w is learned, and the encoder reads x^t alone.
    (Huang et al., 2019, arXiv:1909.00964, sec. 3.2.) Together with mlm, the text is the one before
    its masks.

    Args:
        table_width: E, of the table of tokens.
        recovered: the language that is recovered (tracks.language), from all others of its pair.
    """

    facts = Facts(
        needs=frozenset({"text", "tracks.language"}),
        heads=frozenset({"mlm"}),
        terms=frozenset({"word_recovery"}),
        at_every_token=frozenset({"mlm"}),
    )

    special: Tensor

    def __init__(
        self, *, model: Model, vocab: Vocab, table_width: int, recovered: Whole = 0
    ) -> None:
        super().__init__()
        if not isinstance(model.backbone, Encoder):
            kind = type(model.backbone).__name__
            raise ConfigError("model", kind, "an Encoder", fix="model=encoder")
        self.recovered = recovered
        self.weigh = nn.Linear(3 * table_width, 1, bias=False)
        special = torch.from_numpy(vocab.special.copy())
        self.register_buffer("special", special, persistent=False)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"word_recovery": int(self._find_sides(restore_originals(batch)).asked.sum())}

    def forward(self, model: Model, batch: Batch, state: object = None) -> Output:
        clean, backbone = restore_originals(batch), model.backbone
        assert isinstance(backbone, Encoder)
        sides, text = self._find_sides(clean), clean.text
        vectors = backbone.embedding.token(text.ids)  # [B, T, E]
        shown = torch.where(sides.asked[..., None], self._mix(vectors, sides.sources), vectors)
        seq = replace(text, full=False).with_tracks(real=sides.own)
        x = backbone.embedding(seq, backbone.position, token_positions(seq, 0), shown)
        view = replace(clean, seqs={**clean.seqs, "text": seq})
        states = backbone.encode(x, view).words[sides.asked]
        loss, right = head_of(model, "mlm").loss(states, text.ids[sides.asked])
        return make_output("word_recovery", loss, right, len(states))

    def _find_sides(self, clean: Batch) -> Sides:
        text = clean.text
        real, special = text.real, self.special.to(text.ids.device)[text.ids]
        mine = clean.require("tracks.language") == self.recovered
        own, other = real & mine, real & ~mine & ~special
        sources = other[:, None, :].expand(-1, other.shape[1], -1)
        if "document" in text.tracks:
            document = text.tracks["document"]
            sources = sources & (document[:, :, None] == document[:, None, :])
        return Sides(own, own & ~special & sources.any(2), sources)

    def _mix(self, vectors: Tensor, sources: Tensor) -> Tensor:
        """[B, T, E] the mixes of translated words."""
        first, second, both = self.weigh.weight.to(vectors.dtype)[0].chunk(3)
        scores = (vectors @ first)[:, :, None] + (vectors @ second)[:, None]
        scores = scores + (vectors * both) @ vectors.transpose(1, 2)
        weights = scores.float().masked_fill(~sources, -torch.inf).softmax(-1).nan_to_num()
        return weights.to(vectors.dtype) @ vectors
