"""The language-model head (Devlin et al., 2019, arXiv:1810.04805): states to logits over the
vocabulary.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.heads.base import About, ClassHead
from plmctl.nn.cells.feedforward import find_activation
from plmctl.nn.tables import Padded, with_spare

# Sizes for a CPU's caches, in positions: matrix products of this many rows run at full speed (all
# 646 of 32 rows of 128 tokens at once: a third slower), and the fp32 logits of a block and their
# softmax (2 x 16 x 30,522 x 4 = 3.9 MB) stay near.
_STRIP, _BLOCK = 256, 16


class Smoothing(NamedTuple):
    """A share of the label's probability that goes to other tokens (Szegedy et al., 2016,
    arXiv:1512.00567, sec. 7).
    """

    rate: float = 0.0
    # this id and the label get none of it; None: all V tokens get the same, the label as well
    spared: int | None = None

    def shares(self, logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor | float]:
        """([p, 1] mean logit of the tokens that share, what one of them has) of `logits [p, V]`
        with labels `label [p, 1]`.
        """
        if self.spared is None:
            return logits.mean(1, keepdim=True), self.rate / logits.shape[1]
        another = (label != self.spared).to(logits)
        count = logits.shape[1] - 1 - another
        own, theirs = logits.gather(1, label), logits[:, self.spared, None] * another
        return (logits.sum(1, keepdim=True) - own - theirs) / count, self.rate / count

    def take_off(self, dz: Tensor, label: Tensor, share: Tensor | float) -> None:
        """Take the `share` from the gradient of every token that has one (in place)."""
        dz -= share
        if self.spared is not None:
            assert isinstance(share, Tensor)
            dz.scatter_add_(1, label, share)
            dz[:, self.spared, None] += share * (label != self.spared)


_PLAIN = Smoothing()


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

    With `prior`, the bias starts at the log of how frequent each token is in the corpus, so that
    no update is spent on frequencies (Lin et al., 2017, arXiv:1708.02002, sec. 3.3, for rare
    classes).
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
            raise ConfigError(
                "transform",
                transform,
                f"true: states of {width} do not fit the tables of table_width={inner}",
                fix="transform=true, or tied=false",
            )
        self.dense = nn.Linear(width, inner) if transform else None
        self.activation = find_activation(activation)
        self.norm = nn.LayerNorm(inner, eps=eps) if transform else None
        self._tied: tuple[nn.Module, ...] = (
            (token_embedding,) if tied and token_embedding is not None else ()
        )  # in a tuple: not a submodule, so not stored twice
        self.weight = (
            None
            if tied
            else nn.Parameter(with_spare(torch.empty(vocab_size, inner).normal_(std=0.02)))
        )
        self.bias = (
            nn.Parameter(with_spare(torch.zeros(vocab_size), rows=len(self.table)))
            if bias
            else None
        )

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
        return cast(Tensor, self._tied[0].weight) if self.weight is None else self.weight

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
        )


def cross_entropy_of_table(
    h: Tensor,
    table: Tensor,
    bias: Tensor | None,
    ids: Tensor,
    vocab_size: int,
    chunk: int,
    smoothing: Smoothing = _PLAIN,
) -> tuple[Tensor, Tensor, Tensor]:
    """(summed cross-entropy, number of right first guesses, cross-entropy without smoothing) of the
    logits `h table^T + bias` of the first `vocab_size` rows, without IGNORE.

    Args:
        h: [P, E] states.
        table: [V or more, E].
        bias: [V or more].
        ids: [P] labels.
        chunk: the most logits held at once.
    """
    result: tuple[Tensor, Tensor, Tensor] = _CrossEntropy.apply(
        h, table, bias, ids, vocab_size, chunk, smoothing
    )
    return result


class _CrossEntropy(Function):
    """`sum_p logsumexp(z_p) - z_p[id_p]`, z = h table^T + bias, with at most `chunk` logits alive.

    The gradient by z is softmax(z) - onehot(id), known as soon as z is: gradients are made in the
    forward pass, chunk by chunk, and the backward only scales them (Hsu et al., 2024,
    arXiv:2410.10989, sec. 3.2).
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        table: Tensor,
        bias: Tensor | None,
        ids: Tensor,
        vocab_size: int,
        chunk: int,
        smoothing: Smoothing,
    ) -> tuple[Tensor, Tensor, Tensor]:
        device = h.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else h.dtype
        with torch.autocast(device, enabled=False):
            train = any(ctx.needs_input_grad[:3])
            rows = max(1, chunk // len(table))
            loss, right, plain, grads = _in_chunks(
                h.to(low), table.to(low), bias, ids, vocab_size, rows, train, smoothing
            )
        ctx.mark_non_differentiable(right, plain)
        ctx.save_for_backward(*grads)
        ctx.types = [None if x is None else x.dtype for x in (h, table, bias)]
        return loss, right, plain

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, grad: Tensor, *_: Tensor
    ) -> tuple[Tensor | None, ...]:
        gradients = zip(ctx.saved_tensors, ctx.types, ctx.needs_input_grad[:3], strict=True)
        return (
            *(
                x.to(dtype, copy=True).mul_(grad) if needed else None
                for x, dtype, needed in gradients
            ),
            None,
            None,
            None,
            None,
        )


