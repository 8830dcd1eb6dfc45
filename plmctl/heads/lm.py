"""The language-model head (Devlin et al., 2019, arXiv:1810.04805): states to logits over the
vocabulary.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import About, ClassHead
from plmctl.heads.table_loss import Smoothing, cross_entropy_of_table
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.tables import Padded, with_spare


@part_of("heads")
class LMHead(Padded, ClassHead):
    """`logits = norm(activation(dense(h))) table^T + bias`, [..., W] -> [..., V]; without
    `transform`, `h table^T + bias`.

    `dense` leads from W to the width of the table, which is narrower than W where the embedding is
    factorised (ALBERT).

    `tied` takes the table from `token_embedding` at every call and stores nothing; otherwise the
    head owns `weight`. Table and bias may have spare rows after the V of tokens: they get no
    probability and no gradient. With `scaled`, states count W^-0.5 times: T5's tables are drawn
    from N(0, 1) (Raffel et al., 2020; mesh_tensorflow, transformer.py). `about`: whether it
    predicts the token at the position of a state, which noise masked ("text"), or the "next" one.

    `dense_bias` and `norm_bias` are the biases of the transform, which ModernBERT has not.

    With `widened`, `dense` keeps the width W, and the table of tokens gets W - E columns of the
    head's own (MobileBERT, released code).

    With `prior`, the bias starts at the log of the frequency of each token in the corpus. No update
    is then spent on frequencies (Lin et al., 2017, arXiv:1708.02002, sec. 3.3, for rare classes).
    """

    about: About = "text"

    def __init__(
        self,
        *,
        width: int,
        vocab_size: int,
        token_embedding: nn.Module | None,
        tied: bool,
        transform: bool,
        bias: bool,
        activation: str = "gelu",
        eps: float = 1e-12,
        chunk: int = 1 << 26,
        scaled: bool = False,
        about: Literal["text", "next"] = "text",
        prior: bool = False,
        dense_bias: bool = True,
        norm_bias: bool = True,
        widened: bool = False,
    ) -> None:
        super().__init__()
        if about not in ("text", "next"):
            raise ConfigError("about", about, "text (the token at a position), or next")
        if prior and not bias:
            raise ConfigError("prior", prior, "false, or a head with a bias", fix="bias=true")
        self.about, self.prior = about, prior
        self.vocab_size = vocab_size
        self.chunk = chunk  # the most logits held at once (2^26 in bf16: 128 MiB)
        self.factor = width**-0.5 if scaled else 1.0
        columns = find_columns(token_embedding, width, tied=tied, transform=transform)
        inner = width if widened else columns
        self.dense = nn.Linear(width, inner, bias=dense_bias) if transform else None
        self.activation = find_activation(activation)
        self.norm = nn.LayerNorm(inner, eps=eps, bias=norm_bias) if transform else None
        self._tied: tuple[nn.Module, ...] = (
            (token_embedding,) if tied and token_embedding is not None else ()
        )  # in a tuple: not a submodule, so not stored twice
        self.weight = (
            None
            if tied
            else nn.Parameter(with_spare(torch.empty(vocab_size, columns).normal_(std=0.02)))
        )
        self.more: nn.Parameter | None = None
        if widened:
            self.widen_table(width - columns)
        self.bias = (
            nn.Parameter(with_spare(torch.zeros(vocab_size), rows=len(self.table)))
            if bias
            else None
        )

    def widen_table(self, columns: int) -> None:
        """Give the table so many columns of the head's own; ConfigError without room for any."""
        if columns < 1:
            allowed = "false: the table of tokens is as wide as the states"
            raise ConfigError("widened", True, allowed, fix="widened=false")
        own = torch.empty(self.vocab_size, columns).normal_(std=0.02)
        self.more = nn.Parameter(with_spare(own, rows=len(self.table)))

    def start_from(self, frequencies: Tensor) -> None:
        """Set the bias of a head with `prior`.

        Args:
            frequencies: [V] share of each token in the corpus, none 0.
        """
        if self.prior and self.bias is not None:
            self.bias.data[: self.vocab_size] = frequencies.log().to(self.bias)

    @property
    def table(self) -> Tensor:
        """[V or more, W or E] the output embedding."""
        table = cast(Tensor, self._tied[0].weight) if self.weight is None else self.weight
        return table if self.more is None else torch.cat([table, self.more], 1)

    def transform_states(self, features: Tensor) -> Tensor:
        """[..., W] the states just before the output embedding."""
        features = features if self.factor == 1.0 else features * self.factor
        if self.dense is None or self.norm is None:
            return features
        return self.norm(self.activation(self.dense(features)))

    def forward(self, features: Tensor) -> Tensor:
        return self.product(self.transform_states(features))[..., : self.vocab_size]

    def product(self, states: Tensor) -> Tensor:
        """[..., W or E] -> [..., V or more], the output embedding itself."""
        return F.linear(states, self.table, self.bias)

    def loss(self, features: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """features [P, W], ids [P] -> (summed cross-entropy in fp32, number of right first
        guesses), both without IGNORE.
        """
        return self.smoothed_loss(features, ids, 0.0)[:2]

    def smoothed_loss(
        self, features: Tensor, ids: Tensor, smoothing: float, *, spared: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(loss, right, plain): `(1 - e) plain + e mean_v (- log p(v))` over the V tokens, and
        `plain`, the sum without e.

        With `spared`, the mean is that of all tokens but the label and this one. `plain` carries
        no gradient.
        """
        # a CPU need not have equal shapes in every batch: without spare slots there is less work
        if features.device.type == "cpu":
            labelled = (ids != IGNORE).nonzero()[:, 0]
            features, ids = (
                (features, ids)
                if len(labelled) == len(ids)
                else (features[labelled], ids[labelled])
            )
        return cross_entropy_of_table(
            self.transform_states(features),
            self.table,
            self.bias,
            ids,
            self.vocab_size,
            self.chunk,
            Smoothing(smoothing, spared),
            self.compiled,
        )


def find_columns(
    token_embedding: nn.Module | None, width: int, *, tied: bool, transform: bool
) -> int:
    """The columns of the table of a head: those of the tokens where it is tied to them, or where a
    transform leads to them.

    Raises:
        ConfigError: The model has no such table, or states do not fit it.
    """
    table = cast(Tensor | None, getattr(token_embedding, "weight", None))
    if table is None and tied:
        has = "reads characters and has no table of tokens"
        if token_embedding is not None:
            has = "has its tokens in several tables (plmctl.heads.adaptive.AdaptiveSoftmax)"
        raise ConfigError("tied", True, f"false: this model {has}", fix="tied=false")
    # a table of its own fits whatever the states are
    own = table is None or not (tied or transform)
    inner = width if own else int(cast(Tensor, table).shape[1])
    if inner != width and not transform:
        allowed = f"true: states of {width} do not fit the tables of table_width={inner}"
        raise ConfigError("transform", transform, allowed, fix="transform=true, or tied=false")
    return inner
