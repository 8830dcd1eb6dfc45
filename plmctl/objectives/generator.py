"""The generator of ELECTRA (Clark et al., 2020, arXiv:2003.10555): a masked language model whose
samples replace tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plmctl.core.batch import Batch, Targets
from plmctl.core.draw_device import draw_weights
from plmctl.core.draws import BITS, whole_at
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.nn.positions import ALiBi, Position
from plmctl.objectives.gradient_disentangled import Disentanglement

Tied = Literal["none", "gdes", "tokens", "all", "weights"]
HALF = BITS // 2
EMBEDDINGS = ("embedding.token", "embedding.segment", "embedding.norm", "position")
# the modules of the backbone that are shared with the model
SHARED: dict[Tied, tuple[str, ...]] = {
    "none": (),
    "gdes": (),
    "tokens": ("embedding.token",),
    "all": EMBEDDINGS,
    "weights": (*EMBEDDINGS, "embedding.project", "stack"),
}


@dataclass(frozen=True)
class Drawn:
    """The generator's result for a batch; P counts the positions of `targets.mlm`, spare slots
    included.
    """

    features: Tensor  # [P, W_G] its states there
    samples: Tensor  # [P] the tokens it drew there
    batch: Batch  # the text with those tokens in it
    original: Tensor  # [B, T] the text as it was before noise
    replaced: Tensor  # [B, T] bool: where `batch` differs from it


@part_of("generator")
class Generator(nn.Module):
    """Draws `x_i ~ softmax(head(backbone(text))_i / temperature)` at every position of
    `targets.mlm` (sec. 2).

    Samples carry no gradient. `tied` says what it shares with the model: token table, all
    embeddings (tokens, positions, segments and their norm, the published choice), or every weight
    of the backbone, which wants equal sizes. "gdes" shares tables without their gradients
    (objectives/gradient_disentangled.py), "none" nothing: in the terms of DeBERTa 3, "tokens" is
    ES, "none" NES. `share` is its width divided by the model's, at most
    1: the samples of a larger generator are too good (fig. 3). `avoid_originals` never draws the
    right token, which did not help (the released code's disallow_correct). First weights by the
    backbone's `initializer`.
    """

    def __init__(
        self,
        *,
        backbone: Encoder,
        head: Callable[..., LMHead],
        model: Model,
        share: float,
        tied: Tied = "all",
        temperature: float = 1.0,
        avoid_originals: bool = False,
    ) -> None:
        super().__init__()
        if not 0 < share <= 1 or backbone.width > model.backbone.width:
            allowed = (
                f"0 < share <= 1: a generator is no wider than the model's {model.backbone.width}"
                f" (here {backbone.width})"
            )
            raise ConfigError("share", share, allowed, fix="share=0.25; ELECTRA-base: share=0.3333")
        if not temperature > 0:
            raise ConfigError("temperature", temperature, "more than 0")
        self.backbone = backbone
        self.temperature = temperature
        self.avoid_originals = avoid_originals
        initialize(backbone, backbone)
        tie(backbone, model, tied)
        self.apart = Disentanglement(find_tables(backbone, model)) if tied == "gdes" else None
        self.head = head(width=backbone.width, token_embedding=backbone.token_embedding)
        initialize(self.head, backbone)

    def forward(self, batch: Batch) -> Drawn:
        if self.apart is not None and self.training:
            self.apart.begin()
        targets: Targets = batch.require("targets.mlm")
        features = self.backbone(batch).gather_words(targets.index)
        length = batch.text.ids.shape[1]
        row, column = targets.index // length, targets.index % length
        numbers = whole_at(batch.require("values.draw")[row], column)
        samples = self.sample(features.detach(), targets.ids, numbers)
        original = targets.write_into(batch.text.ids, targets.ids)
        ids = targets.write_into(batch.text.ids, samples)
        changed = replace(batch, seqs={**batch.seqs, "text": replace(batch.text, ids=ids)})
        return Drawn(features, samples, changed, original, ids != original)

    @torch.no_grad()
    def sample(self, features: Tensor, labels: Tensor, numbers: Tensor) -> Tensor:
        """features [P, W_G], right tokens [P], whole numbers in [0, 2^40) [P] -> [P] tokens.

        The first token at which the running sum of `softmax(z / temperature)` passes `number /
        2^40`. The sums are of whole 2^-40ths, and so equal in every order of addition.
        """
        samples = []
        size = rows_at_once(self.head)
        for part, right, number in zip(
            features.split(size), labels.split(size), numbers.split(size), strict=True
        ):
            scores = wide(self.head(part)) / self.temperature
            if self.avoid_originals:
                scores.scatter_(1, right.clamp(min=0)[:, None], -torch.inf)
            sums = (scores.softmax(-1) * 2.0**BITS).long().cumsum(-1)
            # number * total / 2^40 in two halves, since a product of 80 bits has no room
            upper, lower, total = number >> HALF, number & ((1 << HALF) - 1), sums[:, -1]
            passed = (upper * total + (lower * total >> HALF)) >> HALF
            drawn = torch.searchsorted(sums, passed[:, None], right=True)[:, 0]
            samples.append(drawn.clamp(max=sums.shape[1] - 1))  # where scores are not finite
        return torch.cat(samples)


def find_tables(backbone: Encoder, model: Model) -> list[tuple[nn.Embedding, nn.Embedding]]:
    """The tables of tokens and of absolute positions of the model, and those of `backbone`.

    Raises:
        ConfigError: The tokens have no table, or several.
    """
    pairs = []
    for path in ("embedding.token", "position.table"):
        own, other = (find_module(root, path) for root in (model.backbone, backbone))
        if isinstance(own, nn.Embedding) and isinstance(other, nn.Embedding):
            pairs.append((own, other))
    if not pairs:
        raise ConfigError("tied", "gdes", "a model with one table of tokens", fix="tied=none")
    return pairs


def find_module(root: nn.Module, path: str) -> Any:
    """The part of `root` at `path`, or None."""
    part: Any = root
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


def initialize(part: nn.Module, backbone: Encoder) -> None:
    """First weights of `part` by the rule of `backbone`, from torch's global generator."""
    if backbone.initializer is not None:
        draw_weights(part, backbone.initializer, torch.default_generator)


def tie(backbone: Encoder, model: Model, tied: Tied) -> None:
    """Replace modules of `backbone` by modules of the model, as `SHARED` says; modules without
    weights stay.
    """
    for path in SHARED[tied]:
        own, other = (reduce(getattr, path.split("."), root) for root in (backbone, model.backbone))
        shapes = [
            {name: list(p.shape) for name, p in part.named_parameters()} if part else {}
            for part in (own, other)
        ]
        if shapes[0] != shapes[1]:
            fix = (
                "share=1 together with it"
                if tied == "weights"
                else "tied=none, or the model's own settings for that part"
            )
            allowed = f"parts of equal sizes, and the generator's {path} is of another"
            raise ConfigError("tied", tied, allowed, fix=fix)
        if shapes[0]:
            parent, _, name = path.rpartition(".")
            setattr(backbone.get_submodule(parent), name, other)


@part_of("position")
def positions_like(*, model: Model, num_heads: int) -> Position:
    """Position embeddings of the same kind and size as the model's, with weights of their own,
    for cells of `num_heads` heads.
    """
    position = getattr(model.backbone, "position", None)
    if position is None:
        kind, allowed = type(model.backbone).__name__, "one stack with positions: BERT, RoBERTa"
        raise ConfigError("model", kind, allowed, fix="model=encoder")
    if isinstance(position, ALiBi):
        return ALiBi(num_heads=num_heads)
    return copy.deepcopy(position)  # type: ignore[no-any-return]


def log_likelihood(head: LMHead, features: Tensor, ids: Tensor, temperature: float = 1.0) -> Tensor:
    """features [P, W], ids [P] -> [P] `log softmax(head(h) / temperature)[id]` in fp32; the
    backward pass computes the logits again.
    """

    def some(part: Tensor, labels: Tensor) -> Tensor:
        scores = wide(head(part)) / temperature
        return scores.log_softmax(-1).gather(1, labels.clamp(min=0)[:, None])[:, 0]

    pieces = zip(features.split(rows_at_once(head)), ids.split(rows_at_once(head)), strict=True)
    return torch.cat(
        [
            checkpoint(some, *piece, use_reentrant=False, preserve_rng_state=False)
            for piece in pieces
        ]
    )


def rows_at_once(head: LMHead) -> int:
    """How many positions may have their logits in memory together."""
    return max(1, head.chunk // head.vocab_size)


def wide(x: Tensor) -> Tensor:
    """In fp32, or float64 where it is that."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