def _in_chunks(
    h: Tensor,
    table: Tensor,
    bias: Tensor | None,
    ids: Tensor,
    vocab_size: int,
    rows: int,
    train: bool,
    smoothing: Smoothing,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor | None]]:
    """(loss, right, plain loss, [dh, dtable, dbias]) over `rows` positions at a time; sums in
    fp32 (or float64).
    """
    wide = torch.promote_types(h.dtype, torch.float32)
    sums = [h.new_zeros((), dtype=kind) for kind in (wide, torch.int64, wide)]
    counted = (ids != IGNORE)[:, None]
    h = h.masked_fill(~counted, 0)  # so that other positions add nothing to dtable
    dh, dtable = (
        torch.empty_like(h) if train else None,
        torch.zeros_like(table) if train and not len(h) else None,
    )
    dbias = None if bias is None or not train else torch.zeros_like(bias, dtype=wide)
    cached = h.device.type == "cpu" and not torch.compiler.is_compiling()
    for chunk in _slices(len(h), rows):
        z = h.new_empty(chunk.stop - chunk.start, len(table))
        for strip in _slices(len(z), _STRIP if cached else rows):
            span = slice(chunk.start + strip.start, chunk.start + strip.stop)
            torch.mm(h[span], table.T, out=z[strip])
            for part in _slices(span.stop - span.start, _BLOCK if cached else rows):
                part_sums = _softmax_minus_label(
                    z[strip][part], bias, ids[span][part], vocab_size, wide, dbias, smoothing
                )
                sums = [a + b for a, b in zip(sums, part_sums, strict=True)]
            if dh is not None:  # z is dloss / dlogits by now
                torch.mm(z[strip], table, out=dh[span])
        if train:
            product = z.T @ h[chunk]
            dtable = product if dtable is None else dtable.to(wide).add_(product)
    loss, right, plain = sums
    return loss, right, plain, [None if dh is None else dh.mul_(counted), dtable, dbias]


def _slices(count: int, most: int) -> list[slice]:
    """`count` rows in pieces of nearly the same size, none above `most`."""
    pieces = -(-count // most)
    return [slice(count * i // pieces, count * (i + 1) // pieces) for i in range(pieces)]


def _softmax_minus_label(
    z: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    vocab_size: int,
    wide: torch.dtype,
    dbias: Tensor | None,
    smoothing: Smoothing,
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss, right guesses and summed plain loss of the logits `z [p, V or more]` before
    bias.

    `z` becomes its gradient, as if all counted. A guess is right if the label scores above every
    other token: a tie, common in bf16, counts as wrong. With m the largest logit, logsumexp(z) = m
    - log max_v softmax(z)_v: the softmax, one fused pass, is all that is needed.
    """
    counted, label = (labels != IGNORE)[:, None], labels[:, None].clamp(min=0)
    logits = z.to(wide, copy=True)
    logits = logits if bias is None else logits.add_(bias)
    mean, share = smoothing.shares(logits[:, :vocab_size], label) if smoothing.rate else (None, 0.0)
    logits[:, vocab_size:] = -torch.inf
    own, p = logits.gather(1, label), torch.softmax(logits, 1)
    rival = logits.scatter_(1, label, -torch.inf).amax(1, keepdim=True)
    plain = (torch.maximum(own, rival) - p.amax(1, keepdim=True).log() - own).masked_fill_(
        ~counted, 0
    )
    loss = (
        plain if mean is None else plain + smoothing.rate * (own - mean).masked_fill_(~counted, 0)
    )
    dz = p.scatter_add_(1, label, torch.full_like(own, smoothing.rate - 1.0))
    if smoothing.rate:
        smoothing.take_off(dz[:, :vocab_size], label, share)
    if dbias is not None:
        dbias += (counted.to(wide).T @ dz)[0]
    z.copy_(dz)
    return loss.sum(), ((own > rival) & counted).sum(), plain.sum()
